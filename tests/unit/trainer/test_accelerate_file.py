"""The accelerate file that a TRL run is launched with: knobs, rows, and a refusal by its line for all else."""

from __future__ import annotations

import pytest

from autotune.errors import UsageError
from autotune.frameworks import Source, framework_named
from tests.support.trl_fields import FIELDS
from trainer.frameworks.common.imported import Imported

ZERO = """\
compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
num_processes: 8
mixed_precision: bf16
deepspeed_config:
  deepspeed_multinode_launcher: standard
  offload_optimizer_device: cpu
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
"""
FSDP2 = """\
distributed_type: FSDP
num_processes: 4
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_cpu_ram_efficient_loading: true
  fsdp_offload_params: true
  fsdp_reshard_after_forward: false
"""
OWN = "per_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"


def read(accelerate: str, config: str = OWN, files: dict[str, str] | None = None) -> Imported:
    source = Source(config, "grpo.yaml", accelerate, "launch.yaml")
    return framework_named("trl").import_config(source, FIELDS, 1, files or {})


def test_fsdp2_is_a_knob_and_the_rest_of_it_goes_to_the_trial() -> None:
    found = read(FSDP2)
    sharding = {name: value for name, value in found.knobs.items() if name.startswith("fsdp")}
    assert sharding == {"fsdp": "fsdp2", "fsdp_reshard_after_forward": False, "fsdp_offload": True}
    kept = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "cpu_ram_efficient_loading": True}
    assert found.passthrough["fsdp_config"] == kept


def test_a_key_of_the_configuration_goes_before_the_launchers() -> None:
    """``training_args.py:1676`` of transformers 5.17."""
    own = OWN + 'deepspeed: {"zero_optimization": {"stage": 2}}\n'
    assert read(ZERO, own).knobs["zero_stage"] == 2
    plain = "distributed_type: MULTI_GPU\nmixed_precision: fp16\n"
    assert "precision" not in read(plain).knobs, "TRL turns bf16 on where nothing is said"
    assert read(plain, OWN + "bf16: true\n").knobs["precision"] == "bf16"
    assert read(plain, OWN + "bf16: false\n").knobs["precision"] == "fp16"


def test_the_file_that_it_names_is_read() -> None:
    accelerate = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: z.json}\n"
    source = Source(OWN, "grpo.yaml", accelerate, "launch.yaml")
    assert framework_named("trl").named_files(source) == {"deepspeed_config_file": ("z.json", 2)}
    files = {"deepspeed_config_file": '{"zero_optimization": {"stage": 1}, "communication_data_type": "bf16"}'}
    assert read(accelerate, files=files).knobs["zero_stage"] == 1
    with pytest.raises(UsageError, match=r"launch.yaml, line 2: .*train_batch_size: 5 here and per_device_train_batch"):
        read(accelerate, files={"deepspeed_config_file": '{"train_batch_size": 5}'})


@pytest.mark.parametrize(
    ("accelerate", "says"),
    [
        (ZERO + "  gradient_accumulation_steps: 1\n", "line 11: deepspeed_config.gradient_accumulation_steps: 1 here"),
        (ZERO.replace("3\n", "7\n", 1) + "  zero_stages: 1\n", "line 11: deepspeed_config.zero_stages: a trial's"),
        (ZERO.replace("stage: 3", "stage: 7"), "launch.yaml, line 10: deepspeed_config.zero_stage: "),
        (
            FSDP2.replace("version: 2", "version: 1"),
            "line 4: fsdp_config.fsdp_version: a trial shards with FSDP2, got 1",
        ),
        ("distributed_type: FSDP\nfsdp_config: {}\n", "line 2: fsdp_config: a trial shards with FSDP2, got 1"),
        ("distributed_type: MEGATRON_LM\n", "line 1: distributed_type: a trial runs NO, MULTI_GPU"),
        (
            "distributed_type: MULTI_GPU\nmixed_precision: fp8\n",
            "line 2: mixed_precision: a trial computes in no, bf16",
        ),
        ("- a\n", "launch.yaml, line 1: expected a mapping of accelerate's keys, got a list"),
    ],
)
def test_what_no_trial_has_is_refused_by_its_line(accelerate: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read(accelerate)

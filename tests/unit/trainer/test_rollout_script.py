"""A pair of scripts, one that trains and one that serves its rollouts, as one baseline (``readers_servers.yaml``)."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli.commands.start_options import StartOptions
from autotune.cli.commands.start_request import request_of
from autotune.errors import UsageError
from autotune.frameworks import Source, framework_named
from autotune.specification.request import Request
from search_spaces.configuration import KnobValue
from tests.support import trl_fields
from tests.support.exports import export_request
from tests.support.properties import examples
from tests.support.swift_fields import FIELDS
from trainer.frameworks import trl
from trainer.frameworks.common.config_entries import Imported
from trainer.frameworks.trl.keys import acting

BASES = yaml.safe_load((Path(__file__).parents[2] / "fixtures" / "readers_servers.yaml").read_text("utf-8"))["bases"]
TRAIN, ROLLOUT = f"{BASES['swift training']}\n", f"{BASES['swift rollout']}\n"
LAUNCH, TRL_SCRIPT = BASES["trl vllm-serve"], f"{BASES['trl script']}\n"


def read(name: str, text: str, server: str = "") -> Imported:
    fields = {"ms_swift": FIELDS, "trl": trl_fields.FIELDS}[name]
    return framework_named(name).import_config(Source(text, "run.sh", server=server), fields, 1, {})


@pytest.mark.parametrize(
    ("name", "server", "train"), [("ms_swift", ROLLOUT, TRAIN), ("trl", f"{LAUNCH} &\n", TRL_SCRIPT)]
)
def test_a_pair_in_one_file_is_what_it_is_in_two(name: str, server: str, train: str) -> None:
    together, apart = read(name, server + train), read(name, train, server)
    assert dict(together.knobs) == dict(apart.knobs)
    assert together.passthrough == apart.passthrough
    assert [note.split(": ", 1)[1] for note in together.notes] == [note.split(": ", 1)[1] for note in apart.notes]
    assert dict(read(name, train + server).knobs) == dict(apart.knobs), "whichever stands first"


@pytest.mark.parametrize(("name", "script"), [("trl", "grpo.py"), ("open_r1", "src/open_r1/grpo.py")])
def test_a_pair_whose_keys_are_in_a_file_says_how_both_are_given(name: str, script: str) -> None:
    text = f"{LAUNCH} &\naccelerate launch --config_file zero3.yaml {script} --config own.yaml --beta 0\n"
    wanted = (
        "run.sh, line 2: the keys are in own.yaml; give that file, with --accelerate zero3.yaml and --server run.sh, "
    )
    for given_text, said in (
        (text, wanted),
        (text.partition("\n")[2], "with --accelerate zero3.yaml, and write --beta into"),
    ):
        with pytest.raises(UsageError) as error:
            framework_named(name).read_keys(Source(given_text, "run.sh"), {})
        assert said in str(error.value)


ENGINE: dict[str, st.SearchStrategy[KnobValue]] = {
    "gpu_memory_utilization": st.sampled_from((0.5, 0.85)),
    "max_model_len": st.sampled_from((1536, 4096)),
    "kv_cache_memory_bytes": st.just(1 << 30),
    "max_num_seqs": st.integers(1, 512),
    "max_num_batched_tokens": st.sampled_from((2048, 8192)),
    "enforce_eager": st.booleans(),
    "cuda_graph_max_batch": st.sampled_from((64, 256)),
    "prefix_caching": st.booleans(),
    "chunked_prefill": st.booleans(),
    "kv_cache_dtype": st.sampled_from(("auto", "fp8")),
    "rollout_load_format": st.sampled_from(("auto", "dummy")),
    "rollout_dtype": st.sampled_from(("auto", "bf16", "fp16", "fp32")),
    "rollout_quantization": st.just("fp8"),
    "custom_all_reduce": st.booleans(),
    "vllm_compile_mode": st.sampled_from(("none", "vllm_compile")),
    "speculative_tokens": st.integers(1, 8),
    "micro_batch_size": st.sampled_from((4, 8)),
    "gradient_checkpointing": st.booleans(),
}
"""Knobs of a server's engine, and two of the training."""


@examples(50, 300)
@given(st.fixed_dictionaries({}, optional=ENGINE), st.sampled_from(((1, 1), (1, 2), (2, 1), (2, 2))))
def test_what_is_exported_with_trls_server_is_the_same_when_it_is_imported(
    values: dict[str, KnobValue], spread: tuple[int, int]
) -> None:
    size, replicas = spread
    served = {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": size * replicas}
    spreading = {"tensor_parallel_size": size, "rollout_data_parallel_size": replicas}
    guessing = {"speculative_decoding": "ngram"} if "speculative_tokens" in values else {}
    configuration: dict[str, KnobValue] = {**values, **guessing, **served, **spreading}
    made = trl.export(
        export_request(
            configuration=configuration,
            rows_per_update=96,
            max_prompt_length=512,
            max_completion_length=1024,
            world_size=3,
        )
    )
    source = Source(made.files["grpo.yaml"], "grpo.yaml", server=made.files["server.sh"], server_name="server.sh")
    found = dict(framework_named("trl").import_config(source, trl_fields.FIELDS, 3, {}).knobs)
    own = {**acting(configuration), "max_model_len": values.get("max_model_len", 1536)}
    assert {knob: found.get(knob) for knob in own} == own
    assert set(found) & set(ENGINE) - {"micro_batch_size", "gradient_checkpointing"} <= set(own)


def test_the_option_reaches_the_reader_and_is_refused_where_nothing_reads_it(tmp_path: Path) -> None:
    def asked(config: Path | None, framework: str) -> Request:
        options = StartOptions(config=config, server=server, python=sys.executable, framework=framework)
        return request_of(options, tmp_path)

    (tmp_path / "train.sh").write_text(TRAIN)
    (tmp_path / "serve.sh").write_text(ROLLOUT)
    config, server = tmp_path / "train.sh", tmp_path / "serve.sh"
    request = asked(config, "swift")
    assert (request.server, request.server_name) == (ROLLOUT, str(server))
    for name, own in (("verl", config), ("swift", None)):
        with pytest.raises(UsageError, match="--server is the script that starts a rollout server beside"):
            asked(own, name)
    server.write_text("")
    assert asked(config, "trl").server == "\n"

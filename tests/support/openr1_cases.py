"""Configurations of Open-R1 that are legal on the GPUs they come with."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import strategies as st

from search_spaces.configuration import Configuration, KnobValue, Resources
from tests.support.imports import text_of

OWN = text_of("openr1_recipe.yaml")
"""A recipe as users have them."""
_AROUND = "compute_environment: LOCAL_MACHINE  # ours\ndowncast_bf16: 'no'\nmixed_precision: bf16\nnum_processes: 8\n"
_NONE = "  offload_optimizer_device: none\n  offload_param_device: none\n"
ZERO2 = f"{_AROUND}distributed_type: DEEPSPEED\ndeepspeed_config:\n{_NONE}  zero3_init_flag: false\n  zero_stage: 2\n"
ZERO3 = (
    f"{_AROUND}distributed_type: DEEPSPEED\ndeepspeed_config:\n{_NONE}  zero3_init_flag: true\n"
    "  zero3_save_16bit_model: true\n  zero_stage: 3\nuse_cpu: false\n"
)
MULTI = f"{_AROUND}distributed_type: MULTI_GPU\n"
"""As Open-R1's own are."""


@dataclass(frozen=True)
class OpenR1Case:
    """A configuration, and the machine it is legal on."""

    configuration: Configuration
    processes: int
    """Those that train."""
    resources: Resources


def divisors(number: int) -> list[int]:
    return [n for n in range(1, number + 1) if number % n == 0]


@st.composite
def cases(draw: st.DrawFn) -> OpenR1Case:
    processes = draw(st.sampled_from((1, 2, 3, 4, 7, 8)))
    values = draw(_batch(processes)) | draw(_rollout(processes)) | draw(_sharding()) | draw(_numerics())
    gpus = processes + int(values.get("rollout_gpus", 0))
    resources = Resources(gpus=gpus, device="cuda", framework="open_r1", compute_capability=(9, 0))
    return OpenR1Case(Configuration(values), processes, resources)


@st.composite
def _batch(draw: st.DrawFn, processes: int) -> dict[str, KnobValue]:
    group, micro = draw(st.sampled_from((2, 4, 8, 14, 16))), draw(st.integers(1, 24))
    whole = group // math.gcd(group, micro * processes)
    accumulation = whole * draw(st.integers(1, 6))
    values: dict[str, KnobValue] = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": accumulation,
        "num_generations": group,
    }
    if draw(st.booleans()):
        steps = [n for n in divisors(accumulation) if (n * micro * processes) % group == 0]
        values["steps_per_generation"] = draw(st.sampled_from(steps))
    return values


@st.composite
def _rollout(draw: st.DrawFn, processes: int) -> dict[str, KnobValue]:
    kind = draw(st.sampled_from(("transformers", "colocate", "server")))
    if kind == "transformers":
        return {"rollout_engine": "transformers"}
    share = draw(st.sampled_from((0.2, 0.3, 0.45, 0.9)))
    values: dict[str, KnobValue] = {"rollout_engine": "vllm", "rollout_mode": kind, "gpu_memory_utilization": share}
    if kind == "colocate":
        return values | {"tensor_parallel_size": draw(st.sampled_from(divisors(processes)))}
    size, replicas = draw(st.sampled_from((1, 2))), draw(st.integers(1, 3))
    own = st.fixed_dictionaries(
        {},
        optional={
            "prefix_caching": st.booleans(),
            "enforce_eager": st.booleans(),
            "max_model_len": st.integers(64, 32768),
            "rollout_dtype": st.sampled_from(("auto", "bf16", "fp16", "fp32")),
            "kv_cache_dtype": st.sampled_from(("auto", "fp8", "fp8_e4m3")),
        },
    )
    split = {"tensor_parallel_size": size, "rollout_data_parallel_size": replicas, "rollout_gpus": size * replicas}
    return values | split | draw(own)


@st.composite
def _sharding(draw: st.DrawFn) -> dict[str, KnobValue]:
    stage = draw(st.integers(0, 3))
    values: dict[str, KnobValue] = {"zero_stage": stage}
    if stage >= 2:
        values["offload_optimizer"] = draw(st.sampled_from(("none", "cpu")))
    if stage == 3:
        values["offload_parameters"] = draw(st.sampled_from(("none", "cpu")))
    if stage and draw(st.booleans()):
        values |= draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "zero_overlap": st.booleans(),
                    "zero_contiguous_gradients": st.booleans(),
                    "zero_reduce_bucket": st.integers(1000, 10**9),
                    "zero_allgather_bucket": st.integers(1000, 10**8).map(lambda n: 2 * n),
                    "reduce_precision": st.sampled_from(("bf16", "fp32")),
                },
            )
        )
    return values


@st.composite
def _numerics(draw: st.DrawFn) -> dict[str, KnobValue]:
    pairs = (("fp32", "fp32"), ("bf16", "fp32"), ("bf16", "bf16"), ("fp16", "fp32"))
    precision, held = draw(st.sampled_from(pairs))
    checkpointing, compiled = draw(st.booleans()), draw(st.booleans())
    values: dict[str, KnobValue] = {
        "precision": precision,
        "master_weights": held,
        "gradient_checkpointing": checkpointing,
        "torch_compile": compiled,
        "optimizer": draw(st.sampled_from(("adamw_torch", "adamw_torch_fused"))),
    }
    if checkpointing and draw(st.booleans()):
        values["checkpointing_reentrant"] = draw(st.booleans())
    if compiled and draw(st.booleans()):
        values["torch_compile_mode"] = draw(st.sampled_from(("default", "reduce-overhead", "max-autotune")))
    more = st.fixed_dictionaries(
        {},
        optional={
            "hub_kernels": st.booleans(),
            "fused_loss": st.booleans(),
            "tf32": st.booleans(),
            "empty_cache_steps": st.integers(0, 50),
            "dataloader_workers": st.integers(0, 8),
            "temperature": st.floats(0.01, 5.0),
            "ddp_bucket_mib": st.integers(1, 500),
            "attn_implementation": st.sampled_from(("sdpa", "eager"))
            if precision == "fp32"
            else st.sampled_from(("sdpa", "eager", "flash_attention_2", "kernels-community/flash-attn")),
        },
    )
    return values | draw(more)

"""Rules of ms-swift alone, from the source of ms-swift 4.6.0; shared rules are in their own modules.

Numbers S1 to S19 are ms-swift's checks: S1 and S4 are ``whole_groups``, S6 ``group_size``, S11
``tensor_parallel_world``, S12 ``server_gpus``, S13 and a part of S10 ``packed_rows``, S14 the values of ``fsdp``, S19
``batched_tokens``; S7 and S8 follow from the needs of a knob. S5, S17 and the rest of S10 concern keys that are not
knobs (``swift_passthrough``); S2, S3, S15 and S16 are reported when a user's file is read; the renderer keeps S9 and
S18.
"""

from __future__ import annotations

from search_spaces.legality.case import COMPARED, Case, only, rule, rules_in


@rule(
    frozenset({*COMPARED, "training_engine"}),
    ("sequence_parallel_size", "gradient_accumulation_steps", "steps_per_generation"),
)
def swift_sequence_steps(case: Case) -> str | None:
    """Requires an accumulation that the ranks of a sequence divide: ms-swift multiplies its setting by their number."""
    size = case.at_least_one("sequence_parallel_size")
    if size == 1 or case.megatron:
        return None
    batch = case.batch
    for name, count in (("gradient_accumulation_steps", batch.accumulation), ("steps_per_generation", batch.steps)):
        if count % size:
            return f"{name} {count} is not divisible by sequence_parallel_size {size}, by which ms_swift multiplies it"
    return None


@rule(("hub_kernels", "sequence_parallel_size"), ("hub_kernels", "sequence_parallel_size"))
def swift_liger_sequences(case: Case) -> str | None:
    """Refuses sequence parallelism with Liger, whose loss takes whole sequences (S10)."""
    size = case.at_least_one("sequence_parallel_size")
    if size == 1 or case.get("hub_kernels") is not True:
        return None
    return f"hub_kernels cannot be used with sequence_parallel_size {size} in ms_swift"


@rule(("hub_kernels",), ("hub_kernels",))
def swift_liger_installed(case: Case) -> str | None:
    """Requires the package liger-kernel for Liger's kernels and loss."""
    if case.get("hub_kernels") is not True or not case.lacks("liger_kernel"):
        return None
    return "hub_kernels needs the package liger-kernel in the training environment"


@rule(("activation_offload", "fsdp"), ("activation_offload", "fsdp"))
def swift_activation_offload(case: Case) -> str | None:
    """Requires FSDP2 for activation offloading."""
    if case.get("activation_offload") is not True or case.get("fsdp") == "fsdp2":
        return None
    return "activation_offload acts only with fsdp fsdp2 in ms_swift"


@rule(
    ("custom_all_reduce", "rollout_engine", "rollout_mode"),
    ("custom_all_reduce", "rollout_mode"),
)
def swift_custom_all_reduce(case: Case) -> str | None:
    """Allows vLLM's own all-reduce with a rollout server only."""
    if not case.colocated or case.get("custom_all_reduce") is not True:
        return None
    return "custom_all_reduce acts only with rollout_mode server in ms_swift"


@rule(("adapter_sync", "sleep_level", "rollout_engine", "rollout_mode"), ("adapter_sync", "sleep_level"))
def swift_adapter_sync(case: Case) -> str | None:
    """Requires a colocated engine that keeps its base model for ``adapter_sync`` (``rollout_mixin.py:652``)."""
    if case.get("adapter_sync") is not True:
        return None
    if case.server:
        return "adapter_sync needs rollout_mode colocate: a trial's rollout server is built without adapters"
    if case.number("sleep_level") != 2:
        return None
    return "adapter_sync does nothing with sleep_level 2, which drops the base model, so that all weights are sent"


@rule(("async_generation", "rollout_engine", "rollout_mode"), ("async_generation", "rollout_mode"))
def swift_async_server(case: Case) -> str | None:
    """Requires a rollout server for generation while training (``swift/rlhf_trainers/rollout_mixin.py``)."""
    if case.get("async_generation") is not True or case.server:
        return None
    return "async_generation needs rollout_mode server in ms_swift"


@rule(
    ("weight_sync_bucket_mib", "rollout_engine", "rollout_mode"),
    ("weight_sync_bucket_mib", "rollout_mode"),
)
def swift_weight_bucket(case: Case) -> str | None:
    """Allows another weight bucket with a rollout server only."""
    size = case.values.get("weight_sync_bucket_mib")
    if not case.colocated or size in (None, DEFAULT_BUCKET_MIB):
        return None
    return f"weight_sync_bucket_mib {size} acts only with rollout_mode server in ms_swift"


@rule(("reduce_precision", "zero_stage"), ("reduce_precision", "zero_stage"))
def swift_reduce_precision(case: Case) -> str | None:
    """Allows another reduce precision with DeepSpeed only."""
    precision = case.get("reduce_precision")
    if precision in (None, "fp32") or case.number("zero_stage"):
        return None
    return f"reduce_precision {precision} acts only with zero_stage 1, 2 or 3 in ms_swift"


DEFAULT_BUCKET_MIB = 512
"""Default of ``SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE``."""

RULES = tuple(only("ms_swift", each) for each in rules_in(globals()))

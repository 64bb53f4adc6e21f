"""Rules of ms-swift alone, from the source of ms-swift 4.6.0; shared rules are in their own modules.

Numbers S1 to S19 are ms-swift's checks: S1 and S4 are ``whole_groups``, S6 ``group_size``, S11
``tensor_parallel_world``, S12 ``server_gpus``, S13 and a part of S10 ``packed_rows``, S14 the values of ``fsdp``, S19
``batched_tokens``; S7 and S8 follow from the needs of a knob. S5, S17 and the rest of S10 concern keys that are not
knobs (``swift_passthrough``); S2, S3, S15 and S16 are reported when a user's file is read; the renderer keeps S9 and
S18.
"""

from __future__ import annotations

from search_spaces.legality.case import COMPARED, Case, forbid, only, rule


@rule(
    frozenset({*COMPARED, "training_engine"}),
    ("sequence_parallel_size", "gradient_accumulation_steps", "steps_per_generation"),
)
def swift_sequence_steps(case: Case) -> str | None:
    """Requires an accumulation divisible by ``sequence_parallel_size``, by which ms-swift multiplies its setting."""
    size = case.at_least_one("sequence_parallel_size")
    if size == 1 or case.megatron:
        return None
    batch = case.batch
    for name, count in (("gradient_accumulation_steps", batch.accumulation), ("steps_per_generation", batch.steps)):
        if count % size:
            return f"{name} {count} is not divisible by sequence_parallel_size {size}, by which ms_swift multiplies it"
    return None


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


DEFAULT_BUCKET_MIB = 512
"""Default of ``SWIFT_UPDATE_WEIGHTS_BUCKET_SIZE``."""

RULES = only(
    lambda c: c.framework == "ms_swift",
    swift_sequence_steps,
    forbid(  # Liger's loss takes whole sequences (S10)
        "swift_liger_sequences: hub_kernels sequence_parallel_size",
        lambda c: c.at_least_one("sequence_parallel_size") > 1 and c["hub_kernels"] is True,
        "hub_kernels cannot be used with sequence_parallel_size {c[sequence_parallel_size]} in ms_swift",
    ),
    forbid(
        "swift_liger_installed: hub_kernels",
        lambda c: c["hub_kernels"] is True and c.lacks("liger_kernel"),
        "hub_kernels needs the package liger-kernel in the training environment",
    ),
    forbid(
        "swift_activation_offload: activation_offload fsdp",
        lambda c: c["activation_offload"] is True and c["fsdp"] != "fsdp2",
        "activation_offload acts only with fsdp fsdp2 in ms_swift",
    ),
    forbid(
        "swift_custom_all_reduce: custom_all_reduce rollout_mode | rollout_engine",
        lambda c: c.colocated and c["custom_all_reduce"] is True,
        "custom_all_reduce acts only with rollout_mode server in ms_swift",
    ),
    swift_adapter_sync,
    forbid(  # ``swift/rlhf_trainers/rollout_mixin.py``
        "swift_async_server: async_generation rollout_mode | rollout_engine",
        lambda c: c["async_generation"] is True and not c.server,
        "async_generation needs rollout_mode server in ms_swift",
    ),
    forbid(
        "swift_weight_bucket: weight_sync_bucket_mib rollout_mode | rollout_engine",
        lambda c: c.colocated and c.values.get("weight_sync_bucket_mib") not in (None, DEFAULT_BUCKET_MIB),
        "weight_sync_bucket_mib {c[weight_sync_bucket_mib]} acts only with rollout_mode server in ms_swift",
    ),
    forbid(
        "swift_reduce_precision: reduce_precision zero_stage",
        lambda c: c["reduce_precision"] not in (None, "fp32") and not c.number("zero_stage"),
        "reduce_precision {c[reduce_precision]} acts only with zero_stage 1, 2 or 3 in ms_swift",
    ),
)

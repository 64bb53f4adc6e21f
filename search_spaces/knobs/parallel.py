"""Knobs of training parallelism: ZeRO, FSDP2, offloads, buckets."""

from __future__ import annotations

from search_spaces.configuration import KnobValue
from search_spaces.knobs.build import (
    ACTOR,
    ANY,
    FSDP,
    GENERATE,
    SYNC,
    TRAIN,
    UPDATE,
    Direction,
    choice,
    device,
    host,
    keyed,
    native,
    number,
    switch,
    training,
)
from search_spaces.knobs.model import Knob, Setting

_ZERO: dict[str, tuple[KnobValue, ...]] = {"zero_stage": (1, 2, 3)}
_ZERO_2: dict[str, tuple[KnobValue, ...]] = {"zero_stage": (2, 3)}
_ZERO_3: dict[str, tuple[KnobValue, ...]] = {"zero_stage": (3,)}
_FSDP: dict[str, tuple[KnobValue, ...]] = {"fsdp": ("fsdp2",)}
SWIFT_BUCKET = 200_000_000
"""Elements of a bucket in ms-swift's presets."""


def _deepspeed(key: str, default: KnobValue, swift: KnobValue | None = None) -> dict[str, Setting]:
    """Returns settings for a DeepSpeed key; ``swift`` is the value of ms-swift's presets (swift/config/zero*.json)."""
    setting = native("deepspeed_config." + key, default)
    own = default if swift is None else swift
    return {"trl": setting, "open_r1": setting, "ms_swift": native("deepspeed." + key, own)}


def _fsdp(key: str, default: KnobValue, verl: Setting | None = None) -> dict[str, Setting]:
    found = {"trl": native("fsdp_config." + key, default), "ms_swift": native("fsdp." + key, default)}
    return found if verl is None else {**found, "verl": verl}


def _zero_switch(
    name: str, key: str, default: bool, direction: Direction, summary: str, swift: bool | None = None
) -> Knob:
    return switch(
        name=name,
        phases=UPDATE,
        memory=device(direction, UPDATE),
        needs=_ZERO,
        frameworks=_deepspeed("zero_optimization." + key, default, swift),
        summary=summary,
    )


def _zero_bucket(
    name: str, key: str, default: int, summary: str, minimum: int = 1, swift: int | None = SWIFT_BUCKET
) -> Knob:
    """Builds a knob for a ZeRO bucket; ``swift`` is ms-swift's value, ``None`` if ms-swift has a fixed value."""
    frameworks = _deepspeed("zero_optimization." + key, default, swift)
    if swift is None:
        del frameworks["ms_swift"]
    return number(
        name=name,
        unit="elements",
        phases=UPDATE,
        memory=training(1, UPDATE),
        bounds=(minimum, 10_000_000_000),
        needs=_ZERO_3 if minimum == 0 else _ZERO,
        frameworks=frameworks,
        summary=summary,
    )


KNOBS = (
    number(
        name="zero_stage",
        unit="stage",
        phases=TRAIN | SYNC,
        memory=training(0, ANY),
        bounds=(0, 3),
        frameworks=_deepspeed("zero_stage", 0),
        summary="what DeepSpeed shares out: 1 optimizer state, 2 gradients too, 3 weights too",
    ),
    choice(
        name="offload_optimizer",
        phases=UPDATE,
        memory=training(0, ANY),
        order=("none", "cpu", "nvme"),
        needs=_ZERO_2,
        frameworks=_deepspeed("offload_optimizer_device", "none"),
        summary="where optimizer state is kept and updated",
    ),
    choice(
        name="offload_parameters",
        phases=TRAIN | SYNC,
        memory=training(0, ANY),
        order=("none", "cpu", "nvme"),
        needs=_ZERO_3,
        frameworks=_deepspeed("offload_param_device", "none"),
        summary="where weights wait until they are needed",
    ),
    switch(
        name="zero3_gather_for_generation",
        phases=GENERATE,
        memory=device(1, GENERATE),
        needs=_ZERO_3,
        frameworks={f: native("ds3_gather_for_generation", True) for f in ("trl", "open_r1", "ms_swift")},
        summary="ZeRO-3 weights are gathered once for generation instead of layer by layer",
    ),
    _zero_switch(
        "zero_overlap",
        "overlap_comm",
        True,
        1,
        "gradients are reduced beside the backward pass, in twice the buffers",
        swift=False,
    ),
    _zero_switch(
        "zero_contiguous_gradients", "contiguous_gradients", True, 0, "gradients are copied to one buffer as they come"
    ),
    _zero_bucket("zero_reduce_bucket", "reduce_bucket_size", 500_000_000, "elements reduced at a time"),
    _zero_bucket("zero_allgather_bucket", "allgather_bucket_size", 500_000_000, "elements gathered at a time"),
    _zero_bucket(
        "zero_prefetch_bucket",
        "stage3_prefetch_bucket_size",
        50_000_000,
        "weights fetched ahead by ZeRO-3; 0 fetches none",
        minimum=0,
        swift=None,  # always 0 for GRPO (swift/rlhf_trainers/arguments.py, GRPOConfig.__post_init__)
    ),
    choice(
        name="fsdp",
        phases=TRAIN | SYNC,
        memory=training(0, ANY),
        order=("none", "fsdp2"),
        others=("fsdp1",),
        frameworks=keyed("none", trl="fsdp_version", ms_swift="fsdp", verl=ACTOR + "strategy", own={"verl": "fsdp1"}),
        summary="PyTorch's own sharding instead of DeepSpeed",
    ),
    switch(
        name="fsdp_reshard_after_forward",
        phases=TRAIN,
        memory=training(-1, TRAIN),
        needs=_FSDP,
        frameworks=_fsdp(
            "fsdp_reshard_after_forward",
            True,
            native(FSDP + "reshard_after_forward", True),
        ),
        summary="weights are freed after the forward pass (like ZeRO-3) or kept (like ZeRO-2)",
    ),
    switch(
        name="fsdp_offload",
        phases=TRAIN | SYNC,
        memory=(*device(-1), *host(1)),
        needs=_FSDP,
        frameworks=_fsdp("fsdp_offload_params", False, native(FSDP + "offload_policy", False)),
        summary="weights, gradients and optimizer state are kept on the host",
    ),
    switch(
        name="fsdp_forward_prefetch",
        phases=TRAIN,
        memory=device(1, TRAIN),
        needs=_FSDP,
        frameworks={"verl": native(FSDP + "forward_prefetch", False)},
        summary="the next layer's weights are fetched ahead",
    ),
    switch(
        name="fsdp_sync_once",
        phases=UPDATE,
        memory=device(1, UPDATE),
        # workers/engine/fsdp/transformer_impl.py, _gradient_sync_context: of both versions of FSDP.
        frameworks=keyed(False, verl=FSDP + "use_no_sync_for_gradient_accumulation"),
        summary="ranks share gradients once an update, after its last micro-batch, and keep whole ones until then",
    ),
    number(
        name="ddp_bucket_mib",
        unit="MiB",
        phases=UPDATE,
        memory=device(1, UPDATE),
        bounds=(1, 65536),
        frameworks={f: native("ddp_bucket_cap_mb", 25) for f in ("trl", "open_r1", "ms_swift")},
        summary="gradients reduced at a time without ZeRO or FSDP",
    ),
    number(
        name="sequence_parallel_size",
        unit="GPUs",
        phases=TRAIN,
        memory=(*device(-1, TRAIN), *host(0)),
        bounds=(1, 1024),
        frameworks={
            "ms_swift": native("sequence_parallel_size", 1),
            "verl": native("actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size", 1),
        },
        summary="ranks that share one sequence",
    ),
)

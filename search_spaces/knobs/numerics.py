"""Knobs of precision, master weights, optimizer and activation storage."""

from __future__ import annotations

from dataclasses import replace

from search_spaces.knobs.build import (
    ANY,
    FORWARD,
    SYNC,
    UPDATE,
    choice,
    device,
    host,
    native,
    same,
    seam,
    switch,
    training,
)
from search_spaces.knobs.model import Effect, Restart

EXACT_ADAMW = frozenset({"adamw_torch", "adamw_torch_fused", "paged_adamw_32bit"})
LOW_BIT_ADAMW = frozenset({"adamw_8bit", "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit", "adamw_torch_4bit"})

KNOBS = (
    choice(
        name="precision",
        effect=Effect.NUMERICS,
        phases=FORWARD,
        # Autocast keeps a copy of fp32 weights in bf16: for small batches it needs more than fp32 does.
        memory=training(0, FORWARD),
        order=("bf16", "fp16", "fp32"),
        others=("fp8",),
        frameworks={
            "trl": replace(native("bf16/fp16", "bf16"), by_seam=("fp8",)),
            "open_r1": replace(native("bf16/fp16", "fp32"), by_seam=("fp8",)),
            "ms_swift": native("bf16/fp16", "bf16"),
            "verl": native("actor_rollout_ref.actor.fsdp_config.mixed_precision", "bf16"),
        },
        summary="what matrix products are computed in",
    ),
    switch(
        name="fp8_emulate",
        phases=FORWARD,
        memory=training(1, FORWARD),
        needs={"precision": ("fp8",)},
        frameworks={
            "trl": seam("torchao.float8.Float8LinearConfig(emulate=...)", False),
            "open_r1": seam("torchao.float8.Float8LinearConfig(emulate=...)", False),
        },
        summary="FP8 rounding computed in higher precision, for hardware without FP8",
    ),
    choice(
        name="master_weights",
        effect=Effect.NUMERICS,
        phases=UPDATE | SYNC,
        memory=training(1, ANY),
        order=("bf16", "fp32"),
        frameworks={
            "trl": native("dtype", "fp32"),
            "open_r1": native("torch_dtype", "fp32"),
            "ms_swift": native("torch_dtype", "bf16"),
            "verl": native("actor_rollout_ref.actor.fsdp_config.model_dtype", "fp32"),
        },
        summary="what weights are held and updated in",
    ),
    choice(
        name="reduce_precision",
        effect=Effect.NUMERICS,
        phases=UPDATE,
        memory=training(1, UPDATE),
        order=("bf16", "fp32"),
        frameworks=same(
            native("deepspeed_config.communication_data_type", "fp32"),
            ms_swift=native("deepspeed.communication_data_type", "fp32"),
            verl=native("actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype", "fp32"),
        ),
        summary="what gradients are summed over ranks in",
    ),
    switch(
        name="tf32",
        effect=Effect.NUMERICS,
        phases=FORWARD,
        frameworks=same(native("tf32", False)),
        summary="TF32 tensor cores for what is left in fp32",
    ),
    choice(
        name="optimizer",
        effect=Effect.LEARNING,
        phases=UPDATE,
        restart=Restart.NONE,
        # Unfused steps make temporaries; between families nothing is known.
        memory=training(1, ANY),
        order=("adamw_torch_fused", "adamw_torch"),
        others=(
            *(
                "paged_adamw_32bit",
                "adamw_8bit",
                "adamw_bnb_8bit",
                "paged_adamw_8bit",
                "adamw_torch_8bit",
                "adamw_torch_4bit",
            ),
            *("adafactor", "lion_32bit", "lion_8bit", "paged_lion_32bit", "paged_lion_8bit", "sgd", "rmsprop"),
            *("adagrad", "stable_adamw", "schedule_free_adamw", "galore_adamw", "apollo_adamw", "muon"),
        ),
        alike=((Effect.SPEED, EXACT_ADAMW), (Effect.NUMERICS, EXACT_ADAMW | LOW_BIT_ADAMW)),
        frameworks=same(
            native("optim", "adamw_torch_fused"),
            open_r1=native("optim", "adamw_torch"),
            verl=native("actor_rollout_ref.actor.optim.optimizer", "adamw_torch"),
        ),
        summary="AdamW as one fused kernel, paged, or with 8- or 4-bit state; other families learn differently",
    ),
    switch(
        name="gradient_checkpointing",
        phases=UPDATE,
        restart=Restart.NONE,
        memory=training(-1, UPDATE),
        order=(False, True),
        frameworks=same(
            native("gradient_checkpointing", True),
            open_r1=native("gradient_checkpointing", False),
            verl=native("actor_rollout_ref.model.enable_gradient_checkpointing", True),
        ),
        summary="activations are computed again in the backward pass instead of kept",
    ),
    switch(
        name="checkpointing_reentrant",
        phases=UPDATE,
        restart=Restart.NONE,
        memory=training(0, UPDATE),
        needs={"gradient_checkpointing": (True,)},
        inactive=False,
        frameworks=same(
            native("gradient_checkpointing_kwargs.use_reentrant", False),
            # Unset it is true for one process and false for several (swift/trainers/mixin.py,
            # _fix_gradient_checkpointing).
            ms_swift=native("gradient_checkpointing_kwargs.use_reentrant"),
        ),
        summary="the older way of checkpointing, needed by some wrappers",
    ),
    switch(
        name="activation_offload",
        phases=UPDATE,
        restart=Restart.NONE,
        memory=(*device(-1, UPDATE), *host(1, UPDATE)),
        frameworks={
            "trl": seam("trl.models.get_act_offloading_ctx_manager", False),
            "ms_swift": native("fsdp.fsdp_config.activation_cpu_offload", False),
            "verl": native("actor_rollout_ref.model.enable_activation_offload", False),
        },
        summary="activations wait for the backward pass in host memory",
    ),
)

"""Kernels, compilation, the allocator and the data loader."""

from __future__ import annotations

from search_spaces.knobs.build import (
    ANY,
    FORWARD,
    GENERATE,
    TRAIN,
    UPDATE,
    cache,
    choice,
    device,
    environment,
    host,
    native,
    number,
    same,
    share,
    switch,
    training,
)
from search_spaces.knobs.model import Restart

_SEGMENTS = environment("PYTORCH_CUDA_ALLOC_CONF", False)
_MALLOC = environment("GLIBC_TUNABLES", "default")

KNOBS = (
    choice(
        name="attn_implementation",
        phases=FORWARD,
        memory=training(1, FORWARD),
        order=("flash_attention_3", "flash_attention_2", "sdpa", "eager"),
        open=True,
        frameworks=same(
            native("attn_implementation", "sdpa"),
            ms_swift=native("attn_impl", "sdpa"),
            verl=native("+actor_rollout_ref.model.override_config.attn_implementation", "flash_attention_2"),
        ),
        summary="how attention is computed; kernels-community/... names a hub kernel",
    ),
    switch(
        name="hub_kernels",
        phases=TRAIN,
        memory=training(-1, TRAIN),
        frameworks=same(
            native("use_liger_kernel", False),
            trl=native("model_init_kwargs.use_kernels", False),
            verl=native("actor_rollout_ref.model.use_liger", False),
        ),
        summary="Liger or hub kernels for norms, rotary embedding and MLP",
    ),
    switch(
        name="fused_loss",
        phases=TRAIN,
        memory=training(-1, TRAIN),
        frameworks={
            "open_r1": native("use_liger_loss", False),
            "verl": native("actor_rollout_ref.model.use_fused_kernels", False),
        },
        summary="LM head and loss in one kernel, without the whole logits",
    ),
    switch(
        name="entropy_chunking",
        phases=TRAIN,
        restart=Restart.NONE,
        memory=training(-1, TRAIN),
        frameworks={"verl": native("actor_rollout_ref.actor.entropy_from_logits_with_chunking", False)},
        summary="entropy is computed over chunks of the logits",
    ),
    switch(
        name="entropy_checkpointing",
        phases=UPDATE,
        restart=Restart.NONE,
        memory=training(-1, UPDATE),
        frameworks={"verl": native("actor_rollout_ref.actor.entropy_checkpointing", False)},
        summary="with entropy_coeff: entropy is computed again in the backward pass instead of kept",
    ),
    switch(
        name="torch_compile",
        phases=TRAIN,
        memory=training(0, TRAIN),
        frameworks=same(
            native("torch_compile", False), verl=native("actor_rollout_ref.actor.fsdp_config.use_torch_compile", True)
        ),
        summary="the training model is compiled",
    ),
    choice(
        name="torch_compile_mode",
        phases=TRAIN,
        memory=training(0, TRAIN),
        order=("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"),
        needs={"torch_compile": (True,)},
        frameworks=same(native("torch_compile_mode", "default")),
        summary="how much the compiler tries",
    ),
    switch(
        name="continuous_batching",
        phases=GENERATE,
        memory=training(0, GENERATE),
        needs={"rollout_engine": ("transformers",)},
        frameworks={"trl": native("use_transformers_continuous_batching", False)},
        summary="transformers generation refills finished rows",
    ),
    share(
        name="continuous_batching_memory",
        unit="share of free memory",
        phases=GENERATE,
        memory=(*training(1, GENERATE), *cache(-1, GENERATE)),
        bounds=(0.001, 0.98),
        needs={"rollout_engine": ("transformers",), "continuous_batching": (True,)},
        frameworks={"trl": native("transformers_continuous_batching_config.max_memory_percent", 0.5)},
        summary="memory free beside the model that continuous batching takes for its KV cache",
    ),
    switch(
        name="expandable_segments",
        phases=ANY,
        memory=device(-1),
        frameworks=same(_SEGMENTS, verl=_SEGMENTS),
        summary="the allocator grows segments instead of leaving gaps",
    ),
    choice(
        name="host_allocator",
        phases=ANY,
        memory=host(1),
        order=("default", "keep", "keep_huge_pages"),
        frameworks=same(_MALLOC, verl=_MALLOC),
        summary="on a CPU: freed memory goes back to the system, or is kept for the next tensor, or in huge pages",
    ),
    number(
        name="empty_cache_steps",
        unit="steps",
        phases=UPDATE,
        restart=Restart.NONE,
        memory=device(0),
        bounds=(0, 100000),
        frameworks=same(native("torch_empty_cache_steps", 0)),
        summary="the allocator gives cached memory back every so many steps; 0 never",
    ),
    number(
        name="dataloader_workers",
        unit="processes",
        phases=frozenset({"idle"}),
        restart=Restart.NONE,
        memory=host(1),
        bounds=(0, 256),
        frameworks=same(
            native("dataloader_num_workers", 0),
            ms_swift=native("dataloader_num_workers", 1),
            verl=native("data.dataloader_num_workers", 8),
        ),
        summary="processes that prepare prompts",
    ),
    number(
        name="reward_workers",
        unit="processes",
        phases=frozenset({"reward"}),
        memory=host(1),
        bounds=(1, 1024),
        frameworks={"verl": native("reward.num_workers", 8)},
        summary="processes that compute rewards",
    ),
)

"""Knobs of training with Megatron-Core instead of PyTorch's own modules: model parallelism and recomputation.

verl's settings are fields of ``McoreEngineConfig`` (``verl/workers/config/engine.py``, files in
``verl/trainer/config/engine/megatron.yaml``), ms-swift's are arguments of ``megatron rlhf`` (4.6,
``swift/megatron/arguments/megatron_args.py``, class ``MegatronArguments``). The split of a sequence is the knob
``sequence_parallel_size`` here too.
"""

from __future__ import annotations

from search_spaces.configuration import KnobValue
from search_spaces.knobs.build import (
    ALL,
    ANY,
    SYNC,
    TRAIN,
    UPDATE,
    choice,
    device,
    host,
    native,
    number,
    share,
    switch,
    training,
)
from search_spaces.knobs.model import Effect, Knob, MemoryEffect, Setting

ENGINE = "training_engine"
MEGATRON: dict[str, tuple[KnobValue, ...]] = {ENGINE: ("megatron",)}
_FULL: dict[str, tuple[KnobValue, ...]] = {**MEGATRON, "recompute_granularity": ("full",)}
_VERL = "actor_rollout_ref.actor.megatron."
_OVERRIDE = f"+{_VERL}override_transformer_config."


def _both(verl: Setting, swift: Setting) -> dict[str, Setting]:
    return {"ms_swift": swift, "verl": verl}


def _number(
    name: str,
    key: str,
    summary: str,
    *,
    swift: str = "",
    memory: tuple[MemoryEffect, ...],
    unit: str = "GPUs",
    least: int = 1,
    needs: dict[str, tuple[KnobValue, ...]] = MEGATRON,
    follows: str = "",
) -> Knob:
    """Builds a knob for an integer setting of Megatron in verl and ms-swift; its default is ``least``.

    Args:
        key: verl's key; its last part is ms-swift's key unless ``swift`` names another.
        follows: knob whose value is the default in verl, instead of ``least``.
    """
    return number(
        name=name,
        unit=unit,
        phases=TRAIN | SYNC,
        memory=memory,
        bounds=(least, 4096),
        needs=needs,
        inactive=least,
        frameworks=_both(
            native(key, None if follows else least, follows=follows), native(swift or key.rpartition(".")[2], least)
        ),
        summary=summary,
    )


def _switch(name: str, key: str, summary: str, memory: tuple[MemoryEffect, ...], *, swift: bool = True) -> Knob:
    """Builds a switch that is on by default in verl; ``swift`` is ms-swift's default."""
    return switch(
        name=name,
        phases=TRAIN,
        memory=memory,
        needs=MEGATRON,
        frameworks=_both(native(_VERL + key, True), native(key, swift)),
        summary=summary,
    )


KNOBS = (
    choice(
        name=ENGINE,
        effect=Effect.NUMERICS,
        phases=ALL,
        memory=training(0, ANY),
        order=("torch", "megatron"),
        frameworks=_both(native("model_engine", "torch"), native("megatron rlhf in place of swift rlhf", "torch")),
        summary="PyTorch's modules, shared out by FSDP, or Megatron-Core's, split over GPUs",
    ),
    _number(
        "training_tensor_parallel_size",
        _VERL + "tensor_model_parallel_size",
        "GPUs that share each matrix while training",
        memory=device(-1, TRAIN),
    ),
    _number(
        "pipeline_parallel_size",
        _VERL + "pipeline_model_parallel_size",
        "GPUs that hold layers of their own, one after another",
        # 0: the first stage keeps the activations of as many micro-batches as there are stages.
        memory=device(0, TRAIN),
    ),
    _number(
        "virtual_pipeline_size",
        _VERL + "virtual_pipeline_model_parallel_size",
        "parts of the layers that each stage has, dealt out in turn",
        unit="parts",
        memory=device(1, TRAIN),
    ),
    _number(
        "first_stage_layers",
        _OVERRIDE + "num_layers_in_first_pipeline_stage",
        "layers of the first stage; 0 shares all layers evenly",
        unit="layers",
        least=0,
        swift="decoder_first_pipeline_num_layers",
        memory=device(0, TRAIN),
    ),
    _number(
        "last_stage_layers",
        _OVERRIDE + "num_layers_in_last_pipeline_stage",
        "layers of the last stage; 0 shares all layers evenly",
        unit="layers",
        least=0,
        swift="decoder_last_pipeline_num_layers",
        memory=device(0, TRAIN),
    ),
    _number(
        "expert_parallel_size",
        _VERL + "expert_model_parallel_size",
        "GPUs that share out whole experts",
        memory=device(-1, TRAIN),
    ),
    _number(
        "expert_tensor_parallel_size",
        _VERL + "expert_tensor_parallel_size",
        "GPUs that share each expert's matrices",
        follows="training_tensor_parallel_size",
        memory=device(0, TRAIN),
    ),
    _switch(
        "megatron_sequence_parallel",
        "sequence_parallel",
        "GPUs that share a matrix share the tokens of norms and residuals too",
        device(-1, TRAIN),
        swift=False,
    ),
    _switch(
        "distributed_optimizer",
        "use_distributed_optimizer",
        "optimizer state is shared out over the data-parallel GPUs",
        device(-1, ANY),
    ),
    share(
        name="optimizer_offload_share",
        unit="share",
        phases=UPDATE,
        memory=(*device(-1), *host(1)),
        bounds=(0.0, 1.0),
        needs=MEGATRON,
        frameworks=_both(
            native("+actor_rollout_ref.actor.optim.override_optimizer_config.optimizer_offload_fraction", 0.0),
            native("optimizer_offload_fraction", 0.0),
        ),
        summary="of the optimizer state, what is kept and updated on the host (optimizer_cpu_offload)",
    ),
    choice(
        name="recompute_granularity",
        phases=UPDATE,
        memory=device(1, UPDATE),
        order=("full", "selective", "none"),
        needs=MEGATRON,
        frameworks=_both(
            native(_OVERRIDE + "recompute_granularity", "none"), native("recompute_granularity", "selective")
        ),
        summary="what the backward pass computes again: whole layers, parts of them, or nothing",
    ),
    choice(
        name="recompute_method",
        phases=UPDATE,
        memory=device(0, UPDATE),
        order=("none", "uniform", "block"),
        needs=_FULL,
        frameworks=_both(native(_OVERRIDE + "recompute_method", "none"), native("recompute_method", "none")),
        summary="uniform: inputs of groups of layers are kept; block: the first layers of a stage are computed again",
    ),
    _number(
        "recompute_layers",
        _OVERRIDE + "recompute_num_layers",
        "layers of a group (uniform), or of a stage that are computed again (block)",
        unit="layers",
        least=0,
        needs=_FULL,
        memory=device(0, UPDATE),
    ),
)

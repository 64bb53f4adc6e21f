"""Rules of the GPUs: who trains, who generates, how a model is spread."""

from __future__ import annotations

from search_spaces.batch import serving_gpus
from search_spaces.legality.case import Case, rule, rules_in

_SPLIT = ("rollout_engine", "rollout_mode", "rollout_gpus")
_SPREAD = (*_SPLIT, "training_gpus", "tensor_parallel_size", "rollout_data_parallel_size")


@rule(_SPLIT, ("rollout_gpus", "rollout_mode"))
def gpu_split(case: Case) -> str | None:
    """Requires GPUs for a rollout server, and at least one GPU left to train."""
    if not case.server:
        return None
    if not case.on_gpu:
        return "a rollout server needs a GPU to receive weights on, and this is a CPU run"
    given = case.number("rollout_gpus") or 0
    if 1 <= given < case.total_gpus:
        return None
    if given < 1:
        return "rollout_mode server needs rollout_gpus of at least 1"
    return f"rollout_gpus {given} of {case.total_gpus} GPUs leaves none for training"


@rule((*_SPLIT, "training_gpus"), ("training_gpus",))
def training_split(case: Case) -> str | None:
    """Allows ``training_gpus`` on one machine with GPUs only, up to the GPUs that a rollout server leaves."""
    asked = case.number("training_gpus")
    if asked is None:
        return None
    if not case.on_gpu or case.resources.nodes > 1:
        where = "several nodes, which all train" if case.on_gpu else "a CPU run, which has none"
        return f"training_gpus {asked} is for one machine with GPUs, and this is {where}"
    left = case.total_gpus - serving_gpus(case.values, case.resources)
    return None if asked <= left else f"training_gpus {asked}: {left} of {case.total_gpus} GPUs are left to train on"


@rule(_SPREAD, ("tensor_parallel_size",))
def tensor_parallel_world(case: Case) -> str | None:
    """Requires a colocated engine's replicas to share the training GPUs evenly."""
    if not case.colocated:
        return None
    size = case.at_least_one("tensor_parallel_size")
    if case.facts.replicas_multiply:
        size *= case.at_least_one("rollout_data_parallel_size")
    world = case.training_gpus
    if world % size == 0:
        return None
    return f"tensor_parallel_size {size} does not divide {case.ranks_in_words(world)}"


@rule(_SPREAD, ("tensor_parallel_size", "rollout_gpus"))
def server_gpus(case: Case) -> str | None:
    """Requires a rollout server's replicas to use exactly the GPUs of ``rollout_gpus``."""
    if not case.server:
        return None
    size, given = case.at_least_one("tensor_parallel_size"), case.number("rollout_gpus") or 0
    replicas = case.values.get("rollout_data_parallel_size")
    if replicas is None:
        if given % size == 0:
            return None
        return f"tensor_parallel_size {size} does not divide rollout_gpus {given}"
    if given == size * int(replicas):
        return None
    return f"tensor_parallel_size {size} × {replicas} replicas = {size * int(replicas)} is not rollout_gpus {given}"


@rule(("rollout_engine", "tensor_parallel_size"), ("tensor_parallel_size",))
def tensor_parallel_heads(case: Case) -> str | None:
    """Requires attention heads that ``tensor_parallel_size`` divides."""
    heads, size = case.resources.model.attention_heads, case.at_least_one("tensor_parallel_size")
    if not case.engine or not heads or heads % size == 0:
        return None
    return f"the model's {heads} attention heads are not divisible by tensor_parallel_size {size}"


@rule(("rollout_engine", "tensor_parallel_size"), ("tensor_parallel_size",))
def tensor_parallel_node(case: Case) -> str | None:
    """Requires a replica to fit within a node, or to use whole nodes if the framework supports it."""
    size, each = case.at_least_one("tensor_parallel_size"), max(1, case.resources.gpus)
    whole = case.facts.engine_spans_nodes and size % each == 0
    if not case.engine or case.resources.nodes == 1 or each % size == 0 or whole:
        return None
    return f"tensor_parallel_size {size} does not divide the {each} GPUs of a node"


@rule(("zero_stage", "fsdp"), ("zero_stage", "fsdp"))
def zero_or_fsdp(case: Case) -> str | None:
    """Allows DeepSpeed or FSDP2 to shard the weights, not both."""
    stage = case.number("zero_stage") or 0
    if stage == 0 or case.get("fsdp") != "fsdp2" or not case.facts.has_deepspeed:
        return None
    return f"zero_stage {stage} and fsdp fsdp2 exclude each other"


@rule(("zero_stage",), ("zero_stage",))
def deepspeed_installed(case: Case) -> str | None:
    """Requires the package DeepSpeed for ZeRO."""
    stage = case.number("zero_stage") or 0
    if stage == 0 or not case.lacks("deepspeed"):
        return None
    return f"zero_stage {stage} needs the package deepspeed in the training environment"


@rule(("zero_stage",), ("zero_stage",))
def zero_device(case: Case) -> str | None:
    """Requires a GPU for ZeRO; only TRL trials run DeepSpeed on a CPU."""
    stage = case.number("zero_stage") or 0
    if stage == 0 or case.on_gpu or not case.facts.deepspeed_needs_gpu:
        return None
    return f"zero_stage {stage} needs a GPU in {case.framework}, and this is a CPU run"


@rule(("zero_stage", "offload_optimizer", "offload_parameters"), ("offload_optimizer", "offload_parameters"))
def offload_place(case: Case) -> str | None:
    """Allows offloading from a GPU to the host; refuses nvme, because no knob names a folder."""
    wanted = [(n, case.get(n)) for n in ("offload_optimizer", "offload_parameters") if case.acts(n)]
    for name, place in wanted:
        if place == "nvme":
            return f"{name} nvme needs a folder on an NVMe disk, which no knob names; use {name} cpu"
        if place == "cpu" and not case.on_gpu:
            return f"{name} cpu moves nothing on a CPU run: everything is in the host's memory already"
    return None


@rule(("zero_stage", "zero_allgather_bucket"), ("zero_allgather_bucket",))
def even_bucket(case: Case) -> str | None:
    """Requires an even allgather bucket with ZeRO 1 and 2, where a rank's share begins at an even element."""
    size, stage = case.number("zero_allgather_bucket"), case.number("zero_stage") or 0
    if stage not in (1, 2) or size is None or size % 2 == 0:
        return None
    return f"zero_allgather_bucket {size} is odd, and DeepSpeed needs an even number of elements"


@rule(("fsdp",), ("fsdp",))
def fsdp_device(case: Case) -> str | None:
    """Requires GPUs for FSDP2."""
    if case.get("fsdp") != "fsdp2" or case.on_gpu or case.facts.trains_on_gpus_only:
        return None
    return "fsdp fsdp2 needs a GPU, and this is a CPU run"


@rule(("zero_stage", "offload_optimizer", "optimizer"), ("offload_optimizer", "optimizer"))
def offloaded_optimizer(case: Case) -> str | None:
    """Requires AdamW for an offloaded optimizer, which DeepSpeed's own Adam updates."""
    place, optimizer = case.get("offload_optimizer"), case.get("optimizer")
    stage = case.number("zero_stage") or 0
    if place in (None, "none") or stage < 2 or optimizer in (None, "adamw_torch", "adamw_torch_fused"):
        return None
    return f"offload_optimizer {place} uses DeepSpeed's own Adam and cannot take optimizer {optimizer}"


@rule(("zero_stage", "rollout_engine", "zero3_gather_for_generation"), ("zero3_gather_for_generation",))
def gathered_for_vllm(case: Case) -> str | None:
    """Requires ZeRO-3 weights to be gathered before their transfer to vLLM."""
    if not case.vllm or case.number("zero_stage") != 3 or case.get("zero3_gather_for_generation") is not False:
        return None
    return "zero3_gather_for_generation false cannot be used with rollout_engine vllm"


_SEQUENCE = ("sequence_parallel_size", "remove_padding")


@rule((*_SEQUENCE, "training_gpus", "training_engine", *_SPLIT), _SEQUENCE)
def sequence_parallel(case: Case) -> str | None:
    """Requires training GPUs that ``sequence_parallel_size`` divides."""
    size = case.at_least_one("sequence_parallel_size")
    if size == 1 or case.megatron:  # it shares them among more than these
        return None
    if case.training_gpus % size:
        return f"sequence_parallel_size {size} does not divide {case.ranks_in_words(case.training_gpus)}"
    if case.facts.packs_split_sequences and case.get("remove_padding") is False:
        return f"sequence_parallel_size {size} needs remove_padding in {case.framework}"
    return None


RULES = rules_in(globals())

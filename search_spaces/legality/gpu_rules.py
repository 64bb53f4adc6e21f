"""Rules of the GPUs: which train, which generate, and how a model is spread over them."""

from __future__ import annotations

from search_spaces.batch import serving_gpus
from search_spaces.legality.case import Case, forbid, rule

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
def tensor_parallel_node(case: Case) -> str | None:
    """Requires a replica to fit within a node, or to use whole nodes if the framework supports it."""
    size, each = case.at_least_one("tensor_parallel_size"), max(1, case.resources.gpus)
    whole = case.facts.engine_spans_nodes and size % each == 0
    if not case.engine or case.resources.nodes == 1 or each % size == 0 or whole:
        return None
    return f"tensor_parallel_size {size} does not divide the {each} GPUs of a node"


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


_SEQUENCE = ("sequence_parallel_size", "remove_padding")


@rule((*_SEQUENCE, "training_gpus", "training_engine", *_SPLIT), _SEQUENCE)
def sequence_parallel(case: Case) -> str | None:
    """Requires a number of training GPUs divisible by ``sequence_parallel_size``."""
    size = case.at_least_one("sequence_parallel_size")
    if size == 1 or case.megatron:  # it shares them among more than these
        return None
    if case.training_gpus % size:
        return f"sequence_parallel_size {size} does not divide {case.ranks_in_words(case.training_gpus)}"
    if case.facts.packs_split_sequences and case.get("remove_padding") is False:
        return f"sequence_parallel_size {size} needs remove_padding in {case.framework}"
    return None


RULES = (
    gpu_split,
    training_split,
    tensor_parallel_world,
    server_gpus,
    forbid(
        "tensor_parallel_heads: tensor_parallel_size | rollout_engine",
        lambda c: c.engine and (c.model.attention_heads or 0) % c.at_least_one("tensor_parallel_size"),
        "the model's {c.model.attention_heads} attention heads are not divisible by tensor_parallel_size "
        "{c[tensor_parallel_size]}",
    ),
    tensor_parallel_node,
    forbid(
        "zero_or_fsdp: zero_stage fsdp",
        lambda c: c["zero_stage"] and c["fsdp"] == "fsdp2" and c.facts.has_deepspeed,
        "zero_stage {c[zero_stage]} and fsdp fsdp2 exclude each other",
    ),
    forbid(
        "deepspeed_installed: zero_stage",
        lambda c: c["zero_stage"] and c.lacks("deepspeed"),
        "zero_stage {c[zero_stage]} needs the package deepspeed in the training environment",
    ),
    forbid(  # only TRL trials run DeepSpeed on a CPU
        "zero_device: zero_stage",
        lambda c: c["zero_stage"] and not c.on_gpu and c.facts.deepspeed_needs_gpu,
        "zero_stage {c[zero_stage]} needs a GPU in {c.framework}, and this is a CPU run",
    ),
    offload_place,
    forbid(  # a rank's share begins at an even element
        "even_bucket: zero_allgather_bucket | zero_stage",
        lambda c: c["zero_stage"] in (1, 2) and (c.number("zero_allgather_bucket") or 0) % 2,
        "zero_allgather_bucket {c[zero_allgather_bucket]} is odd, and DeepSpeed needs an even number of elements",
    ),
    forbid(
        "fsdp_device: fsdp",
        lambda c: c["fsdp"] == "fsdp2" and not c.on_gpu and not c.facts.trains_on_gpus_only,
        "fsdp fsdp2 needs a GPU, and this is a CPU run",
    ),
    forbid(
        "offloaded_optimizer: offload_optimizer optimizer | zero_stage",
        lambda c: (
            c["offload_optimizer"] not in (None, "none")
            and (c.number("zero_stage") or 0) >= 2
            and c["optimizer"] not in (None, "adamw_torch", "adamw_torch_fused")
        ),
        "offload_optimizer {c[offload_optimizer]} uses DeepSpeed's own Adam and cannot take optimizer {c[optimizer]}",
    ),
    forbid(
        "gathered_for_vllm: zero3_gather_for_generation | zero_stage rollout_engine",
        lambda c: c.vllm and c["zero_stage"] == 3 and c["zero3_gather_for_generation"] is False,
        "zero3_gather_for_generation false cannot be used with rollout_engine vllm",
    ),
    sequence_parallel,
)

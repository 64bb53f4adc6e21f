"""Our knobs in the keys of an Open-R1 recipe. Pure; ``key_values`` is the way back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import show
from search_spaces.legality.openr1_rules import FRAMEWORK, SERVER_OPTIONS
from search_spaces.native import acting as acting_in
from trainer.frameworks.common.values import other_engine
from trainer.frameworks.open_r1.key_tables import CHECKPOINTING, DTYPES, NATIVE, PRECISIONS, SUPPORTED

_OF_SERVER = frozenset(SERVER_OPTIONS) - {"gpu_memory_utilization"}


def acting(configuration: Mapping[str, KnobValue]) -> dict[str, KnobValue]:
    """The knobs that act: those whose needs hold, a knob that is not set having TRL 0.18's default."""
    return acting_in(configuration, FRAMEWORK)


def wants_server(configuration: Mapping[str, KnobValue]) -> bool:
    """Completions come from a server beside the training processes: where vLLM is used, TRL 0.18's own choice."""
    return configuration.get("rollout_engine") == "vllm" and configuration.get("rollout_mode", "server") == "server"


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """A sentence for each knob or value an Open-R1 trial cannot set; empty if it can be run.

    Resting knobs are no matter. A knob that Open-R1 has no key for may be set to what it does on its own.
    """
    acts, server = acting(configuration), wants_server(configuration)
    beyond = [n for n in sorted(acts) if n not in SUPPORTED or (n in _OF_SERVER and not server)]
    said = [
        f"an Open-R1 trial cannot set {name}"
        for name in beyond
        if name not in KNOBS or acts[name] != _own(name, configuration)
    ]
    if other := other_engine(acts, FRAMEWORK, "Open-R1"):
        said.append(other)
    precision, master = acts.get("precision", "fp32"), acts.get("master_weights", "fp32")
    if precision not in PRECISIONS:
        said.append(f"precision {precision}: an Open-R1 trial computes in {', '.join(PRECISIONS)}")
    elif master not in DTYPES:
        said.append(f"master_weights {master}: an Open-R1 trial holds weights in {' or '.join(DTYPES)}")
    elif master == "bf16" and precision != "bf16":
        said.append(f"precision {precision} with master_weights bf16: weights would be rounded below what is computed")
    said += [
        f"{name} nvme: an Open-R1 trial offloads to cpu"
        for name in ("offload_optimizer", "offload_parameters")
        if acts.get(name) == "nvme"
    ]
    if acts.get("optimizer") == "muon":
        said.append("optimizer muon: TRL 0.18 has no such optimizer")
    if acts.get("reduce_precision", "fp32") != "fp32" and not acts.get("zero_stage"):
        said.append(f"reduce_precision {show(acts['reduce_precision'])}: only DeepSpeed has it, and zero_stage is 0")
    return said


def _own(name: str, configuration: Mapping[str, KnobValue]) -> KnobValue | None:
    """What Open-R1 does about ``name`` on its own; ``None`` if that is not known."""
    setting = KNOBS[name].frameworks.get(FRAMEWORK)
    if setting is None:
        return None
    return configuration.get(setting.follows) if setting.follows else setting.default


def to_keys(configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Recipe keys of every knob that is set and acts; DeepSpeed's are in the accelerate file, the server's its own.

    Raises:
        ValueError: a knob or value Open-R1 cannot be given (``unsupported``).
    """
    refused = unsupported(configuration)
    if refused:
        raise ValueError("; ".join(refused))
    acts = acting(configuration)
    left_out = {"gpu_memory_utilization", "tensor_parallel_size"} if wants_server(configuration) else set()
    found: dict[str, Any] = {key: acts[knob] for knob, key in NATIVE.items() if knob in acts and knob not in left_out}
    if "empty_cache_steps" in acts:
        found["torch_empty_cache_steps"] = acts["empty_cache_steps"] or None  # 0 is refused
    if "precision" in acts:
        found["bf16"] = acts["precision"] == "bf16"
        found["fp16"] = acts["precision"] == "fp16"
    if "master_weights" in acts:
        found["torch_dtype"] = DTYPES[str(acts["master_weights"])]
    if "checkpointing_reentrant" in acts:
        key, inner = CHECKPOINTING
        found[key] = {inner: acts["checkpointing_reentrant"]}
    if "rollout_engine" in acts:
        found["use_vllm"] = acts["rollout_engine"] == "vllm"
    return found

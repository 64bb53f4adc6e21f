"""Keys that frameworks on transformers' ``Trainer`` share, and values of them that no trial can have. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from trainer.frameworks.common.values import other_engine

DTYPES: Mapping[str, str] = {"fp32": "float32", "bf16": "bfloat16"}
"""``master_weights`` -> torch's name."""


def unsettable(
    acts: Mapping[str, KnobValue], framework: str, title: str, trial: str, precisions: tuple[str, ...]
) -> list[str]:
    """A sentence for each value among ``acts`` that no trial can set.

    Args:
        title: what messages call the framework.
        trial: what they call one of its trials.
        precisions: it computes in.
    """
    unset = defaults(framework)
    precision, master = (acts.get(name, unset[name]) for name in ("precision", "master_weights"))
    said = [sentence for sentence in (other_engine(acts, framework, title),) if sentence]
    if precision not in precisions:
        said.append(f"precision {precision}: {trial} computes in {', '.join(precisions)}")
    if master not in DTYPES:
        said.append(f"master_weights {master}: {trial} holds weights in {' or '.join(DTYPES)}")
    elif master == "bf16" and precision not in ("bf16", "fp8"):
        said.append(f"precision {precision} with master_weights bf16: weights would be rounded below what is computed")
    for name in ("offload_optimizer", "offload_parameters"):
        if acts.get(name) == "nvme":
            said.append(f"{name} nvme: {trial} offloads to cpu")
    if acts.get("reduce_precision", "fp32") != "fp32" and not acts.get("zero_stage"):
        said.append(f"reduce_precision {show(acts['reduce_precision'])}: only DeepSpeed has it, and zero_stage is 0")
    return said


def in_keys(acts: Mapping[str, KnobValue], native: Mapping[str, str]) -> dict[str, Any]:
    """Keys that transformers' trainers have under one name: those of ``native``, and the precision's switches."""
    found: dict[str, Any] = {key: acts[knob] for knob, key in native.items() if knob in acts}
    if "empty_cache_steps" in acts:
        found["torch_empty_cache_steps"] = acts["empty_cache_steps"] or None  # 0 is refused
    if "precision" in acts:
        found["bf16"] = acts["precision"] in ("bf16", "fp8")  # around FP8's matrix products, as torchao's recipe has it
        found["fp16"] = acts["precision"] == "fp16"
    if "rollout_engine" in acts:
        found["use_vllm"] = acts["rollout_engine"] == "vllm"
    return found


def refuse(sentences: list[str]) -> None:
    """Raises ``ValueError`` with all ``sentences``, where there are any."""
    if sentences:
        raise ValueError("; ".join(sentences))

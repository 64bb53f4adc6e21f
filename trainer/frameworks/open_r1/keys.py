"""Our knobs in the keys of an Open-R1 recipe. Pure; ``key_values`` is the way back."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from search_spaces.legality.openr1_rules import FRAMEWORK, SERVER_OPTIONS
from search_spaces.native import acting as acting_in
from trainer.frameworks.common.trainer_keys import DTYPES, in_keys, refuse, unsettable
from trainer.frameworks.open_r1.key_tables import CHECKPOINTING, NATIVE, PRECISIONS, SUPPORTED

acting = partial(acting_in, framework=FRAMEWORK)
"""The knobs that act: those whose needs hold, a knob that is not set having TRL 0.18's default."""
_OF_SERVER = frozenset(SERVER_OPTIONS) - {"gpu_memory_utilization"}


def wants_server(configuration: Mapping[str, KnobValue]) -> bool:
    """Tells whether completions come from a server next to the training; that is TRL 0.18's default with vLLM."""
    return configuration.get("rollout_engine") == "vllm" and configuration.get("rollout_mode", "server") == "server"


def unsupported(configuration: Mapping[str, KnobValue]) -> list[str]:
    """Returns a sentence for each knob or value that an Open-R1 trial cannot set; empty if a trial can run.

    Knobs without an effect are ignored. A knob without a key in Open-R1 may be set to Open-R1's own value.
    """
    acts, server = acting(configuration), wants_server(configuration)
    beyond = [n for n in sorted(acts) if n not in SUPPORTED or (n in _OF_SERVER and not server)]
    said = [
        f"an Open-R1 trial cannot set {name}"
        for name in beyond
        if name not in KNOBS or acts[name] != _own(name, configuration)
    ]
    said += unsettable(acts, FRAMEWORK, "Open-R1", "an Open-R1 trial", PRECISIONS)
    if acts.get("optimizer") == "muon":
        said.append("optimizer muon: TRL 0.18 has no such optimizer")
    return said


def _own(name: str, configuration: Mapping[str, KnobValue]) -> KnobValue | None:
    """Returns Open-R1's default for ``name``; ``None`` if unknown."""
    setting = KNOBS[name].frameworks.get(FRAMEWORK)
    if setting is None:
        return None
    return configuration.get(setting.follows) if setting.follows else setting.default


def to_keys(configuration: Mapping[str, KnobValue]) -> dict[str, Any]:
    """Returns recipe keys of every knob with an effect; DeepSpeed's are in the accelerate file, the server's on its own
    command.

    Raises ValueError for a knob or value that Open-R1 cannot take (``unsupported``).
    """
    refuse(unsupported(configuration))
    acts = acting(configuration)
    left_out = {"gpu_memory_utilization", "tensor_parallel_size"} if wants_server(configuration) else set()
    found = in_keys(acts, {knob: key for knob, key in NATIVE.items() if knob not in left_out})
    if "master_weights" in acts:
        found["torch_dtype"] = DTYPES[str(acts["master_weights"])]
    if "checkpointing_reentrant" in acts:
        key, inner = CHECKPOINTING
        found[key] = {inner: acts["checkpointing_reentrant"]}
    return found

"""The two values everything else is about: a configuration, and the machine share it runs on."""

from __future__ import annotations

import json
from collections.abc import ItemsView, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar, overload

KnobValue = bool | int | float | str
T = TypeVar("T")

_CANONICAL = json.JSONEncoder(separators=(",", ":"))


class Configuration(Mapping[str, KnobValue]):
    """One value for every knob that is set; immutable, hashable, ordered by knob name."""

    __slots__ = ("_hash", "_key", "_values")

    def __init__(self, values: Mapping[str, KnobValue]) -> None:
        self._values: Mapping[str, KnobValue] = MappingProxyType(dict(sorted(values.items())))
        self._key: str | None = None
        self._hash: int | None = None

    def __getitem__(self, name: str) -> KnobValue:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @overload
    def get(self, name: str, /) -> KnobValue | None: ...
    @overload
    def get(self, name: str, /, default: KnobValue | T) -> KnobValue | T: ...
    def get(self, name: str, /, default: object = None) -> object:
        """As of any mapping, without a call of ``__getitem__``: forecasts ask for hundreds of thousands of values."""
        return self._values.get(name, default)

    def items(self) -> ItemsView[str, KnobValue]:
        """As ``Mapping.items``, without a call of ``__getitem__`` for each: thousands are read at a time."""
        return self._values.items()

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(tuple(self._values.values()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.key == other.key

    def __repr__(self) -> str:
        return "Configuration(" + ", ".join(f"{k}={v!r}" for k, v in self._values.items()) + ")"

    @property
    def key(self) -> str:
        """Canonical JSON: equal configurations have equal keys, whatever order they were given in."""
        if self._key is None:
            self._key = _CANONICAL.encode(dict(self._values))
        return self._key

    def with_(self, **changes: KnobValue) -> Configuration:
        """A copy with some knobs set to other values."""
        return Configuration({**self._values, **changes})

    def difference(self, other: Configuration) -> dict[str, tuple[KnobValue | None, KnobValue | None]]:
        """Knobs whose value differs: name -> (here, there); ``None`` where a side does not set it."""
        names = sorted(set(self) | set(other))
        return {n: (self.get(n), other.get(n)) for n in names if self.get(n) != other.get(n)}


def column(name: str, configurations: Iterable[Configuration], unset: T) -> list[KnobValue | T]:
    """Value of ``name`` in each configuration, or ``unset``; of tens of thousands in a third of the time of ``get``."""
    return [c._values.get(name, unset) for c in configurations]


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a model for legality and the memory formulas; ``None`` = not known."""

    parameters: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    attention_heads: int | None = None
    key_value_heads: int | None = None
    vocabulary: int | None = None
    max_positions: int | None = None
    head_size: int | None = None
    """Of the attention; where it is not known, the width over the heads, which most models have."""
    experts: int | None = None
    """Of a layer that chooses from them; 0 of a model without."""
    expert_parameters: int | None = None
    """Of all experts together."""
    chosen_experts: int | None = None
    """That a token goes to in a layer."""

    @property
    def head(self) -> int | None:
        """``head_size``, as far as it is known or follows."""
        if self.head_size or not (self.hidden_size and self.attention_heads):
            return self.head_size
        return self.hidden_size // self.attention_heads


COMPILER, NOT_THERE = "c++", ""
"""In ``Resources.software`` where the machine is known to have no C++ compiler; nothing is said where it has one."""


@dataclass(frozen=True)
class Resources:
    """Resources of a trial, and the fixed facts that legality depends on.

    ``gpus`` counts every GPU held, rollout GPUs included; 0 means a CPU run.
    ``training_processes`` is W of the batch algebra when no knob splits the GPUs.
    """

    gpus: int = 0
    """Of each node."""
    nodes: int = 1
    cpu_cores: int = 1
    device: str = "cpu"
    device_memory: int | None = None
    """Bytes of one GPU."""
    host_memory: int | None = None
    compute_capability: tuple[int, int] | None = None
    framework: str = "trl"
    rows_per_update: int | None = None
    """Rows per optimizer update fixed by the baseline; ``None`` leaves it free (before a baseline)."""
    num_generations: int | None = None
    """The baseline's group size."""
    max_prompt_length: int | None = None
    max_completion_length: int | None = None
    model: ModelFacts = field(default_factory=ModelFacts)
    software: Mapping[str, str] = field(default_factory=dict)
    """Package -> version in the training interpreter; empty means not known, so nothing is ruled out."""
    allow_learning: bool = True
    """Learning knobs may leave the baseline's values where the space frees them."""
    cpu_ranks: int = 1
    """Processes that train on a node's CPU, over gloo; on GPUs every GPU trains, and this says nothing."""
    per_micro_batch: str = ""
    """What of the user's objective is averaged over each micro-batch (``objective.per_micro_batch``)."""
    quantized: str = ""
    """What the trained model is loaded in, ``4 bit`` or ``8 bit`` (``objective.quantized``); empty: as it is."""
    not_guessed: str = ""
    """What of the user's own keys excludes speculative decoding (``objective.not_guessed``)."""

    def __hash__(self) -> int:
        # The packages are a mapping, which cannot be hashed; they are still compared.
        return hash((self.gpus, self.nodes, self.device, self.framework, self.rows_per_update, self.model))

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes."""
        return self.gpus * self.nodes

    @property
    def training_processes(self) -> int:
        """Ranks that train when every GPU trains; ``cpu_ranks`` of each node on CPUs."""
        return max(1, self.nodes * (self.gpus or self.cpu_ranks))

    def as_json(self) -> dict[str, Any]:
        """Plain data. What says nothing is not mentioned: studies stored before it was there keep their digest."""
        value: dict[str, Any] = json.loads(json.dumps({**asdict(self), "software": dict(self.software)}))
        if self.cpu_ranks == 1:
            del value["cpu_ranks"]
        for name in ("per_micro_batch", "quantized", "not_guessed"):
            if not value[name]:
                del value[name]
        for name in ("head_size", "experts", "expert_parameters", "chosen_experts"):
            if value["model"][name] is None:
                del value["model"][name]
        return value

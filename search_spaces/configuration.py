"""The configuration of a trial, and the resources of the machine it runs on."""

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
    """Values of all knobs that are set; immutable, hashable, ordered by knob name."""

    __slots__ = ("_hash", "_key", "_values")

    def __init__(self, values: Mapping[str, KnobValue]) -> None:
        self._values: Mapping[str, KnobValue] = MappingProxyType(dict(sorted(values.items())))
        self._key: str | None = None
        self._hash: int | None = None

    @classmethod
    def __get_pydantic_core_schema__(cls, _: Any, handler: Any) -> Any:
        """Returns the pydantic schema, by which a JSON object of knobs and values is decoded."""
        from pydantic_core.core_schema import no_info_after_validator_function

        return no_info_after_validator_function(cls, handler.generate_schema(dict[str, KnobValue]))

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
        """Returns the value of a knob; for speed in forecasts, without calling ``__getitem__``."""
        return self._values.get(name, default)

    def items(self) -> ItemsView[str, KnobValue]:
        """Returns all knobs and values; for speed, without calling ``__getitem__`` for each."""
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
        """Canonical JSON: equal configurations have equal keys, regardless of the order of their knobs."""
        if self._key is None:
            self._key = _CANONICAL.encode(dict(self._values))
        return self._key

    def with_(self, **changes: KnobValue) -> Configuration:
        """Returns a copy with ``changes`` applied."""
        return Configuration({**self._values, **changes})

    def difference(self, other: Configuration) -> dict[str, tuple[KnobValue | None, KnobValue | None]]:
        """Returns the knobs whose value differs: name -> (own value, other value); ``None`` for a knob not set."""
        names = sorted(set(self) | set(other))
        return {n: (self.get(n), other.get(n)) for n in names if self.get(n) != other.get(n)}


def column(name: str, configurations: Iterable[Configuration], unset: T) -> list[KnobValue | T]:
    """Returns the value of knob ``name`` in each configuration, or ``unset``; three times as fast as ``get``."""
    return [c._values.get(name, unset) for c in configurations]


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a model for legality and the memory formulas; ``None`` means unknown."""

    parameters: int | None = None
    layers: int | None = None
    hidden_size: int | None = None
    attention_heads: int | None = None
    key_value_heads: int | None = None
    vocabulary: int | None = None
    max_positions: int | None = None
    head_size: int | None = None
    """Size of an attention head; if unknown, ``head`` divides the hidden size by the number of heads."""
    experts: int | None = None
    """Experts of a mixture-of-experts layer; 0 for a dense model."""
    expert_parameters: int | None = None
    """Parameters of all experts together."""
    chosen_experts: int | None = None
    """Experts of a layer that are active for one token."""

    @property
    def head(self) -> int | None:
        """``head_size``, or the hidden size divided by the attention heads; ``None`` if both are unknown."""
        if self.head_size or not (self.hidden_size and self.attention_heads):
            return self.head_size
        return self.hidden_size // self.attention_heads


COMPILER, NOT_THERE = "c++", ""
"""Entry (key, value) of ``Resources.software`` that means that the machine has no C++ compiler."""


@dataclass(frozen=True)
class Resources:
    """Resources of a trial, and the fixed facts that legality depends on.

    ``gpus`` counts every GPU of a node, including those of rollouts; 0 means a CPU run.
    ``training_processes`` is the number of ranks if no knob splits the GPUs.
    """

    gpus: int = 0
    """GPUs of each node."""
    nodes: int = 1
    cpu_cores: int = 1
    device: str = "cpu"
    device_memory: int | None = None
    """Memory of one GPU, in bytes."""
    host_memory: int | None = None
    compute_capability: tuple[int, int] | None = None
    framework: str = "trl"
    rows_per_update: int | None = None
    """Completions per optimizer update of the baseline; ``None`` if any number is allowed."""
    num_generations: int | None = None
    """The baseline's group size."""
    max_prompt_length: int | None = None
    max_completion_length: int | None = None
    model: ModelFacts = field(default_factory=ModelFacts)
    software: Mapping[str, str] = field(default_factory=dict)
    """Package -> version in the training interpreter; empty if unknown, and then no configuration is ruled out."""
    allow_learning: bool = True
    """Learning knobs may leave the baseline's values if the space lists them."""
    cpu_ranks: int = 1
    """Training processes on a node's CPU, over gloo; ignored on GPUs, where every GPU trains."""
    per_micro_batch: str = ""
    """Term of the user's objective that is averaged over each micro-batch (``own_keys.per_micro_batch``)."""
    quantized: str = ""
    """Quantization of the trained model, ``4 bit`` or ``8 bit`` (``own_keys.quantized``); empty for none."""
    not_guessed: str = ""
    """The user's key that excludes speculative decoding (``own_keys.not_guessed``); empty for none."""

    def __hash__(self) -> int:
        # The packages are a mapping, which cannot be hashed; they are still compared.
        return hash((self.gpus, self.nodes, self.device, self.framework, self.rows_per_update, self.model))

    @property
    def total_gpus(self) -> int:
        """GPUs of all nodes."""
        return self.gpus * self.nodes

    @property
    def training_processes(self) -> int:
        """Number of ranks if every GPU trains; on CPUs, ``cpu_ranks`` per node."""
        return max(1, self.nodes * (self.gpus or self.cpu_ranks))

    def as_json(self) -> dict[str, Any]:
        """Returns plain data."""
        return json.loads(json.dumps({**asdict(self), "software": dict(self.software)}))  # type: ignore[no-any-return]

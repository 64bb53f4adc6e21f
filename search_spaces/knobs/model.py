"""The ``Knob`` class: values, effects and settings of a knob."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Literal

from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError


class Effect(StrEnum):
    """Effect of a knob on the training run, weakest first."""

    SPEED = "speed"
    """Time and memory only; the same expected gradient."""
    NUMERICS = "numerics"
    """The same objective, rounded differently."""
    LEARNING = "learning"
    """Changes the algorithm."""

    @property
    def rank(self) -> int:
        return _RANKS[self]


_RANKS = {effect: rank for rank, effect in enumerate(Effect)}


class Restart(IntEnum):
    """Part that must restart if a knob changes between two trials in one process; ascending in cost."""

    NONE = 0
    """Nothing but the trainer, which is rebuilt for every trial."""
    ENGINE = 1
    """The colocated rollout engine."""
    PROCESS = 2
    """The process: the knob decides imports, patches, a process-wide switch, a variable that is read once, or
    the number of processes."""


class Reach(StrEnum):
    """How a knob is set in a framework."""

    NATIVE = "native"
    """The framework has a setting."""
    SEAM = "seam"
    """Set by monkeypatching a constant or a call of the framework."""
    ENVIRONMENT = "environment"
    """The process is started with a variable that a library below the framework reads."""


class Kind(StrEnum):
    """Type of a knob's values."""

    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    CHOICE = "choice"


@dataclass(frozen=True)
class Setting:
    """Key, reach and default of a knob in one framework."""

    key: str
    """The framework's own key, the name that a seam monkeypatches, or the environment variable."""
    reach: Reach
    default: KnobValue | None = None
    """Default value; ``None`` if it depends on other settings."""
    follows: str = ""
    """Knob whose value is the default of this knob."""
    by_seam: tuple[KnobValue, ...] = ()
    """Values that only a seam can set."""


@dataclass(frozen=True)
class MemoryEffect:
    """Effect of a knob on the memory that a configuration needs in one pool.

    ``direction`` +1: a larger number (False < True), or a value later in ``Knob.order``, needs at least as much; -1: at
    most as much; 0: not monotonic, so two configurations can only be compared if they agree on the knob. A knob without
    an entry for a pool does not change the pool.
    """

    pool: str
    """``device``, ``host`` or ``rollout_cache``."""
    phases: frozenset[str]
    """Phases with the effect; empty means any phase."""
    direction: Literal[-1, 0, 1]


TIMED = ("generate", "logprob", "update", "sync")
"""Phases affected by a knob without phases of its own, such as an allocator's."""


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A setting that can be searched."""

    name: str
    kind: Kind
    effect: Effect
    """The strongest effect a change can have; ``effect_between`` is exact."""
    phases: frozenset[str]
    """Phases whose time the knob changes."""
    restart: Restart = Restart.PROCESS
    memory: tuple[MemoryEffect, ...] = ()
    frameworks: dict[str, Setting]
    summary: str
    unit: str = ""
    """Unit of a number; empty for switches and choices."""
    order: tuple[KnobValue, ...] = ()
    """Known values of a choice, ascending in memory where ``memory`` gives a direction."""
    others: tuple[KnobValue, ...] = ()
    """Known values of a choice that are not in ``order``."""
    bounds: tuple[float | None, float | None] = (None, None)
    """Least and largest number."""
    words: tuple[str, ...] = ()
    """Words that a space file may use instead of a number."""
    open: bool = False
    """True if a choice may have other values than the known ones."""
    derived: bool = False
    """True if a search computes the value from other knobs; a space cannot list the knob."""
    needs: Mapping[str, tuple[KnobValue, ...]] = field(default_factory=dict)
    """The knob has an effect only if each of these knobs has one of these values."""
    inactive: KnobValue | None = None
    """Value written if the knob has no effect and the framework has no default."""
    without_gpu: KnobValue | None = None
    """Value of an unset knob on a CPU, set by our launcher; ``None``: the framework's default."""
    moves_lengths: bool = False
    """True if the knob changes completion lengths: each value has its own recorded lengths."""
    alike: tuple[tuple[Effect, frozenset[KnobValue]], ...] = ()
    """Sets of values; a change within one set has a milder effect than ``effect``."""

    def acts_on(self, phase: str) -> bool:
        """Tells whether the knob changes the time of ``phase``; without phases, every knob that changes memory does."""
        return phase in self.phases or (not self.phases and bool(self.memory) and phase in TIMED)

    def effect_between(self, before: KnobValue | None, after: KnobValue | None) -> Effect:
        """Returns the effect of changing this knob from one value to the other; ``None`` is an unknown value."""
        if before == after:
            return Effect.SPEED
        milder = [e for e, values in self.alike if before in values and after in values]
        return min([self.effect, *milder], key=lambda e: e.rank)

    def unset_value(self, framework: str, device: str = "cuda") -> KnobValue | None:
        """Returns the value that an unset knob has; ``None`` without a setting, or if it depends on other knobs."""
        setting = self.frameworks.get(framework)
        if setting is None:
            return None
        ours = device == "cpu" and setting.reach is Reach.SEAM
        return self.without_gpu if ours and self.without_gpu is not None else setting.default

    def inactive_value(self, framework: str, device: str = "cuda") -> KnobValue | None:
        """Returns the value of the knob where it has no effect; ``None`` only for knobs that always have one."""
        unset = self.unset_value(framework, device)
        return self.inactive if unset is None else unset

    def parse(self, value: object) -> KnobValue:
        """Returns ``value`` converted to the type of this knob.

        Raises:
            SpaceError: wrong type or outside the domain; the message says what was expected.
        """
        parsed = self._typed(value)
        if parsed is None:
            raise SpaceError(f"expected {self.expected}, got {show(value)}")
        if isinstance(parsed, int | float) and not isinstance(parsed, bool) and not self._within(parsed):
            raise SpaceError(f"expected {self.expected}, got {show(value)}")
        return parsed

    @property
    def choices(self) -> tuple[KnobValue, ...]:
        """Every known value of a choice: ``order`` and ``others``."""
        return self.order + self.others

    @property
    def expected(self) -> str:
        """The domain in words."""
        if self.kind is Kind.BOOL:
            return "true or false"
        if self.kind is Kind.CHOICE:
            others = ", or another name" if self.open else ""
            return "one of " + ", ".join(str(v) for v in self.choices) + others
        noun = "a whole number" if self.kind is Kind.INT else "a number"
        low, high = self.bounds
        bounds = f" of at least {low:g}" if low is not None else ""
        if low is not None and high is not None:
            bounds = f" from {low:g} to {high:.12g}"
        return noun + bounds + "".join(f" or the word {w}" for w in self.words)

    def _within(self, number: float) -> bool:
        low, high = self.bounds
        return (low is None or number >= low) and (high is None or number <= high)

    def _typed(self, value: object) -> KnobValue | None:
        if self.kind is Kind.BOOL:
            return value if isinstance(value, bool) else None
        if self.kind is Kind.CHOICE:
            if not isinstance(value, str) or not value:
                return None
            return value if value in self.choices or self.open else None
        if isinstance(value, str) and value in self.words:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if self.kind is Kind.INT:
            return value if isinstance(value, int) else None
        return float(value) if abs(value) < 1e300 else None


def show(value: object) -> str:
    """Formats a value as users write it, in at most 60 characters."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10**40:
        return "a number of more than 40 digits"
    text = value if isinstance(value, str) else str(value)
    text = "".join(c if c.isprintable() else "?" for c in text[:61])
    return (text if len(text) <= 60 else text[:57] + "...") or "an empty text"


LONGEST = 20
"""Most digits of an integer; Python refuses to convert thousands of digits."""


def whole_number(text: str) -> int | None:
    """Parses a decimal integer; ``None`` for any other text or too many digits."""
    digits = text.lstrip("0") or text[-1:]
    return int(digits) if text.isdecimal() and len(digits) <= LONGEST else None

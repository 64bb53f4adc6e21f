"""Gain of one knob, measured by trials that differ from a configuration in that knob alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from autotune.domain import Configuration, Trial
from autotune.domain.differences import DERIVED, STEPS, chosen_differences
from autotune.insights.ranking import ranked, speed
from autotune.wording.numbers import signed_percent
from autotune.wording.text import knob_value
from search_spaces.configuration import KnobValue


@dataclass(frozen=True)
class Neighbour:
    """A measured trial whose configuration differs in one knob."""

    trial: int
    knob: str
    there: KnobValue | None
    """The neighbour's value; ``None`` if it does not set the knob."""
    here: KnobValue | None
    gain: float | None
    """Tokens/hour here over there, minus 1; ``None`` if the configuration itself was not measured."""

    def sentence(self) -> str:
        """``micro_batch_size 4 -> 8: +12.3 % (trial 3)``."""
        change = f"{self.knob} {_shown(self.there)} -> {_shown(self.here)}"
        gave = "not measured" if self.gain is None else signed_percent(self.gain)
        return f"{change}: {gave} (trial {self.trial})"


def neighbours(trials: Iterable[Trial], configuration: Configuration) -> tuple[Neighbour, ...]:
    """The measured neighbours of ``configuration``: largest gain first, then by trial.

    Knobs that follow from others (the accumulation follows the micro-batch) do not count as a difference.
    """
    measured = ranked(trials)
    own = next((speed(t) for t in measured if t.configuration == configuration), None)
    found = [n for t in measured if (n := _neighbour(t, configuration, own)) is not None]
    return tuple(sorted(found, key=lambda n: (-(n.gain or 0.0), n.trial)))


def closest(trials: Iterable[Trial], configuration: Configuration) -> Trial | None:
    """The measured trial that differs in the fewest knobs; of equals the fastest. ``None`` if none was measured."""
    return min(ranked(trials), key=lambda t: len(chosen_differences(t.configuration, configuration)), default=None)


def _neighbour(trial: Trial, configuration: Configuration, own: float | None) -> Neighbour | None:
    if _far(trial.configuration, configuration):
        return None
    changed = chosen_differences(trial.configuration, configuration)
    if len(changed) != 1:
        return None
    ((knob, (there, here)),) = changed.items()
    return Neighbour(trial.number, knob, there, here, None if own is None else own / speed(trial) - 1.0)


def _far(there: Configuration, here: Configuration) -> bool:
    """Whether at least two knobs set in ``there`` differ from ``here``; excludes most of a large study cheaply."""
    count = 0
    for name, value in there.items():
        if name not in DERIVED and name != STEPS and here.get(name) != value:
            count += 1
            if count > 1:
                return True
    return False


def _shown(value: KnobValue | None) -> str:
    return "unset" if value is None else knob_value(value)

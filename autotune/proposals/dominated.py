"""What the failures of a study rule out together. Pure, but for what is kept so that it is worked out once."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping

from autotune.domain import Configuration, Outcome, Trial, TrialState
from autotune.proposals import dominance
from autotune.proposals.dominance import Region, covers
from autotune.statistics import retries
from search_spaces.knobs import Knob


class Memory:
    """What was worked out before, so that a long history is not gone through anew for each proposal; no answer
    depends on it."""

    def __init__(self) -> None:
        self._regions: dict[tuple[int, str, Outcome | None], Region | None] = {}
        self._presumed: dict[Region, Region | None] = {}
        self._met: dict[str, Configuration] = {}
        self._order: list[str] = []
        self._covered: dict[Region, tuple[int, list[str]]] = {}

    def region(self, trial: Trial, knobs: Mapping[str, Knob], *, one_memory: bool) -> Region | None:
        """``dominance.region`` of a failed trial; ``one_memory`` is always the same."""
        if trial.state is not TrialState.FAIL:
            return None
        key = (trial.number, trial.configuration.key, trial.outcome)
        if key not in self._regions:
            self._regions[key] = dominance.region(trial, knobs, one_memory=one_memory)
        return self._regions[key]

    def presumed(self, region: Region) -> Region | None:
        """``dominance.presumed``."""
        if region not in self._presumed:
            self._presumed[region] = dominance.presumed(region)
        return self._presumed[region]

    def meet(self, by_key: Mapping[str, Configuration]) -> None:
        """Configurations by their keys that ``covers_any`` will be asked about."""
        new = [key for key in by_key if key not in self._met]
        self._order += new
        self._met.update((key, by_key[key]) for key in new)

    def covers_any(self, region: Region, keys: Container[str], knobs: Mapping[str, Knob]) -> bool:
        """Whether ``region`` covers one of ``keys``, which have all been met."""
        looked_at, covered = self._covered.get(region, (0, []))
        if looked_at < len(self._order):
            new = self._order[looked_at:]
            covered = [*covered, *(key for key in new if covers(region, self._met[key], knobs))]
            self._covered[region] = len(self._order), covered
        return any(key in keys for key in covered)


def regions(
    trials: Iterable[Trial], knobs: Mapping[str, Knob], *, one_memory: bool, memory: Memory | None = None
) -> tuple[Region, ...]:
    """The regions ruled out by ``trials``, by trial number.

    Only failures of a fresh worker count: a warm one may have failed for what ran before. A later retry that
    passed inside a region shows that the memory is there now, so the region is dropped.

    Args:
        trials: of one study, in any order.
        knobs: the catalogue.
        one_memory: device and host memory are the same (a CPU run).
        memory: of whoever asks again and again, with the same ``knobs`` and ``one_memory``.
    """
    memory = memory or Memory()
    ordered = sorted(trials, key=lambda t: t.number)
    found = [r for trial in ordered if (r := memory.region(trial, knobs, one_memory=one_memory)) is not None]
    passed = [t for t in ordered if retries.is_retry(t) and t.feasible]
    known = [r for r in found if not any(t.number > r.trial and covers(r, t.configuration, knobs) for t in passed)]
    presumed = [p for r in known if (p := memory.presumed(r)) is not None]
    fitting = {t.configuration.key: t.configuration for t in ordered if t.fits}
    memory.meet(fitting)
    return (*known, *(p for p in presumed if not memory.covers_any(p, fitting, knobs)))

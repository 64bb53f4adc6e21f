"""The worlds that an interval is judged in: how a cycle's time scatters, who disturbs it, and what the guard reads."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.intervals.recordings import CYCLES, Array, Recording, pool_of, recordings
from benchmarks.intervals.sight import sight

SLOWEST, LONGEST = 0.6, 10
"""A burst slows by a twentieth to ``SLOWEST``, and lasts one to ``LONGEST`` cycles, short ones being more frequent."""
UNSEEN, SMALL = 0.1, 0.1
"""Share of bursts that the guard does not see; these slow by at most ``SMALL``."""
MODE, OUTLIER = 0.06, 3.0
FIRST = (1.05, 1.25)
"""Times as long as others the first recorded cycle takes: of what is searched, and of the baseline."""
RELAXATION_S = 100.0
"""After so long a drift has forgotten 63 % of where it was."""


@dataclass(frozen=True)
class Noise:
    """One world. Spreads are standard deviations of natural logarithms."""

    about: str
    on_gpu: bool = False
    processes: float = 0.02
    cycles: float = 0.015
    drift: float = 0.0
    """Of the machine, which moves slowly."""
    bimodal: bool = False
    """A process is faster or slower by ``MODE``."""
    outliers: float = 0.0
    """Share of cycles that take ``OUTLIER`` times as long, which no guard sees."""
    first: bool = False
    """The first recorded cycle is slow (``FIRST``)."""
    recorded: bool = False
    """Processes, cycles and drifts are those of a recording instead, another one in each study."""
    bursts: float = 0.0
    """That begin in a minute, at any time, and go on in the next trial ..."""
    side: str = ""
    """... or come upon the ``baseline`` alone, or upon the ``answer`` and the search alone."""
    each: bool = False
    """A burst begins in one of the first four cycles of every trial."""
    trials: float = 0.0
    """Share of trials that are slowed from their first to their last cycle ..."""
    rounds: float = 0.0
    """... and of rounds."""
    spurious: bool = False
    """The reference kernel drifts though cycles do not."""


def _noises() -> Mapping[str, Noise]:
    machine = Noise("as on a quiet machine that is recorded: processes 2 %, cycles 5 %", cycles=0.05)
    every = {
        "quiet": Noise("processes 2 %, cycles 1.5 %"),
        "drift": Noise("quiet, and a machine that drifts by 4 %", drift=0.04),
        "bimodal": Noise("quiet, and processes in modes of ±6 %", bimodal=True),
        "outliers": Noise("quiet, and 1 % of cycles take three times as long", outliers=0.01),
        "slow": Noise("quiet, and a first cycle 1.25 times as long, 1.05 of what is searched", first=True),
        "all": Noise("all of these", drift=0.04, bimodal=True, outliers=0.01, first=True),
        "recorded": Noise("processes, cycles and drifts of a recorded machine", recorded=True),
        "machine": machine,
        "bursts": replace(machine, about="one burst a minute", bursts=1.0),
        "restless": replace(machine, about="three bursts a minute", bursts=3.0),
        "both": replace(machine, about="a burst in every trial", each=True),
        "baseline": replace(machine, about="three a minute, on the baseline alone", bursts=3.0, side="baseline"),
        "answer": replace(machine, about="three a minute, never on the baseline", bursts=3.0, side="answer"),
        "trial": replace(machine, about="a quarter of the trials slowed as a whole", trials=0.25),
        "round": replace(machine, about="half of the rounds slowed as a whole", rounds=0.5),
        "reference": replace(machine, about="nobody disturbs, but the reference kernel drifts", spurious=True),
    }
    every["everything"] = replace(
        every["all"], about="all, cycles 5 %, two bursts a minute, a tenth of trials and rounds slowed, drifts",
        cycles=0.05, bursts=2.0, trials=0.1, rounds=0.1, spurious=True,
    )  # fmt: skip
    devices = {"CPU": False, "GPU": True}
    return MappingProxyType({f"{n}, {d}": replace(one, on_gpu=devices[d]) for d in devices for n, one in every.items()})


NOISES = _noises()


class Burst(NamedTuple):
    """Something else that runs."""

    log: float
    """Of how much longer a cycle takes."""
    seen: bool


@cache
def _machines(on_gpu: bool) -> list[tuple[Recording, Array]]:
    every = recordings()
    return [(one, pool_of(one, every)) for one in every if one.on_gpu is on_gpu]


class Machine:
    """The machine of one study, whose clock moves on with every cycle."""

    def __init__(self, noise: Noise, draw: np.random.Generator) -> None:
        self._noise, self._draw, self._sight = noise, draw, sight(noise.on_gpu)
        self._recording, self._pool = self._one_of(_machines(noise.on_gpu))
        self._drift = draw.normal(0.0, noise.drift)
        self._rounds: dict[int | None, tuple[float, Burst | None]] = {}
        self._burst, self._remaining = Burst(0.0, seen=False), 0

    def begin(self, *, baseline: bool, pair: int | None) -> None:
        """Starts a process, in the round ``pair`` if it belongs to one."""
        noise, draw = self._noise, self._draw
        self._index = self._timed = 0
        self._first = math.log(FIRST[baseline]) if noise.first else 0.0
        self._begins = int(draw.integers(4)) if noise.each else -1
        self._exposed = not noise.side or (noise.side == "baseline") is baseline
        self._remaining *= self._exposed
        if pair is None or pair not in self._rounds:
            slowed = pair is not None and draw.random() < noise.rounds
            self._rounds[pair] = self._one_of(self._recording.drifts), self._slowdown() if slowed else None
        drift, self._whole = self._rounds[pair]
        if draw.random() < noise.trials:
            self._whole = self._slowdown()
        self._process = draw.normal(0.0, noise.processes) + (MODE * self._one_of((-1, 1)) if noise.bimodal else 0.0)
        if noise.recorded:
            self._process = -drift - self._one_of(self._pool)
            self._cycles = self._one_of(self._recording.patterns)

    def cycle(self, seconds: float, *, recorded: bool) -> tuple[float, float, float]:
        """Runs a cycle that takes so many seconds on an even machine: its seconds, drift and outside share."""
        noise, draw = self._noise, self._draw
        log = self._process + self._drift + (self._first if recorded and not self._timed else 0.0)
        log += self._scatter() if noise.recorded else draw.normal(0.0, noise.cycles)
        log += math.log(OUTLIER) if draw.random() < noise.outliers else 0.0
        outside = self._one_of(self._sight.background)
        burst = self._disturbance(seconds * math.exp(log))
        if burst is not None:
            log += burst.log
            slope = self._sight.slope.slope * math.exp(draw.normal(0.0, self._sight.slope.scatter))
            outside += burst.log / slope if burst.seen else 0.0
        self._index += 1
        self._timed += recorded
        self.rest(seconds * math.exp(log))
        drift = self._one_of(self._sight.spurious if noise.spurious else self._sight.drifts)
        return seconds * math.exp(log), float(drift), min(1.0, float(outside))

    def rest(self, seconds: float) -> None:
        """Moves the clock on; the drift is an autoregression of the first order."""
        stays = math.exp(-seconds / RELAXATION_S)
        self._drift = stays * self._drift + math.sqrt(1.0 - stays**2) * self._draw.normal(0.0, self._noise.drift)

    def _scatter(self) -> float:
        """Of a recorded trial's cycles in their order; after them, of any trial's last."""
        late = self._timed >= CYCLES
        return -float(self._one_of(self._recording.patterns)[-1] if late else self._cycles[self._timed])

    def _disturbance(self, seconds: float) -> Burst | None:
        comes = self._draw.random() < -math.expm1(-self._noise.bursts * seconds / 60.0) and self._exposed
        if not self._remaining and (comes or self._index == self._begins):
            self._burst = self._slowdown()
            self._remaining = int(math.exp(self._draw.uniform(0.0, math.log(LONGEST + 1))))
        burst = self._burst if self._remaining else None
        self._remaining = max(0, self._remaining - 1)
        return self._whole or burst

    def _slowdown(self) -> Burst:
        unseen = self._draw.random() < UNSEEN
        return Burst(self._draw.uniform(math.log(1.05), math.log1p(SMALL if unseen else SLOWEST)), not unseen)

    def _one_of(self, values: Any) -> Any:
        return values[self._draw.integers(len(values))]

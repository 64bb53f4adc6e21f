"""Chooses the next trial: alternates best forecasts with one-knob steps, until neither promises more than noise. Pure.

The best forecast that fits goes first. After each consecutive forecast without a gain, 1, 2, then 4 steps follow from
the best measured configuration, first in the knobs of the longest phase. See docs/how-it-works.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration
from autotune.proposals.candidate_grid import CandidateGrid, Mask, Point
from autotune.proposals.forecasts import SURE
from autotune.proposals.steps import EXPERT, NO_STAKE, PAYS, Step, expert_rank, stake
from autotune.proposals.translation import Observation, OptunaTrialStatus
from autotune.statistics.distributions import normal_below, normal_density
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import Restart

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Worth:
    """Least expected gain, in log tokens/hour, that justifies a trial."""

    within: float
    """Threshold for a candidate that the living process can run."""
    restart: float
    """Threshold for a candidate that needs a process start."""


WORTH = Worth(0.015, 0.04)
"""Usual thresholds: less is within the noise between processes; the leader's confirmation is a better use of time."""
LEFT = Worth(0.004, 0.01)
"""Thresholds if there is nothing to confirm."""
ANY = Worth(0.0, 0.0)
"""Thresholds after all other proposals: every remaining step is tried, because formulas may be wrong unnoticed."""
STAY = 0.2
"""Gain in log tokens/hour that a restart must promise beyond the best candidate for the living process."""
RESTART_COST = 4.0
"""Trials in a living process that cost as much as one that starts a process."""
ALIKE = 0.01
"""Difference in log tokens/hour up to which forecasts are equal; the one nearest to the base is then tried."""
REFINED = 8
"""Most single-knob changes of a sampled candidate."""
MISLED = 0.1
"""Shortfall from the best so far, in log tokens/hour, from which a forecast counts as misleading."""
MANY, LESS_SURE = 5, 0.8
"""Measured trials from which a probability of fitting of ``LESS_SURE`` is enough, instead of ``SURE``."""
CAREFUL = (0.95, 0.99)
"""Least probability of fitting after one out-of-memory failure, and after more."""


@dataclass(frozen=True)
class Outlook:
    """Candidates of one grid with their forecasts, relative to the best measured one."""

    grid: CandidateGrid
    left: Mask
    """True for candidates that may be tried; after ``likely``, only for those that also fit with that probability."""
    suspects: NDArray[np.int64]
    """Number of failures that the candidate's values may have caused."""
    gain: Array
    """Mean predicted gain over the best measured configuration, in log tokens/hour."""
    spread: Array
    """Standard deviation of ``gain``."""
    fits: Array
    """Probability of fitting into memory; a candidate that does not fit gains nothing."""
    restarts: NDArray[np.int64]
    """``Restart`` that each candidate needs."""

    @property
    def open_(self) -> Mask:
        """Mask of the candidates that may be tried, are likely to fit, and share no suspicious value with a failure."""
        found: Mask = self.left & (self.suspects == 0)
        return found

    def likely(self, least: float) -> Outlook:
        """Selects the candidates that fit with a probability of at least ``least``."""
        return replace(self, left=self.left & (self.fits >= least))

    @cached_property
    def expected(self) -> Array:
        """Expected gain; a candidate that does not fit gains nothing."""
        return np.where(self.gain > 0.0, self.fits * self.gain, self.gain)

    @cached_property
    def improvement(self) -> Array:
        """Expected improvement over the best measured (Jones et al., Journal of Global Optimization 13, 1998),
        constrained to fit in memory (Gardner et al., ICML 2014)."""
        return self.fits * improvement(self.gain, self.spread)


def improvement(gain: Array, spread: Array) -> Array:
    """Returns the expected positive part of normal variables with these means and standard deviations."""
    spread = np.maximum(spread, 1e-3)
    z = gain / spread
    found: Array = spread * np.maximum(z * normal_below(z) + normal_density(z), 0.0)
    return found


Choice = tuple[Outlook, int]
"""An outlook, and the index of a candidate in its grid."""


def best_forecast(
    outlooks: Sequence[Outlook], base: Point | None, worth: Worth, *, uncertain: bool = False
) -> Choice | None:
    """Returns the candidate with the best forecast (``uncertain``: expected improvement) if that justifies a trial by
    ``worth``; among equals, the nearest to ``base``."""
    score = [o.improvement if uncertain else o.expected for o in outlooks]
    able = [o.open_ for o in outlooks]
    within = [mask & (o.restarts == int(Restart.NONE)) for o, mask in zip(outlooks, able, strict=True)]
    top_within, top = _top(score, within), _top(score, able)
    stays = top_within >= max(worth.within, top - STAY)
    if not stays and top < worth.restart:
        return None
    masks, least = (within, top_within) if stays else (able, top)
    equal = [mask & (values >= least - ALIKE) for mask, values in zip(masks, score, strict=True)]
    found = [
        (o, o.grid.nearest(base, mask) if base else int(np.argmax(mask)))
        for o, mask in zip(outlooks, equal, strict=True)
        if mask.any()
    ]
    return min(found, key=lambda choice: choice[0].grid.distance(choice[1], base) if base else 0.0)


def _top(score: Sequence[Array], masks: Sequence[Mask]) -> float:
    pairs = zip(score, masks, strict=True)
    return max((float(values[mask].max()) for values, mask in pairs if mask.any()), default=-math.inf)


def refined(choice: Choice, base: Point | None, around: Callable[[Configuration], Outlook]) -> Choice:
    """Improves a sampled candidate by single changes with the best forecast; among equals, takes the nearest to
    ``base``. ``around`` returns the neighbours of a candidate."""
    outlook, place = choice
    gain, stays = float(outlook.expected[place]), outlook.restarts[place] == int(Restart.NONE)
    for _ in range(REFINED):
        here = outlook.grid.candidates[place]
        beside = around(here)
        able = beside.open_ & ((beside.restarts == int(Restart.NONE)) | (not stays))
        gain = max(gain, float(np.max(beside.expected, where=able, initial=-math.inf)))
        equal = able & (beside.expected >= gain - ALIKE)
        if not equal.any():
            break
        best = int(np.argmax(np.where(equal, beside.expected, -math.inf)))
        outlook, place = beside, beside.grid.nearest(base, equal) if base else best
        if beside.grid.candidates[place] == here:
            break
    return outlook, place


def best_step(
    found: Sequence[Step],
    outlook: Outlook,
    of_phases: Mapping[str, float],
    engine: KnobValue | None,
    worth: Worth,
    *,
    misled: bool = False,
) -> Choice | None:
    """Returns the most promising step; prefers steps in the living process, then in the longest phase.

    ``of_phases`` are shares of the base's cycle; ``worth`` is the least gain that a step must promise. ``misled``:
    after a forecast far too high, steps in the living process in an expert's order need no promised gain.
    """
    ranked: list[tuple[tuple[float, ...], int]] = []
    for step in found:
        longest, share = stake(KNOBS.get(step.knob), of_phases, engine)
        hope, restart = float(outlook.improvement[step.index]), int(outlook.restarts[step.index])
        free = misled and not restart and step.knob in EXPERT
        least = 0.0 if free else worth.restart if restart else worth.within
        if share > NO_STAKE and hope >= least:
            rank = expert_rank(step.knob) if misled else 0
            ranked.append(((restart, not longest, rank, -hope), step.index))
    return (outlook, min(ranked)[1]) if ranked else None


def is_dear(forecast: Choice, step: Choice) -> bool:
    """Tells whether a step in the living process promises more, for its cost, than a forecast that needs a restart."""
    (outlook, place), (of_step, index) = forecast, step
    if outlook.restarts[place] == int(Restart.NONE) or of_step.restarts[index] != int(Restart.NONE):
        return False
    return RESTART_COST * float(of_step.improvement[index]) >= float(outlook.expected[place])


def steps_owed(track: Sequence[Observation], forecast: str) -> int:
    """Counts the steps due before the next forecast.

    ``track`` is ordered by trial number; ``forecast`` is the prefix of the source of trials that a forecast chose.
    """
    best, failures, owed = -math.inf, 0, 0
    for one in track:
        held = one.standing is OptunaTrialStatus.FEASIBLE
        pays = held and one.value > best + PAYS
        if one.trial.source.startswith(forecast):
            failures = 0 if pays else failures + 1
            owed = 0 if pays else 2 ** (failures - 1)
        elif best > -math.inf:
            owed = max(0, owed - 1)
        best = max(best, one.value) if held else best
    return owed


def was_misled(track: Sequence[Observation], forecast: str) -> bool:
    """Tells whether a trial chosen by a forecast was far slower than the best so far, or was stopped early."""
    best = -math.inf
    for one in track:
        held = one.standing is OptunaTrialStatus.FEASIBLE
        slow = one.standing is OptunaTrialStatus.CENSORED or (held and one.value < best - MISLED)
        if slow and one.trial.source.startswith(forecast):
            return True
        best = max(best, one.value) if held else best
    return False


def likely_from(measured: int, ran_out: int) -> float:
    """Returns the least probability of fitting at which a candidate is tried, by the numbers of trials with known peaks
    and of out-of-memory failures."""
    if ran_out:
        return CAREFUL[min(ran_out, len(CAREFUL)) - 1]
    return SURE if measured < MANY else LESS_SURE

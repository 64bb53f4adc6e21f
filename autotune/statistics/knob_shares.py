"""Shares of the changed knobs in the gain of a recommendation over its baseline, by one model of all trials. Pure.

In each phase of a cycle the logarithm of the time of a token is a sum: an effect of each value that differs from the
baseline's, for knobs that act on the phase; a smaller effect of each pair of such values; the drift of the machine; and
the noise of the process and its cycles. All are normal: a Gaussian linear model (Lindley and Smith, J. R. Stat. Soc. B
34, 1972), whose estimates are those of ridge regression (Hoerl and Kennard, Technometrics 12, 1970). The equations are
solved over trials, which are fewer than effects (Rasmussen and Williams, Gaussian Processes for Machine Learning, 2.2).

A knob's share is its Shapley value (Contributions to the Theory of Games II, 1953): its gain, averaged over all orders
of the changes. In this sum that is the knob's effect plus half of each of its pairs', so shares are linear in the
effects and add up to the total. The total is the gain that the study states (``evidence.gain``): the shares are those
of the model, given that sum. Phases are combined by logarithmic means (Ang, Energy Policy 33, 2005), with which changes
of their logarithms add up to that of the cycle.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Configuration, Trial, TrialKind
from autotune.domain.differences import STEPS, Differences, chosen_differences, update_share
from autotune.statistics.components import DRIFT_SPREAD
from autotune.statistics.distributions import t95
from autotune.statistics.evidence import gain, process_noise, reference
from autotune.statistics.lengths import left_open
from autotune.statistics.noise import Sample, fit_prior, left_in_median, sample_of
from search_spaces.knobs import KNOBS

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

EFFECT, PAIR = 0.25, 0.08
"""Standard deviations of the prior effect of a change, and of a pair of changes beyond their sum, on log speed."""
SCALES = (1.0, 2.0, 4.0)
"""Factors by which effects may be larger in a phase, with a prior falling with their square; the likeliest is used."""
LEAST_SHARE = 0.01
"""Lower bound on a phase's share of a cycle; the logarithm of a shorter phase is mostly noise."""
MOST_TRIALS = 120
"""Most trials of the model: those that differ least from the baseline or from the answer."""


@dataclass(frozen=True)
class Share:
    """Gain that some changes contribute, with its 95 % interval; ratios of speeds minus 1."""

    knobs: tuple[str, ...]
    """Changed knobs; several if no trial had one of the changes without the others."""
    value: float
    low: float
    high: float

    @property
    def proven(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > 0.0 or self.high < 0.0


@dataclass(frozen=True)
class KnobShares:
    """The shares of all changed knobs, largest first; logarithms of 1 + ``value`` and ``elsewhere`` add up to that of
    ``together``."""

    changes: Differences
    shares: tuple[Share, ...]
    together: Share
    """The gain of the answer: the value of ``evidence.gain``."""
    elsewhere: float
    """Change in phases that no changed knob acts on, as a ratio of speeds minus 1; not part of any share."""
    trials: int
    """Number of trials in the model."""


def knob_shares(trials: Sequence[Trial], baseline: Configuration, answer: Configuration) -> KnobShares | None:
    """Returns each changed knob's share of the gain of ``answer``; ``None`` if nothing differs or one was not measured.

    Args:
        trials: the whole study.
        baseline: its baseline; if that failed, the reference of gains replaces it.
    """
    anchor = reference(trials, baseline)
    base = baseline if anchor is None else anchor.configuration
    goal = _changes(base, answer)
    found = [(_changes(base, trial.configuration), trial) for trial in _measured(trials)]
    found.sort(key=lambda one: min(len(one[0]), len(one[0] ^ goal)))
    values, runs = [own for own, _ in found[:MOST_TRIALS]], [trial for _, trial in found[:MOST_TRIALS]]
    before, after = np.array([not own for own in values]), np.array([own == goal for own in values])
    whole = gain(trials, answer, base)
    if not goal or whole is None or not before.any() or not after.any():
        return None
    changes = [*sorted(goal, key=str), *sorted(frozenset().union(*values) - goal, key=str)]
    has = np.array([[change in own for change in changes] for own in values])
    samples = [sample_of(trial) for trial in runs]
    phases, times = _phase_times(runs, samples)
    acts = np.array([[name not in KNOBS or KNOBS[name].acts_on(phase) for name, _ in changes] for phase in phases])
    noise, weights = process_noise(trials).process, _phase_weights(times, before, after)
    scale = 1.0 / float(np.linalg.norm(weights))  # phases vary independently, and a cycle as much as is known of it
    errors = scale**2 * _errors(runs, samples, noise.variance)
    fits = [_posterior(-own, has & acting, len(goal), errors, scale) for own, acting in zip(times, acts, strict=True)]
    mean = weights @ np.array([middle for middle, _ in fits])
    covariance = np.tensordot(weights**2, np.array([error for _, error in fits]), axes=1)
    longer = [k for k, (name, _) in enumerate(changes[: len(goal)]) if name in KNOBS and KNOBS[name].moves_lengths]
    covariance[longer, longer] += left_open(*([runs[i] for i in np.flatnonzero(end)] for end in (before, after)))
    moved = weights * (times[:, before].mean(axis=1) - times[:, after].mean(axis=1))
    elsewhere = float(moved[~acts[:, : len(goal)].any(axis=1)].sum())
    error = math.log((1.0 + whole.high) / (1.0 + whole.low)) / 2.0 / t95(noise.degrees)
    mean, covariance = _summing_to(mean, covariance, math.log1p(whole.value) - elsewhere, error**2)

    def share(members: Sequence[int]) -> Share:
        error = t95(noise.degrees) * math.sqrt(max(0.0, float(covariance[np.ix_(members, members)].sum())))
        ends = (float(mean[members].sum()) + d for d in (0.0, -error, error))
        return Share(tuple(changes[k][0] for k in members), *map(math.expm1, ends))

    shares = [share(group) for group in _never_apart(has[:, : len(goal)], acts)]
    return KnobShares(
        changes=chosen_differences(base, answer),
        shares=tuple(sorted(shares, key=lambda one: (-abs(math.log1p(one.value)), one.knobs))),
        together=Share(tuple(name for name, _ in changes[: len(goal)]), whole.value, whole.low, whole.high),
        elsewhere=math.expm1(elsewhere),
        trials=len(runs),
    )


def _measured(trials: Iterable[Trial]) -> list[Trial]:
    """Returns the trials with a speed, except the study's first if it was repeated: it ran on an idle machine."""
    found = [t for t in trials if t.feasible and not (t.emulated or t.only_disturbed) and t.merit and t.phase_shares]
    again = {t.configuration for t in found if t.kind is not TrialKind.BASELINE}
    return [t for t in found if t.kind is not TrialKind.BASELINE or t.configuration not in again]


def _changes(baseline: Configuration, configuration: Configuration) -> frozenset[tuple[str, object]]:
    """Returns the chosen values that differ from the baseline's; steps per generation as a share of an update."""
    found = chosen_differences(baseline, configuration)
    return frozenset((n, update_share(configuration) if n == STEPS else after) for n, (_, after) in found.items())


def _phase_times(runs: Sequence[Trial], samples: Sequence[Sample]) -> tuple[list[str], Array]:
    """Returns the phases and the logarithm of their time per token, shape (phases, trials)."""
    phases = sorted({phase for sample in samples for cycle in sample.phases for phase in cycle})
    spent = np.array([[statistics.median(c.get(phase, 0.0) for c in s.phases) for s in samples] for phase in phases])
    shares = spent / spent.sum(axis=0)
    long = (shares >= LEAST_SHARE).any(axis=1)
    times: Array = np.log(np.maximum(LEAST_SHARE, shares[long]) / np.array([trial.merit for trial in runs]))
    return [phase for phase, counts in zip(phases, long, strict=True) if counts], times


def _phase_weights(times: Array, before: Flags, after: Flags) -> Array:
    """Returns the change of the logarithm of a cycle's time per unit change of that of each phase, shape (phases,)."""
    there, here = np.exp(times[:, before].mean(axis=1)), np.exp(times[:, after].mean(axis=1))
    whole = _logarithmic_mean(there.sum(), here.sum())
    return np.array([_logarithmic_mean(a, b) / whole for a, b in zip(there, here, strict=True)])


def _logarithmic_mean(a: float, b: float) -> float:
    return (a - b) / math.log(a / b) if abs(a - b) > 1e-9 * a else a


def _errors(runs: Sequence[Trial], samples: Sequence[Sample], process: float) -> Array:
    """Returns the covariance of the logarithms of the trials' speeds due to noise alone, shape (trials, trials)."""
    cycles = fit_prior(samples)
    moments = np.array([t.number if t.pair is None else -1 - t.pair for t in runs])
    own = np.diag([process + left_in_median(sample.logs, cycles).variance for sample in samples])
    found: Array = own + DRIFT_SPREAD**2 * (moments[:, None] == moments)
    return found


def _posterior(speeds: Array, has: Flags, count: int, errors: Array, scale: float) -> tuple[Array, Array]:
    """Estimates mean and covariance of the Shapley values of the first ``count`` changes, in logarithms of speeds.

    Args:
        has: flags of the acting changes, shape (trials, changes).
        scale: factor by which the effects are larger than in the whole cycle; ``errors`` include it.
    """
    on = has.astype(np.float64)
    pair, shared, own, acts = (PAIR / EFFECT) ** 2, on @ on.T, on[:, :count].T, on[:, :count].any(axis=0)
    before = np.diag(acts * (1.0 + pair * (acts.sum() - 2.0) / 4.0)) + pair * np.outer(acts, acts) / 4.0
    fits = []
    for times in SCALES:
        variance = (times * scale * EFFECT) ** 2
        lower = np.linalg.cholesky(variance * (shared + pair * shared * (shared - 1.0) / 2.0) + 1.0 + errors)
        seen = np.linalg.solve(lower, variance * (own * (1.0 + pair * (own.sum(axis=0) - 1.0) / 2.0)).T)
        known = np.linalg.solve(lower, speeds - speeds.mean())
        likelihood = -0.5 * known @ known - np.log(np.diag(lower)).sum() - 2.0 * math.log(times)
        fits.append((float(likelihood), seen.T @ known, variance * before - seen.T @ seen))
    _, mean, covariance = max(fits, key=lambda fit: fit[0])
    return mean, covariance


def _summing_to(mean: Array, covariance: Array, whole: float, variance: float) -> tuple[Array, Array]:
    """Returns mean and covariance, conditional on a sum of ``whole`` with this ``variance``."""
    each = covariance.sum(axis=1)
    total = float(each.sum())
    if total <= 0.0:
        return mean, covariance
    part = each / total
    return mean + part * (whole - float(mean.sum())), covariance + np.outer(part, part) * (variance - total)


def _never_apart(has: Flags, acts: Flags) -> list[list[int]]:
    """Returns the changes in groups; changes of one group act on one phase and always occur in the same trials."""
    groups: list[list[int]] = []
    for k in range(has.shape[1]):
        alike = [not (has[:, k] ^ has[:, i]).any() and bool((acts[:, k] & acts[:, i]).any()) for i in range(k)]
        joined = [group for group in groups if any(alike[i] for i in group)]
        groups = [*(group for group in groups if group not in joined), [*(i for group in joined for i in group), k]]
    return groups

"""Decides whether a running search trial has been measured enough, compared with the study's other trials. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from autotune.domain import Ceiling, Configuration, StudySpec, Trial, TrialKind, TrialState
from autotune.statistics import early_stopping, evidence
from autotune.statistics.early_stopping import Decision, Known, Verdict
from autotune.statistics.noise import recorded_process, sample_of
from search_spaces.knobs import moving_lengths
from search_spaces.native import is_native

SAFELY = 1.2
"""Multiple of the mean cycle time that a further cycle may take, in the check whether more fit into the trial."""


class Judge:
    """Early-stopping decision on one attempt; never changes once made.

    Args:
        known: data that the trial is compared with.
        left: wall seconds until the attempt would be ended as TIMEOUT.
    """

    def __init__(self, known: Known, left: Callable[[], float] = lambda: math.inf) -> None:
        self._known = known
        self._left = left
        self._decision: Decision = early_stopping.GO_ON
        self._divisor = 1.0

    @property
    def enough(self) -> bool:
        """True if no further cycle is needed."""
        return self._decision.verdict is not Verdict.GO_ON

    @property
    def ceiling(self) -> Ceiling | None:
        """Upper bound of a trial that cannot win, in tokens/hour over all of its GPUs."""
        found = self._decision.ceiling
        if found is None:
            return None
        most, best = (self._divisor * limit for limit in (found.at_most, found.best_at_least))
        return replace(found, at_most=most, best_at_least=best)

    def see(self, trial: Trial) -> None:
        """Adds the trial after another cycle."""
        self._divisor = trial.divisor
        if not self.enough and trial.speed_cycles():
            self._decision = early_stopping.decide(sample_of(trial), self._known, room=self._has_room(trial))

    def _has_room(self, trial: Trial) -> bool:
        seconds = [c.seconds for c in trial.speed_cycles()]
        following = next((look for look in early_stopping.LOOKS if look > len(seconds)), len(seconds))
        return SAFELY * (following - len(seconds)) * sum(seconds) / len(seconds) <= self._left()


def judge_of(spec: StudySpec, trial: Trial, others: Sequence[Trial], left: Callable[[], float]) -> Judge | None:
    """Returns the judge of a search trial with looks; ``None`` for other trials, which run all their cycles."""
    if trial.kind is not TrialKind.SEARCH or not trial.protocol.looks or trial.emulated:
        return None
    return Judge(known_of(spec, [t for t in others if t.number != trial.number], trial.configuration), left)


def known_of(spec: StudySpec, trials: Sequence[Trial], configuration: Configuration) -> Known:
    """Returns the data to compare a trial of ``configuration`` with: the study's noise, and its rivals.

    Rivals are candidates for every row of the recommendation that ``configuration`` is a candidate for.
    """
    held = evidence.feasible(trials)
    rivals = [
        [sample_of(t) for t in evidence.basis(runs)] for c, runs in held.items() if _rivals(spec, c, configuration)
    ]
    measured = [t for t in trials if t.state in (TrialState.COMPLETE, TrialState.PRUNED) and not t.emulated]
    samples = [s for t in measured if (s := sample_of(t)).logs]
    usable = [runs for group in rivals if (runs := [s for s in group if s.logs])]
    on_gpu = spec.resources.device == "cuda"
    between = evidence.process_noise(trials, recorded_process(on_gpu=on_gpu)).process.variance
    between += max((t.node_variance for t in measured), default=0.0)
    return early_stopping.weigh(samples, usable, between, on_gpu=on_gpu)


def _rivals(spec: StudySpec, other: Configuration, configuration: Configuration) -> bool:
    def answers(one: Configuration) -> tuple[bool, ...]:
        same = evidence.same_learning(one, spec.baseline, spec.framework)
        as_long = moving_lengths(one) == moving_lengths(spec.baseline)
        return same, is_native(one, spec.framework, spec.resources.device), as_long

    return all(theirs or not own for theirs, own in zip(answers(other), answers(configuration), strict=True))

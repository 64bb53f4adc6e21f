"""Standings of a study: configurations by speed, trials best first, and counts by outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from autotune.domain import Configuration, Trial, TrialKind, TrialState
from autotune.domain.outcomes import FAILURE_WORDS
from autotune.statistics import evidence
from autotune.wording.text import clean


@dataclass(frozen=True)
class Standing:
    """One feasible configuration with the trials that measured it."""

    configuration: Configuration
    tokens_per_hour: float
    merit: float
    """Speed in the study's objective, which decides the order."""
    numbers: tuple[int, ...]
    ratio: float | None
    """Value of ``evidence.gain`` over the reference; ``None`` for the reference itself, and without a gain."""
    same_learning: bool
    confirmed: bool


def standings(
    trials: Sequence[Trial], baseline: Configuration, framework: str, most: int | None = None
) -> tuple[Standing, ...]:
    """Returns at most ``most`` feasible configurations, best first; the time of the call grows with their number."""
    anchor = evidence.reference(trials, baseline)
    ranked = [(-evidence.merit(runs), runs[0].number, c, runs) for c, runs in evidence.feasible(trials).items()]
    found = []
    for merit, _, configuration, runs in sorted(ranked, key=lambda each: each[:2])[:most]:
        ratio = None if anchor is None else evidence.gain_value(trials, configuration, anchor.configuration)
        same = evidence.same_learning(configuration, baseline, framework)
        confirmed = any(t.kind is TrialKind.CONFIRM for t in runs)
        numbers = tuple(t.number for t in runs)
        found.append(Standing(configuration, evidence.speed(runs), -merit, numbers, ratio, same, confirmed))
    return tuple(found)


def place(trial: Trial) -> tuple[int, float, int]:
    """Returns the sort key of ``best_first``, unique among the trials of a study."""
    speed = (trial.tokens_per_hour or trial.at_most or 0.0) / trial.divisor
    if trial.feasible and speed and not trial.emulated:
        return 0, -speed, trial.number
    order = {TrialState.COMPLETE: 1, TrialState.PRUNED: 1, TrialState.RUNNING: 2, TrialState.WAITING: 3}
    group = order.get(trial.state, 4)
    return group, -speed if group == 1 else 0.0, trial.number


def best_first(trials: Iterable[Trial]) -> tuple[Trial, ...]:
    """Sorts trials: feasible ones by speed, then other measured ones, then running, waiting and failed ones."""
    return tuple(sorted(trials, key=place))


def _reason(trial: Trial) -> str:
    """Returns the name of a failed trial's reason."""
    reason = None if trial.outcome is None else trial.outcome.reason
    return "FAIL" if reason is None else reason.value


def failure_groups(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Collects failed trials whose outcome is the same sentence; groups and trials with the latest first."""
    failed = (trial for trial in trials if trial.state is TrialState.FAIL)
    groups: dict[str, list[Trial]] = {}
    for trial in sorted(failed, key=lambda t: (t.finished_at or 0.0, t.number), reverse=True):
        groups.setdefault(_failure(trial), []).append(trial)
    return list(groups.values())


def folded(trials: Iterable[Trial]) -> list[list[Trial]]:
    """Returns the trials in their order, in groups of one; three or more neighbours that failed alike are one group."""
    groups = [list(group) for _, group in groupby(trials, _failure)]
    return [part for group in groups for part in ([group] if len(group) > 2 else [[trial] for trial in group])]


def _failure(trial: Trial) -> str:
    """Returns a key that is equal for equal failures: a failure's sentence, else the trial's own number."""
    return trial.outcome.sentence() if trial.state is TrialState.FAIL and trial.outcome else str(trial.number)


def source_words(source: str) -> str:
    """Describes the proposer of a trial, such as ``sampler (grey/step)``."""
    words = {"competent": "expert default", "roomy": "large-memory default", "beside": "parallel baseline"}
    words |= {"grey": "sampler", "tpe": "sampler", "random": "sampler", "grid": "sampler"}
    name = words.get(clean(source).partition("/")[0])
    return f"{name} ({clean(source)})" if name else clean(source)


def outcome_word(trial: Trial) -> str:
    """Returns a trial's state or outcome in one or two words: ``ok``, ``emulated`` (ok, with emulated FP8), ``stopped``
    (cannot win), ``OOM``, ``invalid settings``, ``running``."""
    if trial.state is TrialState.FAIL:
        return FAILURE_WORDS.get(_reason(trial), "FAIL")
    if trial.state is TrialState.COMPLETE:
        if trial.emulated and trial.worst_case_passed:
            return "emulated"
        return "ok" if trial.worst_case_passed else "no longest batch"
    if trial.at_most is not None:
        return "stopped"
    return trial.state.value.lower()


@dataclass(frozen=True)
class Counts:
    """Numbers of trials by state and by cause of failure."""

    states: Mapping[str, int]
    failures: Mapping[str, int]

    @property
    def tried(self) -> int:
        """Number of trials that have been started."""
        return sum(n for state, n in self.states.items() if state != TrialState.WAITING.value)

    def sentence(self, *, alive: bool = True) -> str:
        """Lists the counts: ``12 tried: 7 ok, 2 stopped early, 2 OOM, 1 CRASH``. ``alive``: a tuner runs the study."""
        ok, stopped, running = (self.states.get(state, 0) for state in ("COMPLETE", "PRUNED", "RUNNING"))
        failures = [(n, FAILURE_WORDS.get(reason, reason)) for reason, n in self.failures.items()]
        named = [(stopped, "stopped early"), *failures, (running, "running" if alive else "interrupted")]
        return f"{self.tried} tried: {', '.join([f'{ok} ok', *(f'{n} {word}' for n, word in named if n)])}"


def count(trials: Iterable[Trial]) -> Counts:
    """Counts trials by state, and failures by reason, the most frequent first."""
    every = tuple(trials)
    failures = Counter(_reason(trial) for trial in every if trial.state is TrialState.FAIL)
    states = Counter(trial.state.value for trial in every)
    return Counts(dict(states), dict(sorted(failures.items(), key=lambda item: (-item[1], item[0]))))

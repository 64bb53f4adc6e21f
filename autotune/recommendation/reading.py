"""Reads a study from the store; every screen, report, route and page is built from this reading."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from autotune.domain import (
    Budget,
    Configuration,
    Event,
    Fingerprint,
    Recommendation,
    RecommendationRow,
    Study,
    StudyStatus,
    Trial,
)
from autotune.errors import NotFoundError
from autotune.insights.standings import Standing, best_first, standings
from autotune.ports import Store
from autotune.recommendation.places import PlaceNow, read_places, running_trials
from autotune.recommendation.recommend import recommend, row_of
from autotune.statistics import evidence
from autotune.statistics.nodes import levelled
from autotune.wording.numbers import signed_percent
from autotune.wording.sentences import gain_words, machine_words
from autotune.wording.text import clean, differing, knob_value

NO_LIMITS = Budget()
EARLIER_RULES = "An earlier version's rules wrote this answer; the figures beside it are computed by today's."


class AnswerSource(StrEnum):
    """Source of an answer."""

    RECOMMENDATION = "recommendation"
    BEST_SO_FAR = "best_so_far"


class RunState(StrEnum):
    """State of a study's tuner."""

    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """The tuner was stopped early; the same command continues the study."""
    DONE = "done"


def run_state(study: Study, *, alive: bool) -> RunState:
    """Returns the state of a study; ``alive``: a tuner holds its lock, which ends with the tuner."""
    if alive:
        return RunState.RUNNING
    return RunState.DONE if study.status is StudyStatus.DONE else RunState.INTERRUPTED


Answer = tuple[AnswerSource, Recommendation | None]


def answered(stored: Recommendation | None, study: Study, trials: Sequence[Trial]) -> Answer:
    """Returns the stored recommendation, or, if trials have ended since, the one that all trials support. Pure."""
    latest = max((t.finished_at or 0.0 for t in trials), default=0.0)
    if stored is not None and latest <= stored.created_at:
        alike = _gains(stored) == _gains(recommend(study.spec, trials, stored.ended_by))
        answer = stored if alike else replace(stored, notes=(EARLIER_RULES, *stored.notes))
        return AnswerSource.RECOMMENDATION, answer
    ended_by = "not ended: this is the best so far" if study.status is StudyStatus.OPEN else "unknown"
    return AnswerSource.BEST_SO_FAR, recommend(study.spec, trials, ended_by)


def _gains(answer: Recommendation | None) -> list[tuple[Configuration, str]]:
    rows = () if answer is None else answer.rows
    return [(row.configuration, "" if row.gain is None else gain_words(row.gain)) for row in rows]


def last_event(store: Store, study: Study, kind: str) -> Event | None:
    """Returns a study's newest event of a kind; ``None`` if there is none."""
    found: Event | None = None
    while events := store.events(study.id, after=0 if found is None else found.id, kind=kind):
        found = events[-1]
    return found


@dataclass(frozen=True)
class LastRun:
    """Last run of the tuner on a study; has no limits and slots before the first run."""

    alive: bool
    limits: Budget
    avoided_gpus: tuple[str, ...]
    places: tuple[PlaceNow, ...]


def last_run(store: Store, study: Study, trials: Sequence[Trial]) -> LastRun:
    """Reads the tuner's last run: its limits, the GPUs it has avoided since, and its slots."""
    began = last_event(store, study, "session_started")
    data: Mapping[str, Any] = {} if began is None else began.data
    extended = last_event(store, study, "budget_extended")
    if began is not None and extended is not None and extended.id > began.id:
        data = {**data, **extended.data}
    given = {name: data.get(name) for name in ("wall_s", "max_trials", "gpu_hours")}
    faults = store.events(study.id, after=0 if began is None else began.id, kind="gpu_quarantined")
    alive = store.is_locked(study.id)
    return LastRun(
        alive=alive,
        limits=Budget(**given, at_once=data.get("at_once", 1)),
        avoided_gpus=tuple(dict.fromkeys(event.message for event in faults)),
        places=read_places(store, study, trials, began) if alive else (),
    )


@dataclass(frozen=True)
class StudyReading:
    """A study with its trials, and derived figures, each computed on first use."""

    study: Study
    trials: tuple[Trial, ...]
    """All trials, ordered by number."""
    spent: tuple[float, float] = (0.0, 0.0)
    """Wall seconds and GPU seconds, over all runs of the tuner."""
    alive: bool = False
    """True while a tuner runs the study."""
    limits: Budget = NO_LIMITS
    """Budget of the tuner's last run."""
    avoided_gpus: tuple[str, ...] = ()
    """Sentences on the GPUs with a fault in the tuner's last run."""
    places: tuple[PlaceNow, ...] = ()
    """Trial slots of the running tuner with their states."""
    fingerprint: Fingerprint | None = None
    stored: Recommendation | None = None
    """Newest recommendation that the study stored; trials may have ended since."""
    verified: Event | None = None
    """Newest event of ``autotune verify``."""
    known_answer: Answer | None = None
    """Value of ``answer``, if it was computed before."""

    @cached_property
    def answer(self) -> Answer:
        """Stored recommendation, or, if trials have ended since, the one that all trials support."""
        return self.known_answer or answered(self.stored, self.study, self.trials)

    @property
    def state(self) -> RunState:
        return run_state(self.study, alive=self.alive)

    @property
    def running(self) -> tuple[Trial, ...]:
        """Trials that a living tuner runs, ordered by number; a killed tuner leaves its trials in state RUNNING."""
        return running_trials(self.trials) if self.alive else ()

    @property
    def source(self) -> AnswerSource:
        return self.answer[0]

    @property
    def recommendation(self) -> Recommendation | None:
        return self.answer[1]

    @property
    def first_row(self) -> RecommendationRow | None:
        """First row of the recommendation; ``None`` if there is none."""
        return self.recommendation.rows[0] if self.recommendation is not None and self.recommendation.rows else None

    def trial(self, number: int) -> Trial:
        """Returns a trial by number. Raises ``NotFoundError`` with the nearest number."""
        found = min(self.trials, key=lambda t: abs(t.number - number), default=None)
        if found is None or found.number != number:
            near = "it has none yet" if found is None else f"the nearest is {found.number}"
            raise NotFoundError(f"study {clean(self.study.spec.name)!r} has no trial {number}; {near}")
        return found

    def within(self, limit_bytes: int | None) -> RecommendationRow | None:
        """Returns the first row of the recommendation whose peak (of the device, else of the host) is at most
        ``limit_bytes``, else the fastest such configuration that learns as the baseline does; ``None`` without one."""
        rows = () if self.recommendation is None else self.recommendation.rows
        if limit_bytes is None:
            return self.first_row
        for row in rows:
            if fits(row, limit_bytes):
                return row
        for standing in self.standings:
            if standing.same_learning and self._peak(standing.numbers) <= limit_bytes:
                return row_of(self.study.spec, self.trials, standing.configuration)
        return None

    def _peak(self, numbers: Sequence[int]) -> float:
        """Returns the highest peak of the trials, in bytes; infinite if a trial has no measured peak."""
        peaks = [self.trials[n].device_peak or self.trials[n].host_peak for n in numbers]
        return max((math.inf if peak is None else peak for peak in peaks), default=math.inf)

    @cached_property
    def differing(self) -> tuple[str, ...]:
        """Knobs that do not have the same value in all trials and the baseline."""
        return differing([self.study.spec.baseline, *(t.configuration for t in self.trials)])

    def values_of(self, knob: str) -> tuple[str, ...]:
        """Returns the distinct values of a knob in the trials, as text: numbers ascending, then words."""
        found = {t.configuration.get(knob) for t in self.trials}
        numbers = sorted(v for v in found if isinstance(v, int | float) and not isinstance(v, bool) and v == v)
        others = sorted(knob_value(v) for v in found if not isinstance(v, int | float) or isinstance(v, bool) or v != v)
        return tuple(dict.fromkeys([*(knob_value(v) for v in numbers), *others]))

    @cached_property
    def best_first(self) -> tuple[Trial, ...]:
        return best_first(self.trials)

    @cached_property
    def standings(self) -> tuple[Standing, ...]:
        return standings(self.trials, self.study.spec.baseline, self.study.spec.framework)

    @cached_property
    def gains(self) -> Mapping[Configuration, float]:
        """Gain of each measured configuration over the reference, from all its runs: the value of ``evidence.gain``."""
        return {s.configuration: s.ratio for s in self.standings if s.ratio is not None}

    @cached_property
    def reference(self) -> Configuration | None:
        """Configuration that gains are relative to."""
        anchor = evidence.reference(self.trials, self.study.spec.baseline)
        return None if anchor is None else anchor.configuration

    @property
    def machine(self) -> str:
        """``8 x H100 80GB HBM3, 1 a trial``: GPUs of all trials by the driver's name; or the CPU's cores."""
        gpus, resources = self.limits.at_once * self.study.spec.resources.total_gpus, self.study.spec.resources
        if not gpus:
            return machine_words(resources)
        seen = () if self.fingerprint is None else self.fingerprint.hardware.get("gpus") or ()
        names = {str(gpu["name"]).removeprefix("NVIDIA ") for gpu in seen if "name" in gpu}
        each = f", {resources.total_gpus} a trial" if gpus != resources.total_gpus else ""
        return f"{gpus} x {clean(', '.join(sorted(names))) or resources.device}{each}"

    @property
    def reference_word(self) -> str:
        """``baseline``, or ``reference`` if the baseline failed."""
        return "baseline" if self.reference in (None, self.study.spec.baseline) else "reference"

    def gain_words(self, trial: Trial) -> str:
        """Returns ``+21.3 %`` of a measured trial's configuration, ``baseline`` or ``reference``; else empty."""
        if not trial.tokens_per_hour:
            return ""
        if trial.configuration == self.reference:
            return self.reference_word
        gain = self.gains.get(trial.configuration)
        return "" if gain is None else signed_percent(gain)


@dataclass(frozen=True)
class ReadingPage:
    """One page of a reading, with some of its trials, as a server sends it."""

    reading: StudyReading
    next_since: int | None
    """Number of the first trial of the next page; ``None`` on the last."""


def read_study(store: Store, study: Study) -> StudyReading:
    """Reads a study from the store."""
    trials = store.trials(study.id)
    return StudyReading(
        study=study,
        trials=levelled(trials),
        spent=store.spent(study.id),
        **vars(last_run(store, study, trials)),
        fingerprint=store.fingerprint(study.id),
        stored=store.recommendation(study.id),
        verified=last_event(store, study, "verified"),
    )


def fits(row: RecommendationRow, limit_bytes: int) -> bool:
    """Tells whether the row's peak was measured and is at most ``limit_bytes``."""
    peak = row.device_peak or row.host_peak
    return peak is not None and peak <= limit_bytes


def named_study(studies: Sequence[tuple[int, str]], name: str | None) -> int:
    """Returns the id of the study with a name or id, or of the newest; ``studies`` are (id, name), newest first. Raises
    ``NotFoundError`` with the most similar name."""
    if not studies:
        raise NotFoundError("there is no study yet; `autotune start` begins one")
    if name is None:
        return studies[0][0]
    names = {known: number for number, known in reversed(studies)}
    if name in names:
        return names[name]
    if name in (str(number) for number, _ in studies):
        return int(name)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"did you mean {clean(near[0])!r}?" if near else f"the newest is {clean(studies[0][1])!r}"
    raise NotFoundError(f"there is no study {clean(name)!r}; {hint}")

"""A study as read from the store; every screen, report, route and page is made from it."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Any

from autotune.domain import Budget, Event, Fingerprint, Recommendation, RecommendationRow, Study, StudyStatus, Trial
from autotune.domain.places import TrialPlace
from autotune.errors import NotFoundError
from autotune.insights.standings import Standing, best_first, standings
from autotune.ports import Store
from autotune.recommendation.places import PlaceNow, read_places
from autotune.recommendation.recommend import recommend, row_of
from autotune.statistics import evidence
from autotune.statistics.nodes import levelled
from autotune.wording.text import clean, differing, knob_value

NO_LIMITS = Budget()


class AnswerSource(StrEnum):
    """The source of an answer."""

    RECOMMENDATION = "recommendation"
    BEST_SO_FAR = "best_so_far"


Answer = tuple[AnswerSource, Recommendation | None]


def answered(stored: Recommendation | None, study: Study, trials: Sequence[Trial]) -> Answer:
    """The stored recommendation, unless trials have ended since; then what all trials support now. Pure."""
    latest = max((t.finished_at or 0.0 for t in trials), default=0.0)
    if stored is not None and latest <= stored.created_at:
        return AnswerSource.RECOMMENDATION, stored
    ended_by = "not ended: this is the best so far" if study.status is StudyStatus.OPEN else "unknown"
    return AnswerSource.BEST_SO_FAR, recommend(study.spec, trials, ended_by, now=latest)


def last_event(store: Store, study: Study, kind: str) -> Event | None:
    """The newest of its kind."""
    found: Event | None = None
    while events := store.events(study.id, after=0 if found is None else found.id, kind=kind):
        found = events[-1]
    return found


@dataclass(frozen=True)
class LastRun:
    """The last run of the tuner on a study; before the first run without limits and places."""

    limits: Budget
    avoided_gpus: tuple[str, ...]
    places: tuple[PlaceNow, ...]


def last_run(store: Store, study: Study, trials: Sequence[Trial]) -> LastRun:
    """The tuner's last run: its limits, the GPUs it avoids since, and its places."""
    began = last_event(store, study, "session_started")
    data: Mapping[str, Any] = {} if began is None else began.data
    given = {name: data.get(name) for name in ("wall_s", "max_trials", "gpu_hours")}
    faults = store.events(study.id, after=0 if began is None else began.id, kind="gpu_quarantined")
    return LastRun(
        limits=Budget(**given, at_once=data.get("at_once", 1)),
        avoided_gpus=tuple(dict.fromkeys(event.message for event in faults)),
        places=read_places(store, study, trials, began),
    )


@dataclass(frozen=True)
class StudyReading:
    """A study with its trials, and what follows from them, each worked out when it is first asked for."""

    study: Study
    trials: tuple[Trial, ...]
    """All, by number."""
    spent: tuple[float, float] = (0.0, 0.0)
    """Wall seconds and GPU seconds, over all runs of the tuner."""
    limits: Budget = NO_LIMITS
    """What the last run of the tuner was given."""
    avoided_gpus: tuple[str, ...] = ()
    """Those on which the last run of the tuner saw a fault, each as a sentence."""
    places: tuple[PlaceNow, ...] = ()
    """Those of the tuner that runs, and what each does."""
    fingerprint: Fingerprint | None = None
    stored: Recommendation | None = None
    """The newest recommendation the study itself gave; trials may have ended since."""
    verified: Event | None = None
    """The newest event of ``autotune verify``."""
    known_answer: Answer | None = None
    """``answer``, where it was worked out before."""

    @cached_property
    def answer(self) -> Answer:
        """The stored recommendation, unless trials have ended since; then what all trials support now."""
        return self.known_answer or answered(self.stored, self.study, self.trials)

    @property
    def source(self) -> AnswerSource:
        return self.answer[0]

    @property
    def recommendation(self) -> Recommendation | None:
        return self.answer[1]

    @property
    def first_row(self) -> RecommendationRow | None:
        """What the study recommends first, if anything."""
        return self.recommendation.rows[0] if self.recommendation is not None and self.recommendation.rows else None

    def trial(self, number: int) -> Trial:
        """Raises ``NotFoundError``."""
        found = next((t for t in self.trials if t.number == number), None)
        if found is None:
            raise NotFoundError(f"study {self.study.id} has no trial {number}")
        return found

    def place(self, number: int) -> TrialPlace:
        """The place of a running trial; nothing for a trial that does not run."""
        return next((place.at for place in self.places if place.trial == number), TrialPlace())

    def within(self, limit_bytes: int | None) -> RecommendationRow | None:
        """The first row of the answer whose peak (of the device, else of the host) is at most ``limit_bytes``, else
        the fastest configuration that learns as the baseline does and stays below it; ``None`` if nothing does."""
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
        """Bytes; infinite if any of the trials measured none."""
        peaks = [self.trials[n].device_peak or self.trials[n].host_peak for n in numbers]
        return max((math.inf if peak is None else peak for peak in peaks), default=math.inf)

    @cached_property
    def differing(self) -> tuple[str, ...]:
        """Knobs that do not have one value in all trials and the baseline."""
        return differing([self.study.spec.baseline, *(t.configuration for t in self.trials)])

    def values_of(self, knob: str) -> tuple[str, ...]:
        """Every value trials have of it, as text: numbers growing, then words."""
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
    def reference_speed(self) -> float | None:
        """Tokens/hour of what gains are stated over."""
        anchor = evidence.reference(self.trials, self.study.spec.baseline)
        return None if anchor is None else evidence.speed(evidence.feasible(self.trials)[anchor.configuration])


@dataclass(frozen=True)
class ReadingPage:
    """A reading with only some of its trials, as a server hands it on."""

    reading: StudyReading
    next_since: int | None
    """The first trial of the next page; ``None`` on the last."""


def read_study(store: Store, study: Study) -> StudyReading:
    """The study as it is now."""
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
    """Whether its peak was measured and is at most ``limit_bytes``."""
    peak = row.device_peak or row.host_peak
    return peak is not None and peak <= limit_bytes


def named_study(studies: Sequence[tuple[int, str]], name: str | None) -> int:
    """Among (id, name) of studies, newest first: the id of the study of that name or id, or of the newest.

    Raises:
        NotFoundError: naming the nearest study there is.
    """
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

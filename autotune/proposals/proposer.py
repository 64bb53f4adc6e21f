"""Decides what to try next: an Optuna study proposes, whatever the sampler.

For each proposal a study is rebuilt from the trials so far (``translation``). What the product itself wants tried is
enqueued: the openings, one-knob moves and start-up points. Otherwise the sampler is asked. Two tracks share the
proposals, and nothing illegal, repeated or known not to fit is proposed.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from autotune.domain import Configuration, Resources, Trial
from autotune.ports import Proposer
from autotune.proposals import dominance
from autotune.proposals.candidate_grid import CandidateGrid, Mask
from autotune.proposals.dominance import Region
from autotune.proposals.forecasts import PriorData, Task
from autotune.proposals.local_search import LISTED, Near, headline_climb, neighbourhoods, permitted_climb
from autotune.proposals.openings import COMPETENT, ROOMY, openings, spread, startup, without_memory_savers
from autotune.proposals.samplers import StudySampler, Turn, named_sampler
from autotune.proposals.translation import (
    Frozen,
    Observation,
    OptunaTrialStatus,
    Read,
    asked,
    distributions,
    evidence,
    is_taken,
    rebuilt_study,
)
from autotune.statistics import retries
from autotune.statistics.evidence import same_learning
from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import RESTART, RestartKey, restart_key
from search_spaces.space import SearchSpace
from search_spaces.unset import UNSET

HEADLINE = "headline"
"""Candidates that learn exactly as the baseline does: the gain stated first comes from these."""

PERMITTED = "permitted"
"""The other candidates, with other numerics or learning where the space allows it; ranked apart."""

MOVE = "move"
"""Source of the proposals between the openings and the sampler's."""

SOURCE = "source"
"""User attribute of an enqueued trial: who wants it tried (``Trial.source``)."""

ELSEWHERE = 3
"""Headline draws far from what was tried, between the moves and the sampler: a model told of one knob at a time takes
what ran out of memory beside the base for a fault of that knob everywhere."""

PERMITTED_EVERY = 3
"""One proposal in so many goes to the permitted track."""


@dataclass(frozen=True)
class Track:
    """A set of candidates proposals come from."""

    name: str
    grid: CandidateGrid
    frozen: Frozen = field(default_factory=dict)


class TwoTrackProposer:
    """``ports.Proposer``. See docs/decisions/0003-two-tracks.md.

    Args:
        headline: legal candidates with the baseline's numerics and learning, in a fixed order.
        permitted: all legal candidates, in a fixed order.
        searched: names of the knobs the space varies.
        baseline: the user's present configuration, as it stands in trial 0.
        complete_baseline: the same as the candidates are written, with what the framework does on its own.
        sampler: who chooses among the candidates that are left.
        one_memory: device and host memory are the same (a CPU run).
        firsts: headline candidates to try before anything else, each with its source.
        otherwise: stands for the roomy one of ``firsts`` where the competent one proved no better than the baseline.
        unset: those of ``searched`` that a candidate or the baseline may leave to the framework.
        nearby: tells the neighbours of a configuration where the candidates were drawn from more than are listed.
        framework: whose words the configurations are in.
    """

    def __init__(
        self,
        *,
        headline: Sequence[Configuration],
        permitted: Sequence[Configuration],
        searched: Iterable[str],
        baseline: Configuration,
        complete_baseline: Configuration,
        sampler: StudySampler,
        seed: int,
        one_memory: bool,
        firsts: Sequence[tuple[Configuration, str]] = (),
        otherwise: Configuration | None = None,
        unset: Collection[str] = (),
        nearby: Near | None = None,
        framework: str = "trl",
    ) -> None:
        names = tuple(searched)
        own = frozenset(headline)
        others = tuple(c for c in permitted if c not in own)
        anchors = (complete_baseline,)
        self._headline = Track(HEADLINE, CandidateGrid(headline, names, anchors, unset))
        permitted_track = Track(PERMITTED, CandidateGrid(others, names, anchors, unset))
        self._tracks = (self._headline, permitted_track) if others else (self._headline,)
        self._same_learning = own | {complete_baseline}
        self._nearby, self._framework = nearby, framework
        self._as_candidate = {baseline: complete_baseline}
        self._sampler = sampler
        self._seed = seed
        self._one_memory, self._memory = one_memory, dominance.RegionCache()
        self._firsts = tuple(firsts)
        self._otherwise = otherwise
        self._baseline = complete_baseline
        self._keys: dict[int, list[RestartKey]] = {}
        self._read: Read = {}

    def seeded(self, seed: int) -> TwoTrackProposer:
        """A copy with another seed, which shares what was computed about the candidates."""
        other = copy.copy(self)
        other._seed, other._memory, other._read = seed, dominance.RegionCache(), {}
        return other

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        return self._proposed(history, number, None)

    def propose_at(
        self, history: Sequence[Trial], number: int, here: Sequence[Trial]
    ) -> tuple[Configuration, str] | None:
        """``propose`` for one of several places; ``here`` are the trials that finished there."""
        return self._proposed(history, number, None, here)

    def propose_in_process(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        """``propose`` among the configurations that the newest trial's process can run without a restart."""
        key = restart_key(self._as_candidates(history)[-1].configuration, Restart.NONE, self._framework)
        return self._proposed(history, number, key)

    def _proposed(
        self,
        history: Sequence[Trial],
        number: int,
        process: RestartKey | None,
        here: Sequence[Trial] | None = None,
    ) -> tuple[Configuration, str] | None:
        """``process``: what a candidate has to agree with; ``None``: with nothing. ``here``: as of ``propose_at``."""
        trials = self._as_candidates(history)
        out = {t.configuration for t in trials if is_taken(t)}, self._regions(trials)
        known = evidence(trials, self._read)
        same = tuple(e for e in known if self._learns_the_same(e.configuration))
        sampler = self._sampler.fit(trials, known)
        if here is not None:
            sampler = sampler.at(self._as_candidates(here))
        point = _Point(trials, known, same, sampler, out, process)
        opening = self._opening(point)
        if opening is not None:
            everything = np.ones(len(self._headline.grid), dtype=np.bool_)
            return self._asked(point, self._headline, Turn(self._headline.grid, everything, 0), opening)
        tracks = self._tracks[::-1] if number % PERMITTED_EVERY == 0 else self._tracks
        for track in tracks:
            left = track.grid.without(*out)
            if process is not None:
                left = left & self._of_process(track.grid, process)
            if left.any():
                turn = Turn(track.grid, left, draw(self._seed, number))
                return self._asked(point, track, turn, self._planned(point, track, turn))
        return None

    def _asked(
        self, point: _Point, track: Track, turn: Turn, planned: tuple[Configuration, str] | None
    ) -> tuple[Configuration, str]:
        """The proposal of an Optuna study; ``planned`` is enqueued in it."""
        grid, sampler = turn.grid, point.sampler
        own, start = self._lessons(point, track)
        observations = sampler.observations(own, point.known, elsewhere=start is not None)
        study = rebuilt_study(grid, observations, sampler.sampler(turn), track.frozen)
        if planned is not None:
            configuration, source = planned
            study.enqueue_trial(grid.params(configuration), user_attrs={SOURCE: source})
            study.ask(dict(distributions(grid)))
            return planned
        return grid.candidates[asked(study, grid, turn.left, sampler.asks)], f"{sampler.name}/{track.name}"

    def _planned(self, point: _Point, track: Track, turn: Turn) -> tuple[Configuration, str] | None:
        """A move, or while little is known a point far from what was tried; ``None`` where the sampler is to choose."""
        sampler, grid = point.sampler, turn.grid
        if not sampler.needs_local_search:
            return None
        moved = self._move(point, track, turn.left)
        if moved is not None and self._in_process(moved, point.process) and sampler.may_fit(moved):
            return moved, f"{MOVE}/{track.name}"
        source = f"{sampler.name}/{track.name}"
        own, start = self._lessons(point, track)
        if start is None and sum(t.source == source for t in point.trials) < ELSEWHERE:
            far = grid.candidates[spread(grid, turn.left, own, turn.seed)]
            if sampler.may_fit(far):
                return far, source
        index = startup(grid, sampler.likely(turn, own), own, turn.seed, start)
        return None if index is None else (grid.candidates[index], source)

    def _in_process(self, configuration: Configuration, process: RestartKey | None) -> bool:
        return process is None or restart_key(configuration, Restart.NONE, self._framework) == process

    def _of_process(self, grid: CandidateGrid, process: RestartKey) -> Mask:
        """The candidates that agree with ``process``."""
        if id(grid) not in self._keys:
            self._keys[id(grid)] = [restart_key(c, Restart.NONE, self._framework) for c in grid.candidates]
        return np.array([key == process for key in self._keys[id(grid)]], dtype=np.bool_)

    def _opening(self, point: _Point) -> tuple[Configuration, str] | None:
        taken, regions = point.out
        for configuration, source in self._openings(point.known):
            if configuration in taken or any(dominance.covers(region, configuration) for region in regions):
                continue
            if self._in_process(configuration, point.process) and point.sampler.may_fit(configuration):
                return configuration, source
        return None

    def _openings(self, known: Sequence[Observation]) -> Iterator[tuple[Configuration, str]]:
        """``firsts``; the roomy one keeps what the competent one changed only if that was no loss."""
        values = {e.configuration: e.value if e.standing is OptunaTrialStatus.FEASIBLE else -math.inf for e in known}
        opened = next((c for c, source in self._firsts if source == COMPETENT), None)
        lost = opened in values and values[opened] < values.get(self._baseline, -math.inf)
        for configuration, source in self._firsts:
            instead = self._otherwise if lost and source == ROOMY else configuration
            if instead is not None:
                yield instead, source

    def _move(self, point: _Point, track: Track, left: Mask) -> Configuration | None:
        """The next move from the best so far; ``None`` once every knob had its turn."""
        grid, trials, first = track.grid, point.trials, track is self._headline
        if first:
            climb = headline_climb(grid, point.same, trials)
        else:
            climb = permitted_climb(grid, self._headline.grid, point.known, point.same, trials)
        if climb is None:
            return None
        if self._nearby is not None:
            near = self._nearby(climb.base(grid), same_learning=first)
            grid = grid.beside(c for c in near if first or not self._learns_the_same(c))
            left = grid.without(*point.out)
        index = climb.move(grid, left, trials)
        return None if index is None else grid.candidates[index]

    def _learns_the_same(self, configuration: Configuration) -> bool:
        """Whether ``configuration`` learns as the baseline: it was drawn for the headline, or the catalogue says so."""
        if configuration in self._same_learning:
            return True
        return self._nearby is not None and same_learning(configuration, self._baseline, self._framework)

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:
        asked = self._as_candidate.get(configuration, configuration)
        for region in self._regions(self._as_candidates(history)):
            if dominance.covers(region, asked):
                return dominance.sentence(region, asked)
        return None

    def count_ruled_out(self, history: Sequence[Trial]) -> int:
        regions = self._regions(self._as_candidates(history))
        return sum(len(t.grid) - int(t.grid.without((), regions).sum()) for t in self._tracks)

    def _as_candidates(self, history: Sequence[Trial]) -> list[Trial]:
        """The history as the samplers read it: retries in the place of what they correct, candidates' spelling.

        The baseline may leave to the framework what candidates spell out; then it could not be compared.
        """
        names, found = self._as_candidate, retries.corrected(history)
        return [t.with_(configuration=names[t.configuration]) if t.configuration in names else t for t in found]

    def _regions(self, trials: Sequence[Trial]) -> tuple[Region, ...]:
        return dominance.regions(trials, one_memory=self._one_memory, memory=self._memory)

    def _lessons(self, point: _Point, track: Track) -> tuple[Sequence[Observation], Mapping[str, KnobValue] | None]:
        """Observations a track learns from, and on the permitted one the headline's best settings to start at.

        A trial with other numerics or learning differs in speed for reasons the speed knobs do not hold,
        so neither track learns from the other's values; but the best speed settings are a good start.
        """
        if track is self._headline:
            return point.same, None
        apart = [e for e in point.known if not self._learns_the_same(e.configuration)]
        held = (e for e in point.same if e.standing is OptunaTrialStatus.FEASIBLE)
        best = max(held, key=lambda e: e.value, default=None)
        return apart, None if best is None else self._headline.grid.coordinates(best.configuration)


@dataclass(frozen=True)
class _Point:
    """The state of a study at the time of a proposal."""

    trials: Sequence[Trial]
    known: Sequence[Observation]
    same: Sequence[Observation]
    """Of those, the ones that learn as the baseline does."""
    sampler: StudySampler
    """Fitted."""
    out: tuple[Collection[Configuration], Sequence[Region]]
    """What is taken, and what is ruled out."""
    process: RestartKey | None
    """What a candidate has to agree with; ``None``: with nothing."""


def draw(seed: int, number: int) -> int:
    """32 bits that depend on the study's seed and the trial's number alone."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


IN_ONE_PROCESS = 5_000
"""Candidates added at most that need no other process than the competent one."""


def make_proposer(
    space: SearchSpace,
    baseline: Configuration,
    resources: Resources,
    sampler: str,
    seed: int,
    task: Task | None = None,
    prior_data: PriorData | None = None,
) -> Proposer:
    """The proposer of a study. ``task`` is what samplers that forecast ask their models about, ``prior_data`` what
    these know before the first trial.

    Raises:
        UsageError: no sampler of that name.
    """
    headline = space.candidates(baseline, resources, same_learning=True, limit=LISTED)
    permitted = space.candidates(baseline, resources, same_learning=False, limit=LISTED)
    whole = space.complete(baseline, resources)
    nearby = neighbourhoods(space, baseline, resources) if len(permitted) >= LISTED else None
    near = None if nearby is None else partial(nearby, same_learning=True)
    about = headline if near is None else near(whole)
    firsts = openings(about, whole, near)
    if nearby is not None and resources.device == "cuda":
        opened = next((c for c, source in firsts if source == COMPETENT), whole)
        headline = tuple(dict.fromkeys((*headline, *in_one_process(space, opened, baseline, resources))))
    return TwoTrackProposer(
        headline=headline,
        permitted=permitted,
        searched=space.values,
        baseline=baseline,
        complete_baseline=whole,
        sampler=named_sampler(sampler).bind(task, prior_data),
        seed=seed,
        one_memory=resources.device == "cpu",
        firsts=firsts,
        otherwise=without_memory_savers(about, whole),
        unset=[n for n, found in space.values_in(resources).items() if UNSET in found or n not in whole],
        nearby=nearby,
        framework=resources.framework,
    )


def in_one_process(
    space: SearchSpace, opened: Configuration, baseline: Configuration, resources: Resources
) -> tuple[Configuration, ...]:
    """Configurations that a process which ran ``opened`` can run without a restart, with the baseline's learning.

    Of a drawn space hardly two candidates have the same engine: without these nearly every trial would start one.
    """
    free = {name for name in space.values if RESTART.get(name) is Restart.NONE}
    about = space.about(opened, free)
    return about.candidates(baseline, resources, same_learning=True, limit=IN_ONE_PROCESS)

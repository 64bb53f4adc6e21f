"""Decides the next trial: an Optuna study proposes it, with any sampler.

For each proposal, a study is rebuilt from the trials so far (``translation``). The proposer never proposes an illegal
or repeated configuration, or one known not to fit. Two tracks share the proposals: the headline, and the permitted
track with other numerics or learning, which waits until the headline is confirmed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import lru_cache, partial

from autotune.domain import Configuration, Resources, Trial, TrialKind, TrialState
from autotune.ports import Proposer
from autotune.proposals import dominance
from autotune.proposals.candidate_grid import CandidateGrid
from autotune.proposals.dominance import Region
from autotune.proposals.forecasts import PriorData, Task
from autotune.proposals.neighbours import LISTED, Near, in_one_process, neighbourhoods
from autotune.proposals.samplers import Field, StudySampler, Turn, named_sampler
from autotune.proposals.translation import Frozen, Observation, OptunaTrialStatus, evidence
from autotune.statistics import evidence as evidence_of
from autotune.statistics import retries
from autotune.statistics.evidence import Row, same_learning
from autotune.statistics.kept_process import living_process
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import Effect, Restart
from search_spaces.native import UNSET
from search_spaces.space import SearchSpace

HEADLINE = "headline"
"""Candidates that learn exactly as the baseline does: the gain stated first comes from these."""

PERMITTED = "permitted"
"""The other candidates, with other numerics or learning where the space allows it; ranked apart."""

LEARNT = tuple(n for n, k in KNOBS.items() if k.effect is not Effect.SPEED or n == "gradient_accumulation_steps")
"""Knobs that decide whether two configurations learn the same (``effects_of_change``)."""

PERMITTED_EVERY = 3
"""Number of proposals of which one goes to the permitted track, once the track is open."""
PERMITTED_AFTER_S = 7200.0
"""Seconds of a study after which the permitted track is open although the headline is not confirmed."""


class TwoTrackProposer:
    """``ports.Proposer``. See docs/decisions/0003-two-tracks.md.

    ``headline`` are the legal candidates with the baseline's numerics and learning, ``permitted`` all, both in a fixed
    order; ``searched`` are the knobs that the space varies. ``complete_baseline`` is the baseline with all knobs of a
    candidate; ``unset`` are knobs that may be left to the framework. If candidates were sampled, ``nearby`` returns a
    configuration's neighbours and ``alongside`` those its process can run without a restart. ``one_memory``: device and
    host memory are the same (a CPU run).
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
        unset: Collection[str] = (),
        nearby: Near | None = None,
        alongside: Callable[[Configuration], Sequence[Configuration]] | None = None,
        framework: str = "trl",
        device: str = "cpu",
    ) -> None:
        names = tuple(searched)
        own = frozenset(headline)
        others = tuple(c for c in permitted if c not in own)
        tracks = {HEADLINE: headline, PERMITTED: others}
        self._grids = {t: CandidateGrid(c, names, (complete_baseline,), unset, framework) for t, c in tracks.items()}
        self._frozen: dict[str, Frozen] = {HEADLINE: {}, PERMITTED: {}}
        self._nearby, self._alongside = nearby, alongside
        self._framework, self._device = framework, device
        self._as_candidate = {baseline: complete_baseline}
        self._baseline = complete_baseline
        self._sampler = sampler
        self._seed = seed
        self._one_memory = one_memory
        self._beside = lru_cache(maxsize=32)(self._grid_beside)
        self._same: dict[tuple[KnobValue | None, ...], bool] = {}
        self._learnt = (*LEARNT, *sorted({*names, *baseline} - set(KNOBS)))

    def propose(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        return self._proposed(history, number)

    def propose_at(
        self, history: Sequence[Trial], number: int, here: Sequence[Trial]
    ) -> tuple[Configuration, str] | None:
        """Proposes for one of several trial slots; ``here`` are the trials that finished in the slot."""
        return self._proposed(history, number, here=here)

    def propose_in_process(self, history: Sequence[Trial], number: int) -> tuple[Configuration, str] | None:
        """Proposes a configuration that the newest trial's process can run without a restart."""
        return self._proposed(history, number, within=True)

    def _proposed(
        self, history: Sequence[Trial], number: int, here: Sequence[Trial] | None = None, *, within: bool = False
    ) -> tuple[Configuration, str] | None:
        """Proposes a configuration; ``here``: as in ``propose_at``; ``within``: only one without a process start."""
        trials = self._as_candidates(history)
        known = evidence(trials)
        same = [e for e in known if self._learns_the_same(e.configuration)]
        there = here if here is None else self._as_candidates(here)
        process = trials[-1].configuration if within else living_process(trials, self._framework, self._device, there)
        taken, regions = {t.configuration for t in trials if not t.inconclusive}, self._regions(trials)

        def field(grid: CandidateGrid) -> Field:
            left = grid.without(taken, regions)
            return Field(grid, left & (grid.restarts(process) == int(Restart.NONE)) if within else left)

        leader = _leader(trials, same)
        sampler = self._sampler.fit(trials, known)
        for track in self._tracks(trials, number, leader, field):
            whole, own = field(self._grids[track]), track == HEADLINE
            if not whole.left.any():
                continue
            around = None if self._nearby is None else partial(self._around, self._nearby, track, field)
            alongside = [] if self._alongside is None or process is None or not own else [self._alongside(process)]
            nearby = [field(self._beside(track, found)) for found in alongside]
            turn = Turn(
                field=whole,
                nearby=(*nearby, *([] if around is None else [around(leader or self._baseline)])),
                around=around,
                track=same if own else known,
                waits=partial(self._waits, history, track),
                process=process,
                frozen=self._frozen[track],
                seed=draw(self._seed, number),
            )
            if (proposal := sampler.propose(turn)) is not None:
                return proposal[0], f"{proposal[1]}/{track}"
        return None

    def _tracks(
        self,
        trials: Sequence[Trial],
        number: int,
        leader: Configuration | None,
        field: Callable[[CandidateGrid], Field],
    ) -> Sequence[str]:
        """Returns the tracks in order of preference; the permitted track waits until the headline is done."""
        confirmed = any(self._learns_the_same(c) for c in _confirmed(trials) - {self._baseline})
        opened = confirmed or leader is None or _lasted_s(trials) >= PERMITTED_AFTER_S
        if not opened and field(self._grids[HEADLINE]).left.any():
            return (HEADLINE,)
        return (PERMITTED, HEADLINE) if opened and number % PERMITTED_EVERY == 0 else (HEADLINE, PERMITTED)

    def _waits(self, history: Sequence[Trial], track: str) -> bool:
        """Tells whether the headline's leader still needs its confirmation."""
        if track == PERMITTED:
            return False
        baseline = next(iter(self._as_candidate))
        history = [t for t in history if t.tokens_per_hour or not t.feasible]
        leaders = evidence_of.leaders(history, baseline, self._framework)
        leader = next((one.configuration for one in leaders if one.row is Row.SAME_LEARNING), baseline)
        return leader != baseline and leader not in _confirmed(history)

    def _around(self, near: Near, track: str, field: Callable[[CandidateGrid], Field], base: Configuration) -> Field:
        """Returns the neighbours of a configuration that belong to ``track``."""
        return field(self._beside(track, near(base, same_learning=track == HEADLINE)))

    def _grid_beside(self, track: str, candidates: tuple[Configuration, ...]) -> CandidateGrid:
        own = (c for c in candidates if track == HEADLINE or not self._learns_the_same(c))
        return self._grids[track].beside(own)

    def _learns_the_same(self, configuration: Configuration) -> bool:
        """Tells whether ``configuration`` learns as the baseline does; computed once for each setting of ``LEARNT``."""
        part = tuple(map(configuration.get, self._learnt))
        if part not in self._same:
            self._same[part] = same_learning(configuration, self._baseline, self._framework)
        return self._same[part]

    def ruled_out(self, history: Sequence[Trial], configuration: Configuration) -> str | None:
        asked = self._as_candidate.get(configuration, configuration)
        for region in self._regions(self._as_candidates(history)):
            if dominance.covers(region, asked):
                return dominance.sentence(region, asked)
        return None

    def count_ruled_out(self, history: Sequence[Trial]) -> int:
        regions = self._regions(self._as_candidates(history))
        return sum(len(grid) - int(grid.without((), regions).sum()) for grid in self._grids.values())

    def _as_candidates(self, history: Sequence[Trial]) -> list[Trial]:
        """Returns the history for samplers: retries replace the trials they correct, and baseline trials get the
        completed baseline configuration."""
        names, found = self._as_candidate, retries.corrected(history)
        return [t.with_(configuration=names[t.configuration]) if t.configuration in names else t for t in found]

    def _regions(self, trials: Sequence[Trial]) -> tuple[Region, ...]:
        return dominance.regions(trials, one_memory=self._one_memory)


def _leader(trials: Sequence[Trial], same: Sequence[Observation]) -> Configuration | None:
    """Returns the fastest feasible configuration that did not fail in its confirmation."""
    lost = {t.configuration for t in trials if t.kind is TrialKind.CONFIRM and t.state is TrialState.FAIL}
    held = (e for e in same if e.standing is OptunaTrialStatus.FEASIBLE and e.configuration not in lost)
    best = max(held, key=lambda e: (e.value, -e.number), default=None)
    return None if best is None else best.configuration


def _confirmed(trials: Sequence[Trial]) -> set[Configuration]:
    return {t.configuration for t in trials if t.kind is TrialKind.CONFIRM and t.state.is_finished}


def _lasted_s(trials: Sequence[Trial]) -> float:
    """Returns the seconds from the first trial's start to the last trial's end."""
    starts = [t.started_at for t in trials if t.started_at is not None]
    ends = [t.finished_at for t in trials if t.finished_at is not None]
    return max(ends) - min(starts) if starts and ends else 0.0


def draw(seed: int, number: int) -> int:
    """Returns 32 bits that depend only on the study's seed and the trial's number."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{number}".encode()).digest()[:4], "big")


def make_proposer(
    space: SearchSpace,
    baseline: Configuration,
    resources: Resources,
    sampler: str,
    seed: int,
    task: Task | None = None,
    prior_data: PriorData | None = None,
) -> Proposer:
    """Returns the proposer of a study. Samplers with models read ``task``, and ``prior_data`` before the first trial.
    Raises ``UsageError`` if no sampler has that name."""
    headline = space.candidates(baseline, resources, same_learning=True, limit=LISTED)
    permitted = space.candidates(baseline, resources, same_learning=False, limit=LISTED)
    whole = space.complete(baseline, resources)
    drawn = len(permitted) >= LISTED
    alongside = in_one_process(space, baseline, resources) if drawn and resources.device == "cuda" else None
    return TwoTrackProposer(
        headline=headline,
        permitted=permitted,
        searched=space.values,
        baseline=baseline,
        complete_baseline=whole,
        sampler=named_sampler(sampler).bind(task, prior_data),
        seed=seed,
        one_memory=resources.device == "cpu",
        unset=[n for n, found in space.values_in(resources).items() if UNSET in found or n not in whole],
        nearby=neighbourhoods(space, baseline, resources) if drawn else None,
        alongside=alongside,
        framework=resources.framework,
        device=resources.device,
    )

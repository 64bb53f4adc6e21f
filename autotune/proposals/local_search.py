"""Local search, one per track: one-knob moves from the best configuration so far.

Each move that pays at once becomes the base of the next. The headline searches by tokens/hour. The permitted track
starts at the headline's best settings. It searches by what a change of numerics or learning gains over the same
settings without it, so that what was learnt at earlier settings holds at better ones. Pure, and a function of the
history alone: which moves were made, and from where, is read off the trials.
See docs/decisions/0028-moves-first.md.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from autotune.domain import Configuration, FailureReason, Phase, Resources, Trial
from autotune.proposals.candidate_grid import STEPS, CandidateGrid, Dimension, Mask, Point, steps_for
from autotune.proposals.translation import Observation, OptunaTrialStatus
from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS, Knob
from search_spaces.knobs.restart import restart_between
from search_spaces.space import SearchSpace

PAYS = 0.02
"""In log tokens/hour: a move that gained no more may be noise, and the base stays."""

TURNS = 2
"""A knob has so many moves that do not pay, the second when all have had their first; then the sampler is asked."""

NO_STAKE = 0.02
"""A knob that acts on no more than this share of a cycle is left to the sampler: it cannot pay."""

ROWS = "micro_batch_size"
"""What makes room: a move that has none is made with fewer rows."""

ENGINE, VLLM = "rollout_engine", "vllm"
TRAINERS = frozenset({"micro_batch_size", "attn_implementation"})
"""With vLLM these act on the trainer alone: the engine generates with rows and kernels of its own."""

Step = tuple[str, int]
"""A dimension and a place on it."""


@dataclass(frozen=True)
class Visited:
    """A configuration that was tried: where it lies and what it was worth.

    ``None`` if it did not hold, or was stopped because it cannot win: either way it does not pay.
    """

    point: Point
    value: float | None
    short: bool = False
    """It did not hold because memory ran out."""


@dataclass(frozen=True)
class SearchState:
    """Progress of the climb."""

    point: Point
    """The base of the next move."""
    tried: frozenset[Step]
    failed: frozenset[Step]
    """Of those tried, the ones that ran out of memory, and may hold with fewer rows."""
    turns: Mapping[str, int]
    """Dimension -> moves of it that are over: they did not pay, or were made together with others and did."""


def search_state(dimensions: Sequence[Dimension], seen: Sequence[Visited]) -> SearchState | None:
    """The climb that ``seen`` makes, by trial number; ``None`` before anything held."""
    lead: Visited | None = None
    tried: set[Step] = set()
    failed: set[Step] = set()
    turns: dict[str, int] = {}
    names = [d.name for d in dimensions]
    for one in seen:
        if lead is None:
            lead = one if one.value is not None else None
            continue
        pairs = zip(names, lead.point, one.point, strict=True)
        changed = {name: (before, after) for name, before, after in pairs if before != after}
        moved = _leading(changed)
        pays = one.value is not None and lead.value is not None and one.value > lead.value + PAYS
        single = len(moved) == 1
        if pays or single:
            tried.update((name, changed[name][1]) for name in moved)
        if pays and single:
            tried.update((name, changed[name][0]) for name in moved)
        elif pays or single:
            turns.update({name: turns.get(name, 0) + 1 for name in moved})
        elif len(moved) == 2 and ROWS in moved:
            tried.update((name, changed[name][1]) for name in moved if name != ROWS)
            failed -= {(name, changed[name][1]) for name in moved}
        if single and one.short:
            failed.update((name, changed[name][1]) for name in moved)
        lead = one if pays else lead
    return None if lead is None else SearchState(lead.point, frozenset(tried), frozenset(failed), turns)


def _leading(changed: Collection[str]) -> tuple[str, ...]:
    """Of the knobs that changed, those that did not merely follow: an engine's own settings follow the engine."""
    return tuple(n for n in changed if n not in KNOBS or not set(KNOBS[n].needs) & set(changed))


def stake(knob: Knob | None, of_phases: Mapping[str, float], engine: KnobValue | None = None) -> tuple[bool, float]:
    """Whether ``knob`` acts on the limiting phase, and the share of a cycle in the phases it acts on.

    Args:
        knob: ``None`` for one that is not in the catalogue, which may act on all.
        of_phases: share of a cycle by phase; empty if not known.
    """
    if knob is None or not knob.phases or not of_phases:
        return True, 1.0
    acts = knob.phases - {Phase.GENERATE} if engine == VLLM and knob.name in TRAINERS else knob.phases
    limiting = max(sorted(of_phases), key=lambda phase: of_phases[phase])
    return limiting in acts, sum(of_phases.get(phase, 0.0) for phase in acts)


def last_run(trials: Sequence[Trial]) -> Configuration | None:
    """Configuration of the process that may be kept for the next trial; ``None`` if none is kept."""
    last = max(trials, key=lambda t: t.number, default=None)
    return last.configuration if last is not None and last.kind.is_searched else None


def next_move(
    grid: CandidateGrid,
    left: Mask,
    climb: SearchState,
    of_phases: Mapping[str, float],
    steps: Collection[Step] | None = None,
    last: Configuration | None = None,
) -> int | None:
    """The candidate of ``left`` that is one move from the climb's base, or ``None`` once every knob had its turn.

    Rounding goes before learning, then the knob with most at stake; where that decides nothing, what saves no memory,
    then what ``last``'s process can run without a restart; of a knob's values, the one that needs more memory.

    Args:
        grid: the candidates; ``climb.point`` need not be one of them.
        of_phases: share of the base's cycle by phase; empty if not known.
        steps: the only places that may be moved to; all if ``None``.
        last: what ran last (``last_run``).
    """
    places = list(KNOBS)
    base = {d.name: d.values[place] for d, place in zip(grid.dimensions, climb.point, strict=True)}
    found: list[tuple[tuple[int, int, bool, float, bool, int, int, float], int]] = []
    for dimension in grid.dimensions:
        limiting, share = stake(KNOBS.get(dimension.name), of_phases, base.get(ENGINE))
        turns = climb.turns.get(dimension.name, 0)
        if turns >= TURNS or share <= NO_STAKE:
            continue
        order = places.index(dimension.name) if dimension.name in KNOBS else len(places)
        effect = KNOBS[dimension.name].effect.rank if steps is not None and dimension.name in KNOBS else 0
        for place, index in _reached(grid, left, climb, dimension, steps):
            appetite = _appetite(KNOBS.get(dimension.name), dimension.values[place], place)
            restart = 0 if last is None else int(restart_between(last, grid.candidates[index]))
            saves = _saves(KNOBS.get(dimension.name), base[dimension.name], dimension.values[place])
            found.append(((turns, effect, not limiting, -round(share, 6), saves, restart, order, -appetite), index))
    return min(found)[1] if found else None


def _reached(
    grid: CandidateGrid,
    left: Mask,
    climb: SearchState,
    dimension: Dimension,
    steps: Collection[Step] | None,
) -> Iterator[tuple[int, int]]:
    """Places of ``dimension`` a move may go to, with the candidate there: neighbours, or any without an order."""
    axis = [d.name for d in grid.dimensions].index(dimension.name)
    own, size = climb.point[axis], len(dimension.values)
    if dimension.ordered:
        ways: list[Sequence[int]] = [range(own + 1, size), range(own - 1, -1, -1)]
    else:
        ways = [(place,) for place in range(size) if place != own]
    followers = {d.name for d in grid.dimensions if d.name in KNOBS and dimension.name in KNOBS[d.name].needs}
    alike = grid.alike(climb.point, {dimension.name} | followers)
    fewer = grid.alike(climb.point, {dimension.name, ROWS} | followers) & grid.below(ROWS, climb.point)
    for way in ways:
        for place in way:
            step = (dimension.name, place)
            if step in climb.tried - climb.failed:
                break
            if steps is not None and step not in steps:
                continue
            point = (*climb.point[:axis], place, *climb.point[axis + 1 :])
            there = grid.at_place(axis, place)
            free = alike & there & left
            if step in climb.failed or not free.any():
                free = fewer & there & left
            if free.any():
                yield place, grid.nearest(point, free)
            if (alike & there).any():
                break


def _saves(knob: Knob | None, before: KnobValue, after: KnobValue) -> bool:
    """Whether ``after`` needs less memory than ``before``, of any kind: mostly it is the slower."""
    signs = [] if knob is None else [e.direction for e in knob.memory if e.direction]
    if knob is None or not signs:
        return False
    ranks = [knob.order.index(v) if v in knob.order else v for v in (before, after)]
    if not all(isinstance(rank, int | float) for rank in ranks):
        return False
    return (float(ranks[1]) - float(ranks[0])) * signs[0] < 0


def _appetite(knob: Knob | None, value: KnobValue, place: int) -> float:
    """Grows with the memory the value needs: mostly it is the faster."""
    if knob is None:
        return 0.0
    signs = [e.direction for e in knob.memory if e.direction and e.pool != "rollout_cache"]
    rank = knob.order.index(value) if value in knob.order else place
    return float(rank * signs[0]) if signs else 0.0


@dataclass(frozen=True)
class Climb:
    """Progress of one track's local search, and what its next move starts from."""

    state: SearchState
    best: Observation
    """What the phases of the base's cycle are read off; on the permitted track the headline's best."""
    steps: frozenset[Step] | None = None
    """The only places to move to: those the headline has not; ``None``: all."""
    start: Point | None = None
    """On the permitted track, where the headline's best lies."""

    def base(self, grid: CandidateGrid) -> Configuration:
        """Base of the next move: the headline's best settings with the numerics and learning that paid off."""
        start = self.state.point if self.start is None else self.start
        axes = zip(grid.dimensions, start, self.state.point, strict=True)
        changes = {d.name: d.values[place] for d, own, place in axes if place != own}
        if STEPS in changes:  # its places are rows generated
            single = self.best.configuration.with_(**{**changes, STEPS: 1})
            changes[STEPS] = steps_for(changes[STEPS], single)
        return self.best.configuration.with_(**changes)

    def move(self, grid: CandidateGrid, left: Mask, trials: Sequence[Trial]) -> int | None:
        """The candidate of ``left`` that is tried next, or ``None`` if the sampler is to choose.

        After the permitted track's last move it is the best of both tracks' settings.
        """
        measured = next((t for t in trials if t.number == self.best.number), None)
        phases = {} if measured is None else measured.phase_shares
        index = next_move(grid, left, self.state, phases, self.steps, last_run(trials))
        if index is not None or self.start in (None, self.state.point):
            return index
        both = grid.at(self.state.point)
        return both if both is not None and left[both] else None


def headline_climb(grid: CandidateGrid, same: Sequence[Observation], trials: Sequence[Trial]) -> Climb | None:
    """The headline's; ``None`` before anything held.

    Args:
        same: what is known of configurations with the baseline's learning, by trial number.
    """
    short, points = _short(trials), {e.number: grid.point(e.configuration) for e in same}
    located = ((e, points[e.number]) for e in same if e.standing is not OptunaTrialStatus.PENDING)
    seen = [Visited(point, _value(e), e.number in short) for e, point in located if point is not None]
    state = search_state(grid.dimensions, seen)
    return None if state is None else Climb(state, next(e for e in same if points[e.number] == state.point))


def permitted_climb(
    grid: CandidateGrid,
    headline: CandidateGrid,
    known: Sequence[Observation],
    same: Sequence[Observation],
    trials: Sequence[Trial],
) -> Climb | None:
    """The permitted track's; ``None`` before anything held.

    Args:
        known: what is known of all configurations, by trial number.
        same: of those, what is known of ones with the baseline's learning.
    """
    best = max((e for e in same if e.standing is OptunaTrialStatus.FEASIBLE), key=lambda e: e.value, default=None)
    start = None if best is None else grid.point(best.configuration)
    if best is None or start is None:
        return None
    steps = beyond(grid, headline, best.configuration)
    state = search_state(grid.dimensions, _gains(grid, start, steps, known, same, _short(trials)))
    return None if state is None else Climb(state, best, steps, start)


def beyond(permitted: CandidateGrid, headline: CandidateGrid, base: Configuration) -> frozenset[Step]:
    """Places that no headline candidate has, seen from ``base``, which is one."""
    speed = {d.name: set(d.values) for d in headline.dimensions}
    fixed = {**headline.coordinates(base), **permitted.coordinates(base)}
    return frozenset(
        (d.name, place)
        for d in permitted.dimensions
        for place, value in enumerate(d.values)
        if value not in speed.get(d.name, {fixed.get(d.name)})
    )


def _gains(
    grid: CandidateGrid,
    base: Point,
    steps: Collection[Step],
    known: Sequence[Observation],
    same: Sequence[Observation],
    short: Collection[int],
) -> list[Visited]:
    """Configurations tried beyond the headline, each at ``base``'s speed settings, with its gain over none of it."""
    plain = {grid.point(e.configuration): e.value for e in same if e.standing is OptunaTrialStatus.FEASIBLE}
    own = {e.number for e in same}
    seen = [Visited(base, 0.0)]
    for e in known:
        point = grid.point(e.configuration)
        if point is None or e.number in own or e.standing is OptunaTrialStatus.PENDING:
            continue
        axes = list(zip(grid.dimensions, base, point, strict=True))
        without = tuple(ours if (d.name, theirs) in steps else theirs for d, ours, theirs in axes)
        lifted = tuple(theirs if (d.name, theirs) in steps else ours for d, ours, theirs in axes)
        if e.standing is OptunaTrialStatus.CENSORED:
            # At most so much: enough to know that it does not pay here, never that it does.
            if without in plain and e.value <= plain[without] + PAYS:
                seen.append(Visited(lifted, None))
            continue
        value = _value(e)
        if value is None:
            seen.append(Visited(lifted, None, e.number in short))
        elif without in plain:
            seen.append(Visited(lifted, value - plain[without]))
    return seen


def _short(trials: Sequence[Trial]) -> frozenset[int]:
    """Numbers of the trials that ran out of memory."""
    return frozenset(t.number for t in trials if t.outcome is not None and t.outcome.reason is FailureReason.OOM)


def _value(evidence: Observation) -> float | None:
    return evidence.value if evidence.standing is OptunaTrialStatus.FEASIBLE else None


LISTED = 50_000
"""Candidates that are listed at most; a space with as many was drawn from."""
KEPT = 16
"""Neighbourhoods remembered: a climb asks about the same base again and again."""


Near = Callable[..., tuple[Configuration, ...]]
"""(configuration, same_learning=...) -> its neighbours."""


def neighbourhoods(space: SearchSpace, baseline: Configuration, resources: Resources) -> Near:
    """Tells the legal configurations that differ from one in one knob, where the space is too large to be listed.

    Of such a space the candidates are drawn by chance (``SearchSpace.candidates``), and hardly any two of them differ
    in one knob alone. Each neighbour comes once, in an order that depends on nothing but the arguments.

    With a knob goes what follows from it: the settings only it brings into play, or else other rows, where it takes
    their memory, and the steps per generation, which are counted in micro-batches.
    """

    def along(name: str, base: Configuration, same_learning: bool) -> Sequence[Configuration]:
        followers = {n for n in space.values if n in KNOBS and name in KNOBS[n].needs}
        narrow = space.about(base, {name, *(followers or (ROWS, STEPS))})
        return narrow.candidates(baseline, resources, same_learning=same_learning, limit=LISTED)

    @lru_cache(maxsize=KEPT)
    def of(base: Configuration, *, same_learning: bool) -> tuple[Configuration, ...]:
        return tuple(dict.fromkeys(c for name in space.values for c in along(name, base, same_learning)))

    return of

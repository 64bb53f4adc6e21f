"""The climb of each track: what its moves start from, and what is made of the other track's trials.

Pure, like ``moves``. The headline climbs by tokens/hour. The permitted track starts at the headline's best settings
and climbs by what a change of numerics or learning gains over the same settings without it, so that what was learnt at
earlier settings holds at better ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from autotune.domain import FailureReason, Trial
from autotune.proposals.lattice import STEPS, Lattice, Mask, Point, steps_for
from autotune.proposals.moves import PAYS, Ascent, Seen, Step, ascent, last_run, next_move
from autotune.proposals.translation import Evidence, Standing
from search_spaces.configuration import Configuration
from search_spaces.knobs import Knob


def headline_climb(
    lattice: Lattice, same: Sequence[Evidence], trials: Sequence[Trial], knobs: Mapping[str, Knob]
) -> Ascent | None:
    """How far the headline's climb has come; ``None`` before anything held.

    Args:
        lattice: the headline's.
        same: what is known of configurations with the baseline's learning, by trial number.
        trials: what that is known from.
        knobs: the catalogue.
    """
    short = _short(trials)
    located = ((e, lattice.point(e.configuration)) for e in same if e.standing is not Standing.PENDING)
    seen = [Seen(point, _value(e), e.number in short) for e, point in located if point is not None]
    return ascent(lattice.dimensions, seen, knobs)


def headline_base(
    lattice: Lattice, same: Sequence[Evidence], trials: Sequence[Trial], knobs: Mapping[str, Knob]
) -> Configuration | None:
    """What the headline's next move starts from, or ``None`` before anything held."""
    climb = headline_climb(lattice, same, trials, knobs)
    if climb is None:
        return None
    return next((e.configuration for e in same if lattice.point(e.configuration) == climb.point), None)


def permitted_base(
    lattice: Lattice,
    headline: Lattice,
    known: Sequence[Evidence],
    same: Sequence[Evidence],
    trials: Sequence[Trial],
    knobs: Mapping[str, Knob],
) -> Configuration | None:
    """The headline's best settings with the numerics and learning that paid, or ``None`` before anything held."""
    found = _permitted_climb(lattice, headline, known, same, trials, knobs)
    if found is None:
        return None
    best, base, _, climb = found
    axes = zip(lattice.dimensions, base, climb.point, strict=True)
    changes = {d.name: d.values[place] for d, own, place in axes if place != own}
    if STEPS in changes:  # its places are rows generated
        changes[STEPS] = steps_for(changes[STEPS], best.configuration.with_(**{**changes, STEPS: 1}))
    return best.configuration.with_(**changes)


def headline_move(
    lattice: Lattice, left: Mask, same: Sequence[Evidence], trials: Sequence[Trial], knobs: Mapping[str, Knob]
) -> int | None:
    """The candidate of ``left`` the headline track tries next, or ``None`` if the sampler is to choose."""
    climb = headline_climb(lattice, same, trials, knobs)
    if climb is None:
        return None
    base = next((e for e in same if lattice.point(e.configuration) == climb.point), None)
    return next_move(lattice, left, climb, _phases(trials, base), knobs, last=last_run(trials))


def permitted_move(
    lattice: Lattice,
    headline: Lattice,
    left: Mask,
    known: Sequence[Evidence],
    same: Sequence[Evidence],
    trials: Sequence[Trial],
    knobs: Mapping[str, Knob],
) -> int | None:
    """The candidate of ``left`` the permitted track tries next, or ``None`` if the sampler is to choose.

    After the last move it is the best of both: the headline's settings with the numerics and learning that paid.

    Args:
        lattice: the permitted track's.
        headline: the headline's.
        left: candidates of ``lattice`` that may be chosen.
        known: what is known of all configurations, by trial number.
        same: of those, what is known of ones with the baseline's learning.
        trials: where the phases of a configuration's cycle are found.
        knobs: the catalogue.
    """
    found = _permitted_climb(lattice, headline, known, same, trials, knobs)
    if found is None:
        return None
    best, base, steps, climb = found
    move = next_move(lattice, left, climb, _phases(trials, best), knobs, steps, last_run(trials))
    if move is not None or climb.point == base:
        return move
    both = lattice.at(climb.point)
    return both if both is not None and left[both] else None


def _permitted_climb(
    lattice: Lattice,
    headline: Lattice,
    known: Sequence[Evidence],
    same: Sequence[Evidence],
    trials: Sequence[Trial],
    knobs: Mapping[str, Knob],
) -> tuple[Evidence, Point, frozenset[Step], Ascent] | None:
    """(The headline's best, its point, the places beyond the headline, how far the climb over them has come)."""
    best = max((e for e in same if e.standing is Standing.FEASIBLE), key=lambda e: e.value, default=None)
    base = None if best is None else lattice.point(best.configuration)
    if best is None or base is None:
        return None
    steps = beyond(lattice, headline, best.configuration)
    climb = ascent(lattice.dimensions, _gains(lattice, base, steps, known, same, _short(trials)), knobs)
    return None if climb is None else (best, base, steps, climb)


def beyond(permitted: Lattice, headline: Lattice, base: Configuration) -> frozenset[Step]:
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
    lattice: Lattice,
    base: Point,
    steps: Collection[Step],
    known: Sequence[Evidence],
    same: Sequence[Evidence],
    short: Collection[int],
) -> list[Seen]:
    """What was tried beyond the headline, each at ``base``'s speed settings, with its gain over none of it."""
    plain = {lattice.point(e.configuration): e.value for e in same if e.standing is Standing.FEASIBLE}
    own = {e.number for e in same}
    seen = [Seen(base, 0.0)]
    for e in known:
        point = lattice.point(e.configuration)
        if point is None or e.number in own or e.standing is Standing.PENDING:
            continue
        axes = list(zip(lattice.dimensions, base, point, strict=True))
        without = tuple(ours if (d.name, theirs) in steps else theirs for d, ours, theirs in axes)
        lifted = tuple(theirs if (d.name, theirs) in steps else ours for d, ours, theirs in axes)
        if e.standing is Standing.CENSORED:
            # At most so much: enough to know that it does not pay here, never that it does.
            if without in plain and e.value <= plain[without] + PAYS:
                seen.append(Seen(lifted, None))
            continue
        value = _value(e)
        if value is None:
            seen.append(Seen(lifted, None, e.number in short))
        elif without in plain:
            seen.append(Seen(lifted, value - plain[without]))
    return seen


def _short(trials: Sequence[Trial]) -> frozenset[int]:
    """Numbers of the trials that ran out of memory."""
    return frozenset(t.number for t in trials if t.outcome is not None and t.outcome.reason is FailureReason.OOM)


def _value(evidence: Evidence) -> float | None:
    return evidence.value if evidence.standing is Standing.FEASIBLE else None


def _phases(trials: Sequence[Trial], base: Evidence | None) -> Mapping[str, float]:
    measured = next((t for t in trials if base is not None and t.number == base.number), None)
    return {} if measured is None else measured.phase_shares

"""What the benchmark says of the figures a search is to reach: met, missed, or not told by so many seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from benchmarks.search import report, targets
from benchmarks.search.replay import Course, difference

TRIALS = 30


def course(arm: str, seed: int, at: int, lacks: float = 0.0, ooms: int = 0) -> Course:
    """It lacks half until trial ``at``, then ``lacks``; the first ``ooms`` trials run out of memory."""
    missing = tuple(0.5 if n < at else lacks for n in range(1, TRIALS + 1))
    failed = tuple(n < ooms for n in range(TRIALS))
    return Course(
        arm, "w", seed, tuple(range(TRIALS)), (1.0,) * TRIALS, tuple(float(f) for f in failed), failed, missing
    )


def words(courses: Sequence[Course]) -> Mapping[str, str]:
    found = targets.targets(report.lines(courses), courses)
    return {t.name: t.word for t in found}


def test_a_search_that_reaches_everything_passes_everything() -> None:
    grey = [course("grey", seed, 4) for seed in range(6)]
    peer = [course("gp+filter", seed, 9) for seed in range(6)]
    wrong = [course("grey-wrong", seed, 8) for seed in range(6)]
    found = words([*grey, *peer, *wrong])
    assert len(found) == 7
    assert set(found.values()) == {"pass"}


@pytest.mark.parametrize(
    ("courses", "missed"),
    [
        ([course("grey", seed, 5) for seed in range(6)], {"trials to 10%"}),
        ([course("grey", seed, 4, lacks=0.06) for seed in range(6)], {"trials to 5%", "trials to 2%"}),
        ([course("grey", seed, 4, ooms=3) for seed in range(6)], {"OOMs in 30 trials", "seconds lost to them"}),
        (
            [course(arm, seed, at) for arm, at in (("grey", 4), ("tpe+filter", 7)) for seed in range(6)],
            {"trials to 5% of the best peer"},
        ),
    ],
)
def test_what_is_not_reached_is_named(courses: Sequence[Course], missed: set[str]) -> None:
    assert {name for name, word in words(courses).items() if word == "MISS"} == missed


def test_a_peer_without_our_filter_is_no_measure() -> None:
    courses = [course(arm, seed, at) for arm, at in (("grey", 4), ("tpe", 5)) for seed in range(6)]
    assert "trials to 5% of the best peer" not in words(courses)


@pytest.mark.parametrize(
    ("lacks", "word"),
    [
        ((0.05, 0.05, 0.05, 0.05, 0.05, 0.05), "MISS"),
        ((-0.05, -0.04, -0.05, -0.06, -0.05, -0.05), "pass"),
        ((0.1, -0.08, 0.1, -0.08, 0.1, -0.08), "open"),
    ],
)
def test_a_wrong_prior_is_compared_seed_by_seed(lacks: Sequence[float], word: str) -> None:
    """Each seed's own peer: what seeds differ by among themselves says nothing of either."""
    own = [0.1 * seed + 0.2 for seed in range(6)]
    peer = [course("gp+filter", seed, 1, lacks=own[seed]) for seed in range(6)]
    wrong = [course("grey-wrong", seed, 1, lacks=own[seed] + more) for seed, more in enumerate(lacks)]
    (name,) = (n for n in words([*peer, *wrong]))
    assert name == "grey-wrong lacks over gp+filter at 20"
    assert words([*peer, *wrong]) == {name: word}
    assert words(wrong) == {}


def test_the_mean_difference_has_an_interval_around_it() -> None:
    found = difference([3.0, 4.0, 5.0], [1.0, 1.0, 1.0], np.random.default_rng(0))
    assert found.middle == pytest.approx(3.0)
    assert found.low < 3.0 < found.high
    assert difference([1.0] * 4, [1.0] * 4, np.random.default_rng(0)).low == 0.0


def test_lines_are_said_under_the_tables_name() -> None:
    courses = [course("grey", seed, 5) for seed in range(6)]
    said = targets.said("mine", targets.targets(report.lines(courses), courses))
    assert said[0] == "mine: what a search is to reach"
    assert said[1].split() == ["MISS", "trials", "to", "10%", "5", "(<=", "4)"]
    assert targets.said("mine", []) == []

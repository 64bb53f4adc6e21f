"""The benchmark of earlier studies: the machines it makes, and what it prints."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.proposals.forecasts import EarlierTrials, PriorData
from benchmarks import related_studies as bench


def update_seconds(found: EarlierTrials) -> tuple[list[int], np.ndarray]:
    """Places and log seconds of the update, of what was measured."""
    places = {c: i for i, c in enumerate(bench.EVERY)}
    held = [t for t in found.trials if t.feasible]
    seconds = [sum(c.phases["update"] for c in t.speed_cycles()) / bench.CYCLES for t in held]
    return [places[t.configuration] for t in held], np.log(seconds)


def test_configurations_differ_and_the_batch_is_the_same() -> None:
    assert len(set(bench.EVERY)) == len(bench.EVERY) == 512
    assert {int(c["micro_batch_size"]) * int(c["gradient_accumulation_steps"]) for c in bench.EVERY} == {8}


@pytest.mark.parametrize("seed", range(3))
def test_a_machine_is_the_same_again_and_a_quarter_does_not_fit(seed: int) -> None:
    one, other = (bench.machine(bench.task_of(), *bench.drawn(np.random.default_rng(seed))).limited() for _ in range(2))
    assert np.array_equal(one.whole, other.whole)
    assert one.fits()[0]
    assert 0.7 < one.fits().mean() < 1.0
    first, again = (one.run(3, 4, np.random.default_rng(7)) for _ in range(2))
    assert first == again


def test_histories_are_what_they_are_called() -> None:
    effects, parts = bench.drawn(np.random.default_rng(3))
    here, plain = (bench.machine(bench.task_of(), e, parts).seconds["update"] for e in (effects, {}))
    moved, likeness = np.log(here / plain), {}
    for arm in bench.ARMS[1:]:
        (there,) = bench.history(arm, effects, parts, np.random.default_rng(5))
        places, logs = update_seconds(there)
        beyond = logs - np.log(bench.machine(there.task, {}, parts).seconds["update"][places])
        likeness[arm] = float(np.corrcoef(beyond, moved[places])[0, 1])
    assert likeness["related"] > 0.8
    assert likeness["adversarial"] < -0.8
    assert bench.history("none", effects, parts, np.random.default_rng(5)) == ()


def test_a_search_counts_the_trials_it_needs() -> None:
    here = bench.machine(bench.task_of(), *bench.drawn(np.random.default_rng(2))).limited()
    found = bench.search(here, PriorData(), 0, 3)
    assert found == bench.search(here, PriorData(), 0, 3)
    assert all(n in (1, 2, 3, math.inf) for n in found.reached)
    assert found.reached[0] <= found.reached[1]


def test_what_was_not_reached_is_said_so() -> None:
    runs = [bench.Found((2.0, math.inf), 1), bench.Found((4.0, math.inf), 0), bench.Found((3.0, 9.0), 0)]
    lines = bench.table({"none": runs}).splitlines()
    assert lines[0].split() == ["history", "to", "10%", "to", "5%", "out", "of", "memory"]
    assert lines[1].split("  ")[0] == "none"
    assert "3 (4)" in lines[1]
    assert "not reached (not reached)" in lines[1]
    assert lines[1].endswith("0.3")

"""What a run's log foretells: a false alarm costs a restart, a missed one the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest

from autotune.watch.findings import Finding, Level, look, news
from autotune.watch.series import GIB, Series
from tests.unit.watch.made_runs import growing, steps_until

LIMIT = 78.0


def seen(lines: Sequence[str], limit: float | None = LIMIT, tuned: object = None) -> dict[str, Finding]:
    series = Series()
    series.read(lines)
    return {f.kind: f for f in look(series, limit and limit * GIB, tuned)}  # type: ignore[arg-type]


def urgent(lines: Sequence[str], limit: float | None = LIMIT) -> list[str]:
    return [f.kind for f in seen(lines, limit).values() if f.level]


@pytest.mark.parametrize("slope", [8.0, 20.0, 60.0])
@pytest.mark.parametrize("seed", range(4))
def test_the_step_that_runs_out_of_memory_is_foretold_from_the_first_half(slope: float, seed: int) -> None:
    lines = growing(1500, longest=lambda i: 1000 + slope * i, seed=seed)
    truth = steps_until(LIMIT, lines)
    for share in (0.5, 0.6, 0.75, 0.9):
        found = seen(lines[: int(share * truth)]).get("memory")
        if found is None:
            assert share * truth < 30, "too few steps for a trend"
            continue
        assert found.step == pytest.approx(truth, rel=1 / 3), share
        assert found.level >= Level.SOON
        assert "of a micro-batch's rows fit" in found.sentence


def test_the_last_hour_is_urgent() -> None:
    lines = growing(1500, longest=lambda i: 1000 + 8.0 * i)
    truth = steps_until(LIMIT, lines)
    assert seen(lines[: truth // 2])["memory"].level is Level.SOON
    assert seen(lines[: truth - 20])["memory"].level is Level.NOW


@pytest.mark.parametrize("seed", range(6))
def test_a_run_that_does_not_grow_gives_no_alarm_at_any_step(seed: int) -> None:
    lines = growing(400, longest=lambda _: 3000.0, seed=seed)
    assert [steps for steps in range(5, 400, 9) if urgent(lines[:steps])] == []


@pytest.mark.parametrize("seed", range(4))
def test_a_run_whose_lengths_level_off_below_the_limit_gives_no_alarm_once_they_do(seed: int) -> None:
    lines = growing(400, longest=lambda i: 3500.0 - 2500.0 * math.exp(-i / 40), seed=seed)
    assert float(lines[-1].rpartition(":")[2]) < LIMIT
    lines = [f"{round(i / 4)}%|##| {i}/400 [{i}:00<1:00:00, 60s/it]\n{line}" for i, line in enumerate(lines, start=1)]
    whole = [part for line in lines for part in line.split("\n")]
    assert [steps for steps in range(200, 400, 10) if urgent(whole[: 2 * steps])] == []


def test_lengths_that_reach_their_own_limit_foretell_nothing() -> None:
    assert (
        urgent(
            growing(300, longest=lambda i: min(3000.0, 1000.0 + 20.0 * i), memory=lambda _, n: 30 + 0.01 * min(n, 3000))
        )
        == []
    )


def test_without_a_limit_or_without_memory_in_the_log_nothing_is_said_of_memory() -> None:
    lines = growing(200, longest=lambda i: 1000 + 15.0 * i)
    assert "memory" in seen(lines)
    assert "memory" not in seen(lines, limit=None)
    assert "memory" not in seen(growing(200, longest=lambda i: 1000 + 15.0 * i, memory=None))


def test_memory_that_does_not_follow_the_lengths_is_not_continued_with_them() -> None:
    assert "memory" not in seen(growing(200, longest=lambda i: 1000 + 15.0 * i, memory=lambda _, __: 60.0))


def test_the_end_of_the_run_before_the_step_is_silence() -> None:
    lines = growing(1500, longest=lambda i: 1000 + 8.0 * i)
    half = lines[: steps_until(LIMIT, lines) // 2]
    bar = "12%|##| {}/{} [10:00<1:00:00, 60s/it]"
    assert "memory" in seen([bar.format(len(half), 1500), *half])
    assert "memory" not in seen([bar.format(len(half), len(half) + 50), *half])


def slow_from(step: int, factor: float) -> Callable[[int, float], float]:
    return lambda i, length: (20.0 + 0.01 * length) * (factor if i >= step else 1.0)


def test_a_step_that_became_slower_without_longer_rows_is_named_with_its_beginning() -> None:
    lines = growing(300, longest=lambda _: 3000.0, seconds=slow_from(200, 1.3))
    assert "slower" not in seen(lines[:195])
    for steps in (215, 240, 300):
        found = seen(lines[:steps])["slower"]
        assert found.level is Level.SOON
        said = int(found.sentence.partition("step ")[2].partition(":")[0])
        assert said == pytest.approx(200, abs=10)


def test_a_step_that_became_slower_with_longer_rows_is_not() -> None:
    assert "slower" not in seen(growing(300, longest=lambda i: 1000 + 10.0 * i))
    assert "slower" not in seen(growing(300, longest=lambda _: 3000.0, seconds=slow_from(200, 1.08)))


def test_memory_that_grows_at_equal_lengths_is_a_leak_and_meets_the_limit() -> None:
    found = seen(growing(200, longest=lambda _: 3000.0, memory=lambda i, _: 50.0 + 0.1 * i))["leak"]
    assert found.level is Level.SOON
    assert found.step == pytest.approx(280, rel=0.1)


def test_an_allocator_that_fills_up_is_no_leak() -> None:
    filled = growing(200, longest=lambda _: 3000.0, memory=lambda i, _: 50.0 + 0.5 * min(i, 12))
    assert "leak" not in seen(filled)
    assert "leak" not in seen(growing(200, longest=lambda i: 1000 + 15.0 * i))


def test_speed_and_lengths_are_notes() -> None:
    found = seen(growing(200, longest=lambda i: 1000 + 5.0 * i))
    assert found["speed"].level is Level.NOTE
    assert "the first 20 steps" in found["speed"].sentence
    assert "a step" in found["lengths"].sentence
    assert "lengths" not in seen(growing(200, longest=lambda _: 1000.0))


def test_a_run_that_ran_out_of_memory_is_told() -> None:
    lines = [
        *growing(40, longest=lambda _: 900.0),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
    ]
    found = seen(lines)["out_of_memory"]
    assert found.level is Level.NOW
    assert "after step 40" in found.sentence


class Stated:
    """A study that stated a second a hundred tokens, with another configuration that is faster beyond 2,000."""

    name, mean_length, longest_allowed = "first", 500.0, 10**6

    def seconds(self, mean: float, longest: float) -> float:
        return longest / 100.0

    def fits(self, longest: float) -> float:
        return 1.0

    def setting_for(self, longest: float) -> str:
        return ""

    def faster(self, mean: float, longest: float) -> tuple[str, float] | None:
        return ("the configuration with micro 4", 0.2) if longest > 2000 else None


def test_seconds_a_step_are_held_against_what_the_study_stated_at_this_length() -> None:
    stated = growing(100, longest=lambda _: 1500.0, seconds=lambda _, n: n / 100)
    slow = growing(100, longest=lambda _: 1500.0, seconds=lambda _, n: n / 80)
    assert seen(stated, tuned=Stated())["speed"].level is Level.NOTE
    assert seen(slow, tuned=Stated())["speed"].level is Level.SOON
    assert "expected by study first" in seen(stated, tuned=Stated())["speed"].sentence


def test_the_step_from_which_another_configuration_is_faster_is_foretold() -> None:
    grows = growing(100, longest=lambda i: 1000 + 6.0 * i)
    found = seen(grows, tuned=Stated())["another"]
    assert found.step == pytest.approx(160, rel=1 / 3)
    assert "tune again" in found.sentence
    assert "another" not in seen(growing(100, longest=lambda _: 1500.0), tuned=Stated())
    assert seen(growing(100, longest=lambda _: 2500.0), tuned=Stated())["another"].sentence.startswith("now ")


def test_what_was_stated_is_stated_again_only_if_it_is_more_urgent_or_elsewhere() -> None:
    soon = Finding("memory", Level.SOON, "", 300.0)
    assert news([], [soon]) == (soon,)
    assert news([soon], [Finding("memory", Level.SOON, "", 320.0)]) == ()
    later, now = Finding("memory", Level.SOON, "", 500.0), Finding("memory", Level.NOW, "", 300.0)
    assert news([soon], [later]) == (later,)
    assert news([soon], [now]) == (now,)
    assert news([now], [soon]) == ()

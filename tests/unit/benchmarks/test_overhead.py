"""What the comparison of cold and warm trials does with what was measured."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import FailureReason, Outcome
from autotune.ports import Assignment, RunReport, StopToken, Watcher
from autotune.running.environment import child_environment
from benchmarks import overhead
from benchmarks.overhead import Asked, Bench, Heard, predicted, row_of
from benchmarks.overhead_list import order
from benchmarks.overhead_table import (
    BARE,
    COLD,
    WARM,
    both,
    cycle_noise,
    decided,
    markdown,
    pairs,
    parts,
    per_hour,
    preparing,
    speed,
)
from tests.support import factories as make
from trainer.child.contract import NoteRecord, StartupPart, StartupRecord


def row(mode: str = COLD, block: int = 0, index: int = 0, **changes: Any) -> dict[str, Any]:
    cycle = {"kind": "recorded", "seconds": 2.0, "tokens": 100, "accepted": True, "noisy": False, "drift": 0.01}
    base = {
        "block": block,
        "mode": mode,
        "index": index,
        "reason": None,
        "message": "",
        "seconds": 20.0 if mode == COLD else 10.0,
        "startup": {"spawn": 1.0, "import": 5.0 if mode == COLD else 0.0, "load": 2.0, "first_batch": 1.0},
        "cycles": [{**cycle, "outside_cpu": 0.0}, {**cycle, "outside_cpu": 0.02, "seconds": 2.2}],
        "host_peak": 3 << 30,
        "notes": [],
    }
    return {**base, **changes}


def test_blocks_alternate_and_every_second_pair_is_turned_round() -> None:
    places = order(2, 2)
    assert len(places) == len(set(places)) == 8
    turned = [(0, COLD), (0, WARM), (1, WARM), (1, COLD)]
    assert [(block, mode) for block, mode, index in places if index == 0] == turned
    assert [index for _, _, index in places] == [0, 1] * 4


def test_in_turns_the_two_of_a_configuration_are_neighbours_and_neither_mode_is_always_first() -> None:
    places = order(2, 3, in_turns=True)
    assert sorted(places) == sorted(order(2, 3))
    couples = list(zip(places[::2], places[1::2], strict=True))
    assert all((a[0], a[2]) == (b[0], b[2]) and a[1] != b[1] for a, b in couples)
    assert [first[1] for first, _ in couples] == [COLD, WARM, COLD, WARM, COLD, WARM]


def test_bare_is_a_mode_beside_the_two() -> None:
    places = order(2, 2, bare=True)
    assert [mode for _, mode, index in places if index == 0] == [BARE, COLD, WARM, WARM, COLD, BARE]
    assert sorted(place for place in places if place[1] != BARE) == sorted(order(2, 2))


def test_the_page_has_bare_trials_only_where_there_are_some_and_compares_them_by_their_rate_alone() -> None:
    two = [row(), row(WARM)]
    assert "bare" not in markdown(two, ["defaults"], "A machine.")
    page = markdown([row(BARE, seconds=40.0, host_peak=9 << 30), *two], ["defaults"], "A machine.")
    assert "| part | bare, s a trial | share | cold, s a trial | share | warm, s a trial | share |" in page
    assert "Warm ÷ bare decided trials per hour: **4.00**." in page
    assert "Warm ÷ cold decided trials per hour: **2.00**." in page
    assert "3.00 | 3.00 | +0.0%" in page  # the paired table is of cold and warm


def test_of_a_configuration_without_its_bare_trial_nothing_is_compared() -> None:
    rows = [row(BARE), row(), row(WARM), row(index=1), row(WARM, index=1)]
    assert both(rows) == rows[:3]


def test_a_bare_trial_finds_its_caches_empty_and_leaves_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in overhead.KEPT_BY:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", "/mine")
    (tmp_path / "caches" / "TRITON_CACHE_DIR").mkdir(parents=True)
    with overhead.empty_caches(tmp_path / "caches"):
        places = [Path(os.environ[name]) for name in overhead.KEPT_BY]
        assert not any(place.exists() for place in places)
        places[0].mkdir(parents=True)
        assert child_environment(os.environ, "tag").keys() >= set(overhead.KEPT_BY)  # a trial sees them
    assert os.environ["TRITON_CACHE_DIR"] == "/mine"
    assert not any(name in os.environ for name in overhead.KEPT_BY if name != "TRITON_CACHE_DIR")
    assert not (tmp_path / "caches").exists()


def test_speed_is_of_recorded_cycles_that_count() -> None:
    good = row()
    lost = {**good["cycles"][0], "accepted": False, "tokens": 10**6}
    warmup = {**good["cycles"][0], "kind": "warmup", "tokens": 10**6}
    assert speed({**good, "cycles": [warmup, lost, *good["cycles"]]}) == pytest.approx(3600 * 200 / 4.2)
    assert speed({**good, "cycles": [warmup]}) is None


def test_a_failure_of_the_configuration_is_decided_and_one_of_the_machine_is_not() -> None:
    rows = [row(), row(reason="OOM"), row(reason="INFRA")]
    assert decided(rows) == 2
    assert per_hour(rows) == pytest.approx(3600 * 2 / 60)


def test_every_second_is_in_one_part() -> None:
    rows = [row(), row(WARM)]
    found = parts(rows)
    assert sum(found.values()) == pytest.approx(30.0)
    assert found["import"] == 5.0
    assert found["cycles"] == pytest.approx(8.4)
    assert preparing(rows) == pytest.approx((1 + 5 + 2 + 1 + 0 + 2) / 30)


def test_only_what_both_modes_have_is_compared() -> None:
    rows = [row(), row(WARM), row(index=1), row(block=1), row(WARM, block=1, reason="OOM")]
    assert len(both(rows)) == 4
    assert pairs(rows, 0) == [(rows[0], rows[1])]
    assert pairs(rows, 1) == []


def test_noise_is_pooled_within_trials() -> None:
    slow = row()
    slow["cycles"] = [{**c, "seconds": 10 * c["seconds"]} for c in slow["cycles"]]
    assert cycle_noise([row(), slow]) == pytest.approx(cycle_noise([row()]))
    assert cycle_noise([]) is None


def test_the_page_states_ratio_parts_pairs_and_noise() -> None:
    page = markdown([row(), row(WARM, host_peak=(3 << 30) * 1.01)], ["defaults", "other"], "A machine.")
    assert "Warm ÷ cold decided trials per hour: **2.00**." in page
    assert "| import | 5.00 | 25.0% | 0.00 | 0.0% |" in page
    assert "+0.0%" in page
    assert "3.00 | 3.03 | +1.0%" in page
    assert "| other | 0 |" in page
    assert "Disturbed cycles that were kept: 0 of 4." in page


def test_all_pairs_together_say_whether_warm_trials_measure_the_same() -> None:
    faster = row(WARM)
    faster["cycles"] = [{**c, "seconds": c["seconds"] / 1.21} for c in faster["cycles"]]
    page = markdown([row(), faster, row(index=1), row(WARM, index=1)], ["one", "two"], "A machine.")
    assert "Warm - cold over all pairs: tokens/hour +10.0% (95 % interval -" in page
    assert "2 pairs, which scatter by 13.5%), peak +0.0% (95 % interval +0.0% to +0.0%" in page
    alone = markdown([row(), row(WARM)], ["one"], "A machine.")
    assert "tokens/hour +0.0%, peak +0.0%." in alone


def test_in_turns_nothing_warm_is_kept_beside_a_cold_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"one": make.configuration(), "two": make.configuration(micro_batch_size=2)}
    bench = Bench(tmp_path, make.study_spec(), None, names, make.LENGTHS, 1, in_turns=True)  # type: ignore[arg-type]
    made: list[str] = []

    class Closing(MadeUp):
        def close(self) -> tuple[int, ...]:
            made.append("closed")
            return ()

    def runner(self: Bench, mode: str) -> MadeUp:
        made.append(mode)
        return Closing(Asked(), 99)

    monkeypatch.setattr(Bench, "runner", runner)
    assert bench.go_on(1000.0, Asked()) == 0
    assert made == [COLD, "closed", WARM, "closed", COLD, "closed"]
    assert [row["mode"] for row in bench.done()] == [COLD, WARM, WARM, COLD]


def test_a_page_of_nothing_can_be_written() -> None:
    assert "No recorded cycle yet." in markdown([], ["defaults"], "A machine.")


def test_a_trial_is_predicted_by_the_longest_like_it() -> None:
    done = [row(), row(WARM), row(index=1, seconds=90.0)]
    assert predicted(done, (1, WARM, 0)) == pytest.approx(1.25 * 20)
    assert predicted(done, (1, COLD, 2)) == overhead.FIRST_S


class MadeUp:
    """A runner that is done at once."""

    def __init__(self, asked: Asked, after: int) -> None:
        self.ran: list[Assignment] = []
        self._asked, self._after = asked, after

    def close(self) -> tuple[int, ...]:
        return ()

    def run(self, assignment: Assignment, watcher: Watcher, stop: StopToken) -> RunReport:
        self.ran.append(assignment)
        watcher.record(StartupRecord(StartupPart.LOAD, 1.0))
        watcher.record(make.cycle(0, seconds=2.0))
        if len(self.ran) == self._after:
            self._asked.level = 2
        return RunReport(Outcome(), 5.0, host_peak=1 << 30)


def test_a_run_goes_on_where_it_was_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"one": make.configuration(), "two": make.configuration(micro_batch_size=2)}
    bench = Bench(tmp_path, make.study_spec(), None, names, make.LENGTHS, blocks=2)  # type: ignore[arg-type]
    asked, made = Asked(), []

    def runner(self: Bench, mode: str) -> MadeUp:
        made.append(MadeUp(asked, 2 if len(made) == 1 else 99))
        return made[-1]

    monkeypatch.setattr(Bench, "runner", runner)
    assert bench.go_on(1000.0, asked) == 8 - 3, "the fourth was stopped, and is not kept"
    asked.level = 0
    assert bench.go_on(1000.0, asked) == 0
    places = [(r["block"], r["mode"], r["index"]) for r in bench.done()]
    assert places == order(2, 2)
    assert (tmp_path / "overhead.md").read_text().count("| one |") == 1


def test_a_slice_that_is_used_up_starts_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, make.study_spec(), None, {"one": make.configuration()}, make.LENGTHS, 2)  # type: ignore[arg-type]
    monkeypatch.setattr(Bench, "runner", lambda self, mode: MadeUp(Asked(), 99))
    assert bench.go_on(1.0, Asked()) == 3, "one, however long it takes, or a run would never end"


def test_what_is_kept_of_a_trial() -> None:
    heard = Heard()
    heard.record(make.cycle(0, seconds=2.0))
    heard.record(StartupRecord(StartupPart.SPAWN, 0.5))
    heard.record(NoteRecord("not_forked", {"why": "it is gone"}))
    kept = row_of((0, WARM, 1), RunReport(Outcome(FailureReason.OOM, message="too much"), 9.0), heard)
    assert (kept["reason"], kept["seconds"], kept["startup"]) == ("OOM", 9.0, {"spawn": 0.5})
    assert kept["notes"] == ["not_forked: it is gone"]
    assert kept["cycles"][0]["tokens"] > 0

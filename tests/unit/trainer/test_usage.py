"""What a process did in a cycle: counters are attributed to the cycle and phase they moved in."""

from __future__ import annotations

import gc
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support import factories as make
from trainer.child.contract import GpuUse, Phase, ProcessUse, RunPaths, dumps, parse_record
from trainer.child.journal import Journal
from trainer.child.memory import MemoryWatch
from trainer.child.meter import GcClock, GradientSync, Meter, ShapesMet, UsageWatch, allocator_use


def spin(seconds: float) -> None:
    """Use so many CPU seconds of this thread."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def test_cpu_seconds_belong_to_the_phase_and_the_thread_that_used_them() -> None:
    watch = UsageWatch()
    watch.begin(None)
    watch.mark(Phase.IDLE)
    watch.mark(Phase.GENERATE)
    spin(0.03)
    watch.mark(Phase.UPDATE)
    other = threading.Thread(target=spin, args=(0.05,))
    other.start()
    other.join()
    watch.mark(Phase.IDLE)
    use = watch.end(None)
    assert set(use.main_thread) == set(use.all_threads) == {"idle", "generate", "update"}
    assert 0.03 <= use.main_thread["generate"] <= use.all_threads["generate"] + 0.001
    assert use.all_threads["update"] >= 0.05
    assert use.main_thread["update"] < 0.05, "the other thread's work is not the main thread's"


def test_a_boundary_met_on_another_thread_still_reads_the_main_threads_clock() -> None:
    watch = UsageWatch()
    watch.begin(None)
    watch.mark(Phase.UPDATE)
    spin(0.02)
    there = threading.Thread(target=watch.mark, args=(Phase.IDLE,))
    there.start()
    there.join()
    assert watch.end(None).main_thread["update"] >= 0.02


STATS: dict[str, Any] = {
    "num_device_alloc": 10,
    "num_device_free": 4,
    "num_ooms": 1,
    "segment.all.current": 6,
    "reserved_bytes.all.current": 1000,
    "inactive_split_bytes.all.current": 300,
}


def test_the_allocators_counters_are_those_of_the_cycle() -> None:
    after = {**STATS, "num_device_alloc": 17, "num_device_free": 9, "segment.all.current": 4}
    after |= {"reserved_bytes.all.current": 800, "inactive_split_bytes.all.current": 50}
    assert allocator_use(STATS, after) == {
        "device_allocations": 7,
        "device_frees": 5,
        "device_ooms": 0,
        "new_segments": -2,
        "reserved_growth": -200,
        "split_bytes": 50,
    }


def test_what_an_older_torch_does_not_count_and_a_cpu_has_not_is_none() -> None:
    without = {name: value for name, value in STATS.items() if name != "num_device_alloc"}
    use = allocator_use(without, without)
    assert use["device_allocations"] is None
    assert use["device_frees"] == 0
    assert set(allocator_use(None, None).values()) == {None}


class Reducer:
    """A model wrapped for several ranks, as ``GradientSync`` sees it; its figures are in nanoseconds."""

    def __init__(self, logged: dict[str, Any]) -> None:
        self._next, self._logged, self.rates = logged, dict[str, Any](), list[int]()
        self.logger = self

    def _set_ddp_runtime_logging_sample_rate(self, rate: int) -> None:
        self.rates.append(rate)

    def set_runtime_stats_and_log(self) -> None:
        self._logged = self._next

    def _get_ddp_logging_data(self) -> dict[str, Any]:
        return self._logged


def test_gradients_are_summed_for_so_long_and_hidden_for_that_share() -> None:
    model = Reducer({"backward_comm_time": 80_000_000, "backward_compute_comm_overlap_time": 60_000_000})
    found = GradientSync(model).take()
    assert model.rates == [1], "every update is timed"
    assert found == {"gradient_sync_seconds": pytest.approx(0.08), "gradient_sync_hidden": pytest.approx(0.75)}


@pytest.mark.parametrize("model", [None, object(), Reducer({}), Reducer({"backward_comm_time": 0})])
def test_without_such_a_clock_or_before_an_update_nothing_is_told(model: Any) -> None:
    assert GradientSync(model).take() == {}


def test_a_shape_is_new_once() -> None:
    shapes = ShapesMet()
    shapes.meet(8, 100, last=103)
    shapes.meet(8, 102)
    shapes.meet(4, 102)
    assert shapes.take() == 5
    shapes.meet(8, 103, last=105)
    assert shapes.take() == 2
    assert shapes.take() == 0


def test_collections_are_timed_and_a_process_is_watched_once() -> None:
    GcClock.watch()
    GcClock.watch()
    assert gc.callbacks.count(GcClock._collected) == 1
    before = GcClock.seconds
    gc.collect()
    assert GcClock.seconds > before


def test_a_cycles_use_does_not_begin_before_the_cycle(tmp_path: Path) -> None:
    meter = Meter(Journal(RunPaths(tmp_path)), MemoryWatch())
    for index in (0, 1):
        spin(0.05)
        meter.begin(index, "recorded")
        with meter.phase(Phase.UPDATE):
            spin(0.01)
        meter.end()
        use = meter.usage(3)
        assert use is not None
        assert use.new_shapes == 3
        assert 0.01 <= sum(use.main_thread.values()) < 0.05
        assert use.system_seconds is not None
        assert use.system_seconds >= 0
        assert use.device_allocations is None


def test_a_meter_that_is_off_tells_nothing(tmp_path: Path) -> None:
    meter = Meter(Journal(RunPaths(tmp_path)), MemoryWatch(), enabled=False)
    meter.begin(0, "recorded")
    meter.end()
    assert meter.usage() is None


def test_a_record_survives_the_wall_and_one_of_an_earlier_version_is_read() -> None:
    whole = make.cycle(
        process=ProcessUse({"update": 1.5}, {"update": 1.6}, 0.2, 900, 3, 0.1, 12, 4, 0, 0, 2, 1 << 21, 77),
        gpu={"update": GpuUse(8, 0.45, 0.2, 1980.0, 1980.0, 900.0)},
    )
    assert parse_record(dumps(whole)) == whole
    old = {name: value for name, value in json.loads(dumps(whole)).items() if name not in ("process", "gpu")}
    read = parse_record(json.dumps(old))
    assert (read.process, read.gpu) == (None, {})  # type: ignore[union-attr]


def test_a_figure_that_is_not_finite_is_no_record() -> None:
    text = dumps(make.cycle(process=ProcessUse(gc_seconds=float("nan"))))
    with pytest.raises(Exception, match=r"cycle\.process\.gc_seconds: expected a finite number"):
        parse_record(text)

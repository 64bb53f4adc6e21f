"""Device memory and device time of a trial, over a stand-in for ``torch.cuda`` (``tests/support/standin_cuda.py``)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.running.gpu_guard import FREE_BYTES
from autotune.running.warm_worker import unfit
from tests.support.standin_cuda import GIB, StandInCuda, Stream
from trainer.child import trial, warm
from trainer.child.contract import Mailbox, Phase, RunPaths
from trainer.child.journal import Journal
from trainer.child.memory import MemoryWatch
from trainer.child.meter import Meter, ShapesMet


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> StandInCuda:
    made = StandInCuda()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=made))  # type: ignore[arg-type]
    return made


def test_memory_given_back_before_a_phase_ends_counts_in_its_peak(cuda: StandInCuda) -> None:
    """As transformers' continuous batching does with its cache."""
    watch = MemoryWatch("cuda")
    cuda.allocate(4 * GIB)
    watch.begin()
    cuda.allocate(30 * GIB)
    cuda.free(30 * GIB)
    cuda.empty_cache()
    watch.close(Phase.GENERATE)
    cuda.allocate(2 * GIB)
    watch.close(Phase.UPDATE)
    peaks = watch.peaks()
    assert peaks["generate"].device_used == 35 * GIB, "the allocator's peak, and what others hold"
    assert peaks["update"].device_used == 7 * GIB
    assert peaks["cycle"].device_used == 35 * GIB


def test_memory_that_is_kept_counts_once(cuda: StandInCuda) -> None:
    watch = MemoryWatch("cuda")
    watch.begin()
    cuda.allocate(30 * GIB)
    cuda.free(20 * GIB)
    watch.close(Phase.GENERATE)
    assert watch.peaks()["generate"].device_used == 31 * GIB


def test_a_phase_has_the_time_of_another_stream_that_it_waits_for(cuda: StandInCuda, tmp_path: Path) -> None:
    meter, engine = Meter(Journal(RunPaths(tmp_path)), MemoryWatch("cuda"), "cuda"), Stream()
    meter.begin(0, "recorded")
    with meter.phase(Phase.GENERATE):
        engine.work(2.0)
        cuda.current_stream().wait_stream(engine)
        with meter.phase(Phase.REWARD):
            cuda.current_stream().work(0.25)
    with meter.phase(Phase.UPDATE):
        cuda.current_stream().work(1.0)
    _, phases = meter.end()
    assert {name: phases[name] for name in ("generate", "reward", "update")} == {
        "generate": 2.0,
        "reward": 0.25,
        "update": 1.0,
    }


def test_a_worker_whose_gpu_memory_did_not_come_back_takes_no_other_trial(
    cuda: StandInCuda, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warm, "framework_of", lambda _: SimpleNamespace(put_back=lambda _: cuda.empty_cache() or ""))
    worker, spec = warm.WarmWorker(Mailbox(tmp_path)), SimpleNamespace(device="cuda", rewards=())
    replies = []
    for leaked in (0, FREE_BYTES, 1):
        cuda.allocate(20 * GIB + leaked)
        cuda.free(20 * GIB)
        replies.append(worker._put_back(spec))  # type: ignore[arg-type]
    assert [reply.device for reply in replies] == [GIB, GIB + FREE_BYTES, GIB + FREE_BYTES + 1]
    first, same, more = replies
    assert unfit(first, same, ()) is None
    assert "of its GPU are used between trials" in (unfit(first, more, ()) or "")


def test_shapes_are_new_once_in_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ShapesMet, "_met", {})
    taken = []
    for kind in ("bfloat16 sdpa", "bfloat16 sdpa", "float32 sdpa"):
        trial_shapes = ShapesMet(kind)
        trial_shapes.meet(8, 100, last=103)
        taken.append(trial_shapes.take())
    assert taken == [4, 0, 4]


@pytest.mark.parametrize(
    ("device", "early", "limited"), [("cuda", True, False), ("cuda", False, True), ("cpu", True, True)]
)
def test_before_cuda_has_mapped_its_memory_nothing_is_limited(
    monkeypatch: pytest.MonkeyPatch, device: str, early: bool, limited: bool
) -> None:
    monkeypatch.setattr(trial, "limit_data", lambda limit: limit)
    given: Any = SimpleNamespace(spec=SimpleNamespace(memory_limit=GIB, device=device), facts={})
    trial.TrialContext.guard_memory(given, early)
    assert given.facts == ({"rlimit_data": GIB} if limited else {})


@pytest.mark.parametrize("framework", ["trl", "ms_swift", "open_r1"])
def test_every_framework_asks_for_the_limit_before_and_after_it_has_built(framework: str) -> None:
    text = (Path(trial.__file__).parent / "frameworks" / framework / "run.py").read_text()
    assert text.index("trial.open_meter()") < text.index("trial.guard_memory()\n")

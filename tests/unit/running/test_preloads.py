"""Trials forked from a preloaded process: what they are, and that whatever goes wrong they are started instead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.running import proc
from autotune.running.local import _Ticking
from autotune.running.log import CappedLog, LogPump
from autotune.running.preloaded import UNKNOWN, Forked, Preloads, PreloadTimeouts, most_alive, preload_tag
from autotune.running.process_tree import Child, become_subreaper
from tests.support import nvidia
from tests.support.fake_framework import copy_child, write_trial
from tests.support.fakes import FakeStop
from tests.support.not_none import not_none
from tests.support.waiting import has_text, wait_for
from trainer.child.contract import Result, RunPaths, read_result

TAG = "autotune:preloads:1:%d:1"


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_child(tmp_path_factory.mktemp("child"))


@dataclass
class Bench:
    """Starts trials as the supervisor would."""

    start: Path
    folder: Path
    preloads: Preloads
    count: int = 0

    def begin(self, environment: dict[str, str] | None = None, **script: Any) -> tuple[Child, LogPump, RunPaths]:
        self.count += 1
        paths = write_trial(self.folder / str(self.count), **script)
        argv = (sys.executable, str(self.start), "trial", "--directory", str(paths.root))
        log = CappedLog(paths.log)
        child, pump = self.preloads.spawn(argv, paths.scratch, TAG % self.count, log, environment or {})
        return child, pump, paths

    def run(self, environment: dict[str, str] | None = None, **script: Any) -> tuple[Child, int, Result]:
        child, pump, paths = self.begin(environment, **script)
        code = finished(child)
        pump.finish()
        return child, code, read_result(paths.result)


@pytest.fixture
def bench(start: Path, tmp_path: Path) -> Iterator[Bench]:
    become_subreaper()
    made = Bench(start, tmp_path, Preloads(PreloadTimeouts(ready_s=240.0, answer_s=240.0)))
    yield made
    made.preloads.close()


def finished(child: Child) -> int:
    wait_for(lambda: child.poll() is not None, "the end of the trial")
    return not_none(child.poll())


def test_trials_are_forked_from_one_process_that_imported_once(bench: Bench) -> None:
    (one, code, first), (other, _, second) = bench.run(), bench.run()
    (preload,) = bench.preloads.pids
    assert isinstance(one, Forked)
    assert isinstance(other, Forked)
    assert code == 0
    assert first.data["imported"] == second.data["imported"] == [preload]
    assert first.data["parent"] == preload
    assert (first.data["pid"], second.data["pid"]) == (one.pid, other.pid)
    assert bench.preloads.take_notes() == ()


def test_a_forked_trial_has_what_a_started_one_has(bench: Bench) -> None:
    _, _, ran = bench.run()
    data, paths = ran.data, RunPaths(bench.folder / "1")
    assert data["session"] == data["pid"]
    assert data["cwd"] == str(paths.scratch)
    assert data["tag"] == TAG % 1
    assert data["argv"] == ["trial", "--directory", str(paths.root)]
    assert data["stdin"] == os.devnull
    assert "said by the trial" in paths.log.read_text()
    _, _, other = bench.run()
    assert other.data["random"] != data["random"]
    assert other.data["descriptors"] == data["descriptors"], "nothing of an earlier trial stays open"


def test_the_time_until_it_begins_is_a_part_of_the_start_up(bench: Bench) -> None:
    bench.run()
    line = RunPaths(bench.folder / "1").metrics.read_text().splitlines()[0]
    assert '"part":"spawn"' in line.replace(" ", "")


def test_the_tag_of_a_forked_trial_is_its_own_and_the_sweep_finds_what_it_was_forked_from(bench: Bench) -> None:
    child, pump, paths = bench.begin(trial="fork")
    wait_for((paths.root / "held").exists)
    assert proc.read_tag(child.pid) == TAG % 1
    (grandchild,) = [p for p in proc.list_pids() if (s := proc.read_stat(p)) is not None and s.parent == child.pid]
    assert proc.read_tag(grandchild) == TAG % 1
    (preload,) = bench.preloads.pids
    assert (proc.read_tag(preload) or "").startswith(preload_tag(TAG % 1))
    for pid in (grandchild, child.pid):
        os.kill(pid, signal.SIGKILL)
    assert finished(child) == -signal.SIGKILL
    pump.finish()


@pytest.mark.parametrize(("act", "code"), [("exit", 7), ("fail", 1)])
def test_the_exit_code_is_the_forked_processes_own(bench: Bench, act: str, code: int) -> None:
    child, pump, _ = bench.begin(trial=act)
    assert isinstance(child, Forked)
    assert finished(child) == code
    pump.finish()


def test_another_environment_or_another_key_is_another_process(bench: Bench) -> None:
    _, _, first = bench.run()
    _, _, second = bench.run({"MARK": "2"})
    assert second.data["mark"] == "2"
    assert second.data["imported"] != first.data["imported"]
    _, _, third = bench.run(key="two")
    assert len(bench.preloads.pids) == 2, "at most two are alive"
    assert third.data["imported"] not in (first.data["imported"], second.data["imported"])
    _, _, again = bench.run({"MARK": "2"})
    assert again.data["imported"] == second.data["imported"], "the one used least recently had to go"


def test_where_there_is_room_more_are_kept(bench: Bench) -> None:
    assert most_alive(None) == most_alive(8 << 30) == 2
    bench.preloads = Preloads(PreloadTimeouts(ready_s=240.0, answer_s=240.0), most=most_alive(24 << 30))
    keys = ("one", "two", "three", "four")
    first = {key: tuple(bench.run(key=key)[2].data["imported"]) for key in keys}
    assert len(set(first.values())) == len(bench.preloads.pids) == 4
    assert {key: tuple(bench.run(key=key)[2].data["imported"]) for key in keys} == first
    bench.preloads.close()


@pytest.mark.parametrize("ahead", ["raise", "thread", "cuda", "exit", "spoil"])
def test_a_process_that_cannot_be_forked_is_not_used(bench: Bench, ahead: str) -> None:
    library = str(nvidia.libraries() / "libcuda.so.1") if ahead == "cuda" else ""
    child, code, ran = bench.run(ahead=ahead, library=library)
    assert isinstance(child, subprocess.Popen)
    assert code == 0
    assert ran.data["imported"] == []
    assert bench.preloads.pids == ()
    (note,) = bench.preloads.take_notes()
    said = {"raise": "no module named vllm", "thread": "threads", "cuda": "has opened a GPU", "exit": "gone"}
    said["spoil"] = "a fork cannot compute"
    assert said[ahead] in note
    assert said[ahead] in RunPaths(bench.folder / "1").log.read_text()


def test_no_more_are_started_once_enough_have_failed(bench: Bench) -> None:
    for key in ("one", "two", "three"):
        bench.run(ahead="raise", key=key)
    assert len(bench.preloads.take_notes()) == 3
    child, code, _ = bench.run()
    assert isinstance(child, subprocess.Popen)
    assert code == 0
    assert bench.preloads.take_notes() == ()


def test_imports_that_cannot_be_shared_are_not_tried_again_and_others_are(bench: Bench) -> None:
    bench.run(ahead="raise")
    for _ in range(3):
        child, code, _ = bench.run()  # these imports would not fail
        assert isinstance(child, subprocess.Popen)
        assert code == 0
    notes = bench.preloads.take_notes()
    assert len(notes) == 4
    assert all("no module named vllm" in note for note in notes)
    another, _, _ = bench.run(key="two")
    assert isinstance(another, Forked), "what is known costs no try"
    elsewhere, _, _ = bench.run({"MARK": "2"})
    assert isinstance(elsewhere, Forked), "another environment is another kind"


@pytest.mark.parametrize("broken", ["", "[1]", "{"])
def test_another_tuner_of_the_same_software_does_not_try_refused_imports_again(bench: Bench, broken: str) -> None:
    file, started = bench.folder / "cache" / "refused.json", []
    for place, script in enumerate(({"ahead": "raise"}, {}, {})):  # only the first imports would fail
        if place == 2:  # long ago, or not readable
            file.write_text(broken or file.read_text())
            os.utime(file, None if broken else (0, 0))
        bench.preloads = Preloads(bench.preloads._patience, refusals=file)
        started.append(isinstance(bench.run({"CUDA_VISIBLE_DEVICES": str(place)}, **script)[0], subprocess.Popen))
    assert started == [True, True, False]


@pytest.mark.parametrize(("gpu", "imports"), [("0", 1), ("", 2)])
def test_on_a_gpu_a_refusal_ends_no_other_process(bench: Bench, gpu: str, imports: int) -> None:
    """Without one the started trial's memory is what is short: nothing may share its pages."""
    visible = {"CUDA_VISIBLE_DEVICES": gpu}
    seen = {tuple(bench.run(visible)[2].data["imported"])}
    child, _, _ = bench.run(visible, key="two", ahead="raise")
    assert isinstance(child, subprocess.Popen)
    seen.add(tuple(bench.run(visible)[2].data["imported"]))
    assert len(seen) == imports


def test_slices_of_a_gpu_are_not_imported_for(bench: Bench) -> None:
    child, code, _ = bench.run({"CUDA_VISIBLE_DEVICES": "MIG-1"})
    assert isinstance(child, subprocess.Popen)
    assert code == 0
    assert "slice of a GPU (MIG)" in bench.preloads.take_notes()[0]


def test_one_that_hangs_in_its_imports_is_given_up(bench: Bench) -> None:
    bench.preloads = Preloads(PreloadTimeouts(ready_s=0.2))
    child, code, _ = bench.run(ahead="hang")
    assert isinstance(child, subprocess.Popen)
    assert code == 0
    assert "not ready" in bench.preloads.take_notes()[0]


def test_the_user_who_stops_does_not_wait_for_imports(bench: Bench) -> None:
    paths = write_trial(bench.folder / "stopped", ahead="hang")
    argv = (sys.executable, str(bench.start), "trial", "--directory", str(paths.root))
    child, pump = bench.preloads.spawn(argv, paths.scratch, TAG % 9, CappedLog(paths.log), {}, stop=FakeStop(2))
    assert isinstance(child, subprocess.Popen)
    assert finished(child) == 0
    pump.finish()


def test_one_that_hangs_between_trials_costs_no_trial(bench: Bench) -> None:
    bench.run()
    (preload,) = bench.preloads.pids
    os.kill(preload, signal.SIGSTOP)
    bench.preloads._patience = PreloadTimeouts(answer_s=0.2)
    child, code, _ = bench.run()
    assert isinstance(child, subprocess.Popen)
    assert code == 0
    assert "did not answer" in bench.preloads.take_notes()[0]
    assert proc.read_stat(preload) is None


def test_one_that_is_killed_between_trials_is_replaced(bench: Bench) -> None:
    bench.run()
    os.kill(bench.preloads.pids[0], signal.SIGKILL)
    for _ in range(2):
        _, code, ran = bench.run()
        assert code == 0
    assert ran.data["imported"] == list(bench.preloads.pids)


def test_a_trial_outlives_what_it_was_forked_from_and_its_exit_code_is_known(bench: Bench) -> None:
    child, pump, paths = bench.begin(trial="hold")
    wait_for((paths.root / "held").exists)
    os.kill(bench.preloads.pids[0], signal.SIGKILL)
    wait_for(lambda: bench.preloads.pids == ())
    assert child.poll() is None
    os.kill(child.pid, signal.SIGTERM)
    assert finished(child) in (1, -signal.SIGTERM)
    assert finished(child) != UNKNOWN
    pump.finish()


def test_the_end_of_a_trial_is_seen_though_nobody_tells_of_it(bench: Bench) -> None:
    child, pump, paths = bench.begin(trial="hold")
    wait_for((paths.root / "held").exists)
    os.kill(bench.preloads.pids[0], signal.SIGSTOP)
    os.kill(child.pid, signal.SIGKILL)
    assert finished(child) == -signal.SIGKILL
    assert bench.preloads.pids == ()
    pump.finish()


def test_closing_leaves_no_process_and_spares_a_running_trial(bench: Bench) -> None:
    child, pump, paths = bench.begin(trial="hold")
    wait_for((paths.root / "held").exists)
    (preload,) = bench.preloads.pids
    bench.preloads.close()
    assert proc.read_stat(preload) is None
    assert child.poll() is None
    os.kill(child.pid, signal.SIGKILL)
    assert finished(child) == -signal.SIGKILL
    pump.finish()


TUNER = """
import sys, time
from pathlib import Path
from autotune.running.log import CappedLog
from autotune.running.preloaded import Preloads, PreloadTimeouts
from tests.support import nvidia
from tests.support.fake_framework import write_trial

start, folder, act = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
preloads = Preloads(PreloadTimeouts(ready_s=240.0, answer_s=240.0))
paths = write_trial(folder / "trial", **{act: "hold" if act == "trial" else "hang"}, mark=str(folder / "mark"))
argv = (sys.executable, start, "trial", "--directory", str(paths.root))
preloads.spawn(argv, paths.scratch, "autotune:preloads:5:0:1", CappedLog(paths.log), {})
time.sleep(600)
"""


def test_a_killed_tuner_leaves_nothing(start: Path, tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    tuner = subprocess.Popen([sys.executable, "-c", TUNER, str(start), str(tmp_path), "trial"], cwd=root)
    wait_for(lambda: (tmp_path / "trial" / "held").exists() or tuner.poll() is not None)
    forked = int((tmp_path / "trial" / "held").read_text())
    stat = not_none(proc.read_stat(forked))
    preload = stat.parent
    assert (proc.read_tag(preload) or "").startswith("autotune:preloads:5:preload")
    tuner.kill()
    tuner.wait()
    wait_for(lambda: all((s := proc.read_stat(p)) is None or s.ended for p in (forked, preload)))


ASKING = """
import subprocess, sys
from trainer.child.contract import dumps, write_atomic
from pathlib import Path

start, folder = sys.argv[1], Path(sys.argv[2])
reward = folder / "reward.py"
reward.write_text(f"import os, time; open({str(folder / 'mark')!r}, 'w').write(str(os.getpid())); time.sleep(600)")
asked = [{"kind": "file", "name": "score", "path": str(reward)}]
(folder / "prompts.jsonl").write_text('{"prompt": "a"}')
payload = {"model": "m", "data": str(folder / "prompts.jsonl"), "rewards": asked}
write_atomic(folder / "config.json", dumps(payload))
subprocess.run([sys.executable, start, "prepare", "--directory", str(folder)])
"""


@pytest.mark.parametrize("tuning", [TUNER, ASKING], ids=["imports-a-framework", "imports-a-reward"])
def test_a_process_ends_with_the_tuner_while_it_imports(tuning: str, start: Path, tmp_path: Path) -> None:
    root, mark = Path(__file__).resolve().parents[3], tmp_path / "mark"
    tuner = subprocess.Popen([sys.executable, "-c", tuning, str(start), str(tmp_path), "ahead"], cwd=root)
    wait_for(lambda: has_text(mark))
    pid = int(mark.read_text())
    assert pid != tuner.pid
    assert not_none(proc.read_stat(pid)).parent == tuner.pid
    tuner.kill()
    tuner.wait()
    wait_for(lambda: (s := proc.read_stat(pid)) is None or s.ended, "the end of what the tuner had started")


def test_while_imports_are_waited_for_time_is_stored_and_ends_with_the_trials() -> None:
    ticks: list[int] = []
    over: list[bool] = []
    patient = _Ticking(FakeStop(0), SimpleNamespace(tick=lambda: ticks.append(1)), lambda: bool(over))  # type: ignore[arg-type]
    assert [patient.level, patient.level] == [0, 0]
    over.append(True)
    assert patient.level == 2
    assert len(ticks) == 3

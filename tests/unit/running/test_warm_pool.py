"""A worker that serves several trials: kept while it is what it was, replaced when it is not, never believed alone."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from autotune.domain import FailureReason, Outcome, Pool, TrialKind
from autotune.domain.outcomes import FAILURE_WORDS
from autotune.ports import Assignment, RunReport
from autotune.running import warm_worker
from autotune.running.job import Job
from autotune.running.local import LocalRunner
from autotune.running.proc import Stat
from autotune.running.warm_pool import doubt_used_process, worker_key
from autotune.running.warm_worker import FLOOR_BYTES, Process, Worker, unfit
from tests.contracts.runner_suite import Seen, tagged
from tests.support.fakes import FakeStop
from tests.support.not_none import not_none
from tests.support.scripted import GRACES, assignment, keeper, local_runner, searched
from tests.support.scripted_framework import ScriptedFramework
from tests.support.waiting import PATIENCE_S, wait_for
from trainer.child.contract import Mailbox, NoteRecord, RunPaths, WorkerReply

HOME = f"warm-unit-{os.getpid()}"
GIB = 1 << 30


class Study:
    """Search trials of one study, one after the other, on one runner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.runner: LocalRunner = local_runner(HOME, keeper=keeper(folder / "workers"))
        self.number = 0
        self.reports: list[RunReport] = []
        self.seen: list[Seen] = []

    def run(self, script: dict[str, Any] | None = None, *, stop: int = 0, **changes: Any) -> int | None:
        """The process that ran it, as it says itself; ``None`` if no worker did."""
        return self.go(self.of(script, **changes), stop=stop)

    def of(self, script: dict[str, Any] | None = None, **changes: Any) -> Assignment:
        self.number += 1
        knobs = changes.pop("knobs", {})
        # In a file, because what a study's specification holds is the same for all of its trials.
        (self.folder / "script.json").write_text(json.dumps(script or {}))
        plain = assignment(self.folder / str(self.number), {"file": str(self.folder / "script.json")}, **knobs)
        return searched(plain, self.number, **changes)

    def go(self, given: Assignment, *, stop: int = 0) -> int | None:
        seen = Seen()
        self.seen.append(seen)
        self.reports.append(self.runner.run(given, seen, FakeStop(stop)))
        return next((note["pid"] for note in self.notes("worker")), None)

    def notes(self, name: str) -> list[dict[str, Any]]:
        """Of the last trial."""
        records = self.seen[-1].records
        return [dict(r.data) for r in records if isinstance(r, NoteRecord) and r.name == name]

    @property
    def last(self) -> Outcome:
        return self.reports[-1].outcome

    def log(self) -> str:
        return Path(self.last.log_path).read_text()


@pytest.fixture
def study(tmp_path: Path) -> Iterator[Study]:
    study = Study(tmp_path)
    yield study
    study.runner.close()
    assert tagged(HOME) == []


class TestOneProcess:
    def test_search_trials_that_differ_in_process_knobs_alike_run_in_one_process(self, study: Study) -> None:
        pids = [study.run(), study.run(knobs={"micro_batch_size": 4}), study.run(knobs={"num_generations": 2})]
        assert all(report.outcome.ok for report in study.reports)
        assert None not in pids
        assert len(set(pids)) == 1
        assert [note["number"] for note in study.notes("worker")] == [3]
        assert tagged(HOME) == pids[:1]

    def test_each_trial_has_its_own_log_and_records(self, study: Study) -> None:
        study.run()
        first = Path(study.last.log_path)
        study.run({"acts": [{"do": "print", "text": "of the second", "at": 1}]})
        assert "trial 1 of worker 1" in first.read_text()
        assert "trial 2" not in first.read_text()
        assert "trial 2 of worker 1" in study.log()
        assert "of the second" in study.log()
        assert "resting" not in first.read_text() + study.log()
        assert [len(seen.cycles()) for seen in study.seen] == [len(study.seen[0].cycles())] * 2

    def test_what_is_said_between_trials_is_kept_apart_and_gone_with_the_worker(self, study: Study) -> None:
        study.run()
        own = study.folder / "workers" / "1" / "log.txt"
        wait_for(lambda: "resting" in own.read_text(), "the word of the resting worker")
        study.runner.close()
        assert not own.exists()

    @pytest.mark.parametrize("changes", [{"kind": TrialKind.CONFIRM}, {"kind": TrialKind.VERIFY}, {"attempt": 2}])
    def test_what_must_be_sure_has_a_process_of_its_own_beside_nobody(
        self, study: Study, changes: dict[str, Any]
    ) -> None:
        study.run()
        seen: list[int] = []
        given = study.of({"sleep": 0.2}, **changes)
        watcher = Seen(on_tick=lambda: seen.append(len(tagged(HOME))))
        report = study.runner.run(given, watcher, FakeStop())
        assert report.outcome.ok
        assert seen
        assert max(seen) == 1  # the idle worker had been ended
        assert not [r for r in watcher.records if isinstance(r, NoteRecord) and r.name == "worker"]
        assert tagged(HOME) == []

    def test_the_baseline_is_the_first_of_its_process_which_others_may_use(self, study: Study) -> None:
        before = study.run()
        baseline = study.run(kind=TrialKind.BASELINE)
        after = study.run()
        assert baseline not in (None, before)
        assert after == baseline

    @pytest.mark.parametrize(
        "change",
        [
            lambda given: searched_with(given, precision="fp16"),
            lambda given: searched_with(given, max_num_seqs=8),
            lambda given: searched_with(given, of_tomorrow=1),
            lambda given: replace(given, study=replace(given.study, id=2)),
            lambda given: replace(
                given, study=replace(given.study, spec=replace(given.study.spec, memory_limit=1 << 40))
            ),
        ],
    )
    def test_another_process_is_started_where_this_one_does_not_fit(
        self, study: Study, change: Callable[[Assignment], Assignment]
    ) -> None:
        first = study.run()
        second = study.go(change(study.of()))
        assert second not in (None, first)
        assert tagged(HOME) == [second]


def searched_with(given: Assignment, **knobs: Any) -> Assignment:
    trial = given.trial
    return replace(given, trial=replace(trial, configuration=trial.configuration.with_(**knobs)))


class TestReplaced:
    @pytest.mark.parametrize(
        ("second", "word"),
        [
            ({"floor": 500 * (1 << 20) + FLOOR_BYTES + 1}, "GiB between trials"),
            ({"left": "model, trainer"}, "model, trainer"),
        ],
    )
    def test_a_worker_that_leaks_keeps_its_trial_and_gets_no_other(
        self, study: Study, second: dict[str, Any], word: str
    ) -> None:
        first = study.run()
        assert study.run({"worker": second}) == first
        assert study.last.ok  # what it measured was measured before the leak could act
        assert word in study.notes("worker_replaced")[0]["why"]
        assert tagged(HOME) == []
        assert study.run() not in (None, first)
        assert study.last.ok
        assert study.notes("worker_replaced") == []

    def test_growth_is_judged_against_the_first_trial_not_the_one_before(self, study: Study) -> None:
        floors = [500 << 20, (500 << 20) + FLOOR_BYTES // 2, (500 << 20) + FLOOR_BYTES, (500 << 20) + 2 * FLOOR_BYTES]
        pids = [study.run({"worker": {"floor": floor}}) for floor in floors]
        assert len(set(pids)) == 1
        assert study.notes("worker_replaced")
        assert study.run() != pids[0]

    def test_a_process_a_trial_leaves_is_the_end_of_its_worker(self, study: Study) -> None:
        first = study.run({"acts": [{"do": "spawn", "at": "end", "how": "double_fork"}]})
        assert study.last.ok
        assert "1 process running" in study.notes("worker_replaced")[0]["why"]
        assert tagged(HOME) == []
        assert study.run() != first

    def test_a_worker_killed_between_trials_costs_no_trial(self, study: Study) -> None:
        first = not_none(study.run())
        os.kill(first, signal.SIGKILL)
        psutil.wait_procs([psutil.Process(first)] if psutil.pid_exists(first) else [], timeout=PATIENCE_S)
        assert study.run() not in (None, first)
        assert study.last.ok
        assert study.reports[-1].bad_lines == 0

    @pytest.mark.parametrize("when", ["answered", "called"])
    def test_one_that_ends_before_it_has_begun_costs_no_trial_either(self, study: Study, when: str) -> None:
        first = study.run({"worker": {"end": when}})
        assert study.run() not in (None, first)
        assert study.last.ok
        assert len(study.seen[-1].cycles()) == len(study.seen[0].cycles())

    def test_one_that_is_never_ready_again_is_ended_and_its_trial_stands(self, study: Study) -> None:
        study.runner = replace(study.runner, graces=replace(GRACES, restore_s=0.3))
        study.run({"worker": {"slow": 60}})
        assert study.last.ok
        assert "not ready again" in study.last.message
        assert tagged(HOME) == []


class TestBelief:
    @pytest.mark.parametrize("reason", ["OOM", "CRASH", "NAN", "QUALITY", "ILLEGAL", "HANG"])
    def test_a_verdict_of_a_used_process_is_repeated_and_of_a_new_one_believed(self, study: Study, reason: str) -> None:
        failing = {"acts": [{"do": "result", "at": 1, "result": {"reason": reason, "pool": "host", "message": "no"}}]}
        study.run(failing)
        assert study.last.reason == FailureReason(reason)
        study.run()
        study.run(failing)
        assert study.last.reason is FailureReason.INFRA
        assert study.last.pool is None
        assert FAILURE_WORDS[reason] in study.last.message
        assert tagged(HOME) == []
        study.run(failing, attempt=2)
        assert study.last.reason == FailureReason(reason)
        assert study.notes("worker") == []

    def test_a_used_worker_that_is_killed_in_a_trial_says_nothing_of_the_configuration(self, study: Study) -> None:
        study.run()
        study.run({"acts": [{"do": "signal", "number": int(signal.SIGKILL), "at": 1}]})
        assert study.last.reason is FailureReason.INFRA
        assert "SIGKILL" in study.last.message
        assert tagged(HOME) == []

    def test_stop_now_in_a_used_worker_is_a_cancellation_and_leaves_nothing(self, study: Study) -> None:
        study.run()
        study.run({"sleep": 0.5}, stop=2)
        assert study.last.reason is FailureReason.CANCELLED
        assert tagged(HOME) == []

    def test_the_first_trial_of_a_process_and_what_says_nothing_of_the_configuration_stay_what_they_are(self) -> None:
        oom = Outcome(FailureReason.OOM, "update", Pool.HOST, "no memory")
        assert doubt_used_process(oom, 0) == oom
        for reason in (None, FailureReason.CANCELLED, FailureReason.INFRA, FailureReason.TIMEOUT):
            assert doubt_used_process(Outcome(reason), 3) == Outcome(reason)


class TestUnfit:
    first = WorkerReply(2 * GIB)

    def verdict(self, now: WorkerReply, others: tuple[Stat, ...] = ()) -> str | None:
        return unfit(self.first, now, others)

    def test_within_the_margins_it_is_fit_and_beyond_each_it_is_not(self) -> None:
        most = int(2 * GIB * (1 + warm_worker.FLOOR_SHARE))
        for now in (self.first, WorkerReply(most), WorkerReply(1 * GIB)):
            assert self.verdict(now) is None
        assert self.verdict(WorkerReply(most + 2)) is not None
        assert self.verdict(self.first, others=(Stat(7, 1, 7, "S", 0, 0),)) is not None
        assert self.verdict(WorkerReply(2 * GIB, "model")) is not None

    def test_gpu_memory_that_does_not_come_back_ends_the_worker(self) -> None:
        self.first = replace(self.first, device=4 * GIB)
        assert self.verdict(replace(self.first, device=5 * GIB)) is None
        assert self.verdict(self.first) is None
        assert self.verdict(replace(self.first, device=5 * GIB + 1)) == (
            "5.00 GiB of its GPU are used between trials, 4.00 at first"
        )

    @pytest.mark.parametrize(
        ("device", "fit"), [(4 * GIB, [True, True, True, False]), (None, [True, False, False, False])]
    )
    def test_on_a_gpu_the_higher_floor_of_the_first_two_trials_counts(
        self, tmp_path: Path, device: int | None, fit: list[bool]
    ) -> None:
        child: Any = SimpleNamespace(pid=1, poll=lambda: None)
        tree: Any = SimpleNamespace(refresh=lambda full: [])
        worker = Worker("1", "tag", Mailbox(tmp_path), process=Process(child, SimpleNamespace(), tree))  # type: ignore[arg-type]
        for number, floor in enumerate((20, 24, 25, 26), start=1):
            worker.served = number
            worker.mailbox.reply(number, WorkerReply(floor * GIB // 10, device=device))
            assert worker.may_stay() is fit[number - 1]
        assert worker.unfit == f"it holds 2.60 GiB between trials, {2.4 if device else 2.0:.2f} GiB at first"

    def test_a_small_worker_may_grow_by_the_bytes_a_share_of_it_does_not_allow(self) -> None:
        small = WorkerReply(100 << 20)
        assert unfit(small, WorkerReply((100 << 20) + FLOOR_BYTES), ()) is None
        assert unfit(small, WorkerReply((100 << 20) + FLOOR_BYTES + 1), ()) is not None


@pytest.mark.parametrize(
    ("framework", "shared"), [("trl", True), ("verl", False), ("open_r1", False), ("ms_swift", False)]
)
def test_only_a_framework_that_can_be_put_back_asks_for_a_worker(framework: str, shared: bool, tmp_path: Path) -> None:
    given = searched(assignment(tmp_path))
    spec = replace(ScriptedFramework().render(given), framework=framework)
    job = Job(argv=("python",), paths=RunPaths(tmp_path), tag="tag", deadline_s=1.0)
    assert (worker_key(given.study, given.trial, spec, job, "python") is not None) is shared

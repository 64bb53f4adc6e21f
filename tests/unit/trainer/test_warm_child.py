"""The child as a warm worker, as far as no framework is needed: when it goes, and what it puts back."""

from __future__ import annotations

import importlib
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from tests.support.not_none import not_none
from tests.support.trl_trials import tiny_spec
from tests.support.waiting import PATIENCE_S, wait_for
from trainer.child import warm
from trainer.child.contract import (
    ContractError,
    Letter,
    Mailbox,
    Result,
    RewardSpec,
    RunPaths,
    WorkerReply,
    dumps,
    read_result,
    read_spec,
    write_atomic,
)
from trainer.child.user_environment import restore_environment

START = Path(warm.__file__).with_name("start.py")
HOLD = "import subprocess, sys, time; print(subprocess.Popen(sys.argv[1:]).pid, flush=True); time.sleep(600)"


def start(box: Mailbox) -> tuple[str, ...]:
    box.root.mkdir()
    return (sys.executable, str(START), "worker", "--directory", str(box.root))


def listens(pid: int) -> bool:
    """Whether it handles SIGTERM: a worker does from when it waits for its first trial."""
    found = re.search(r"^SigCgt:\s*(\w+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_worker_goes_when_its_starter_is_gone(tmp_path: Path) -> None:
    command = start(Mailbox(tmp_path / "box"))
    with subprocess.Popen([sys.executable, "-c", HOLD, *command], stdout=subprocess.PIPE, text=True) as starter:
        worker = psutil.Process(int(not_none(starter.stdout).readline()))
        wait_for(lambda: listens(worker.pid), "an idle worker")
        starter.kill()
    psutil.wait_procs([worker], timeout=PATIENCE_S)
    assert not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE


def test_sigterm_ends_an_idle_worker_at_once_and_well(tmp_path: Path) -> None:
    with subprocess.Popen(start(Mailbox(tmp_path / "box"))) as worker:
        wait_for(lambda: listens(worker.pid), "an idle worker")
        worker.send_signal(signal.SIGTERM)
        assert worker.wait() == 0


def test_a_trial_that_cannot_be_run_is_reported_and_ends_the_worker(tmp_path: Path) -> None:
    box, paths = Mailbox(tmp_path / "box"), RunPaths(tmp_path / "trial")
    paths.root.mkdir()
    paths.config.write_text("{}")
    with subprocess.Popen(start(box)) as worker:
        box.send(1, Letter(str(paths.root), "1"))
        assert worker.wait() == 1
    assert not read_result(paths.result).ok
    assert box.read_answer(1) is None


def test_letters_and_answers_are_whole_or_not_there(tmp_path: Path) -> None:
    box = Mailbox(tmp_path)
    assert (box.read_letter(1), box.read_answer(1)) == (None, None)
    box.send(1, Letter("/somewhere", "3"))
    box.reply(1, WorkerReply(5, "model", 7))
    assert (box.read_letter(1), box.read_answer(1)) == (Letter("/somewhere", "3"), WorkerReply(5, "model", 7))
    assert (box.read_letter(2), box.read_answer(2)) == (None, None)
    box.answer(2).write_text('{"floor": "much"}')
    with pytest.raises(ContractError, match="floor"):
        box.read_answer(2)


def test_the_environment_is_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "before")
    monkeypatch.setenv("DELETED", "before")
    before = dict(os.environ)
    os.environ.update({"KEPT": "after", "ADDED": "after"})
    del os.environ["DELETED"]
    restore_environment(before)
    assert dict(os.environ) == before


def test_a_trials_limit_on_data_is_lifted_again() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (1 << 40, before[1]))
    warm.unlimit_data()
    assert resource.getrlimit(resource.RLIMIT_DATA) == (before[1], before[1])


def test_what_a_process_holds_is_counted_with_its_children(tmp_path: Path) -> None:
    alone = warm.tree_pss()
    command = [sys.executable, "-c", "b = bytearray(b'x') * (64 << 20); print('there', flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        not_none(child.stdout).readline()
        assert warm.tree_pss() - alone > 60 << 20
        child.communicate("\n")


def test_a_users_reward_begins_anew_and_what_is_installed_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, other = tmp_path / "own", tmp_path / "other"
    installed = own / "env" / "site-packages"
    for folder in (own / "pack", other, installed):
        folder.mkdir(parents=True)
    (own / "pack" / "__init__.py").write_text("")
    (own / "pack" / "warm_inner.py").write_text("seen = []")
    (other / "warm_other.py").write_text("")
    (installed / "warm_installed.py").write_text("")
    for entry in (own, other, installed):
        monkeypatch.syspath_prepend(str(entry))
    names = ("pack.warm_inner", "warm_other", "warm_installed")
    before = [importlib.import_module(name) for name in names]
    warm.forget_modules([str(own)], [str(installed)])
    assert [name in sys.modules for name in names] == [False, True, True]
    assert importlib.import_module("pack.warm_inner") is not before[0]
    for name in (*names, "pack"):
        sys.modules.pop(name, None)


def test_without_folders_nothing_is_forgotten() -> None:
    before = dict(sys.modules)
    warm.forget_modules([], [])
    warm.forget_modules([""], [])
    warm.forget_modules(["/"], sys.path)  # a reward in the root of everything
    lost = set(before) - set(sys.modules)
    sys.modules.update(before)
    assert not {name for name in lost if str(before[name].__file__).startswith((sys.prefix, sys.base_prefix))}


class Served:
    """A worker in this process whose trials do what ``acts`` say; what it ran, by name."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.box = Mailbox(folder / "box")
        self.box.root.mkdir()
        self.folder = folder
        self.ran: list[str] = []
        self.acts: dict[str, Callable[[], None]] = {}
        self.refused: set[str] = set()
        framework = SimpleNamespace(fits=lambda kept, spec: spec.trial not in self.refused, put_back=lambda kept: "")
        monkeypatch.chdir(folder)
        monkeypatch.setattr(warm, "framework_of", lambda spec: framework)
        monkeypatch.setattr(warm, "run", self.run)

    def run(self, paths: RunPaths, ending: Any, state: Any) -> Result:
        name = read_spec(paths.config).trial
        self.ran.append(name)
        self.acts.get(name, lambda: None)()
        return Result(ok=name != "1/9")

    def serve(self, *names: str) -> list[WorkerReply | None]:
        """The answers to as many letters; the last trial has to be one that ends the worker."""
        for number, name in enumerate(names, 1):
            paths = RunPaths(self.folder / str(number))
            spec = tiny_spec(self.folder, RewardSpec("file", "reward", str(self.folder / "reward.py")), trial=name)
            write_atomic(paths.config, dumps(spec))
            self.box.send(number, Letter(str(paths.root), "1"))
        warm.WarmWorker(self.box).serve()
        return [self.box.read_answer(number) for number in range(1, len(names) + 1)]


def test_trials_run_in_the_order_of_the_letters_until_one_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(tmp_path, monkeypatch)
    answers = served.serve("1/1", "1/2", "1/9", "1/3")
    assert served.ran == ["1/1", "1/2", "1/9"]
    assert [answer is not None for answer in answers] == [True, True, False, False]
    assert Path.cwd() == RunPaths(tmp_path / "3").scratch


def test_a_trial_this_process_cannot_run_is_left_to_another_before_anything_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(tmp_path, monkeypatch)
    served.refused = {"1/1", "1/2"}  # the first of a process is never refused
    answers = served.serve("1/1", "1/2")
    assert served.ran == ["1/1"]
    assert answers[1] is None
    assert sorted(path.name for path in (tmp_path / "2").iterdir()) == ["config.json"]


def test_a_thread_a_later_trial_leaves_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    served, done = Served(tmp_path, monkeypatch), threading.Event()
    thread = threading.Thread(target=done.wait, daemon=True)
    served.acts["1/2"] = thread.start
    answers = served.serve("1/1", "1/2", "1/9")
    done.set()
    thread.join()
    assert [answer.left for answer in answers if answer is not None] == ["", "threads"]

"""A scheduler's notice: which signals are one, how it ends, and what is no notice."""

from __future__ import annotations

import io
import os
import signal
from typing import Any

import pytest

from autotune.cli import exit_codes
from autotune.cli.commands.start import exit_code
from autotune.cli.stopping import GRACE_S, LAST_S, Notice, handling, leaving, stopping
from autotune.errors import UsageError
from autotune.running.job import Graces
from autotune.study.loop import StudyResult
from tests.support import factories as f


@pytest.mark.parametrize(
    ("numbers", "level", "code"),
    [
        ((signal.SIGTERM,), 2, exit_codes.RUN_AGAIN),
        ((signal.SIGUSR1,), 2, exit_codes.RUN_AGAIN),
        ((signal.SIGUSR2,), 2, exit_codes.RUN_AGAIN),
        ((signal.SIGINT, signal.SIGTERM), 2, exit_codes.RUN_AGAIN),
        ((signal.SIGTERM, signal.SIGTERM), 2, exit_codes.RUN_AGAIN),
        ((signal.SIGINT,), 1, 130),
        ((signal.SIGINT, signal.SIGINT), 2, 130),
        ((signal.SIGHUP,), 2, 129),
    ],
)
def test_what_a_signal_asks_for_and_what_the_exit_code_says(
    numbers: tuple[int, ...], level: int, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(signal, "getsignal", lambda _: signal.SIG_DFL)  # also where nohup runs the tests
    with stopping(said.append, Notice.of(600.0, ["USR2"])) as stop:
        for number in numbers:
            os.kill(os.getpid(), number)
    ended = StudyResult(f.study(), None, "stopped by the user", (), stopped=True)
    assert (stop.level, exit_code(ended, stop)) == (level, code)
    assert len(said) == len(numbers)


def test_a_signal_that_comes_while_a_line_is_written_is_obeyed_all_the_same() -> None:
    """A buffered stream refuses to be written to by a handler that has interrupted its own writing."""
    reading, writing = os.pipe()

    class Interrupted(io.RawIOBase):
        calls = 0

        def writable(self) -> bool:
            return True

        def write(self, data: Any, /) -> int:
            self.calls += 1
            if self.calls == 1:
                os.kill(os.getpid(), signal.SIGINT)
            return os.write(writing, data)

    stream = io.TextIOWrapper(io.BufferedWriter(Interrupted()), write_through=True)

    def say(text: str) -> None:
        stream.write(text + "\n")
        stream.flush()

    with stopping(say) as stop:
        say("a line of progress")
        os.kill(os.getpid(), signal.SIGINT)
    assert stop.level == 2
    stream.detach()
    os.close(writing)
    with os.fdopen(reading) as heard:
        assert "a line of progress" in heard.read()


def test_a_hangup_that_nohup_ignores_ends_nothing() -> None:
    with handling(signal.SIG_IGN, [signal.SIGHUP]), stopping(pytest.fail) as stop:
        os.kill(os.getpid(), signal.SIGHUP)
    assert stop.level == 0


def test_who_left_in_time_is_not_ended_later() -> None:
    with stopping(lambda _: None, Notice(LAST_S + 600.0)) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.bound.is_alive()
    stop.bound.join(10.0)
    assert not stop.bound.is_alive()


def test_before_a_study_runs_a_notice_leaves_at_once_and_once() -> None:
    before = signal.getsignal(signal.SIGUSR1)
    tidied = []

    def prepare() -> None:
        try:
            os.kill(os.getpid(), signal.SIGUSR1)
            pytest.fail("the notice was passed over")
        finally:
            os.kill(os.getpid(), signal.SIGTERM)  # a second one must not break off the tidying
            tidied.append(True)

    with pytest.raises(SystemExit) as ended, leaving(Notice()):
        prepare()
    assert ended.value.code == exit_codes.RUN_AGAIN
    assert tidied == [True]
    assert signal.getsignal(signal.SIGUSR1) is before


@pytest.mark.parametrize("name", ["USR2", "sigusr2", " 12 ", "XCPU"])
def test_a_further_signal_is_known_by_its_name(name: str) -> None:
    added = Notice.of(GRACE_S, [name]).signals - Notice().signals
    assert len(added) == 1


@pytest.mark.parametrize("name", ["KILL", "STOP", "INT", "CHLD", "nope", "", "99"])
def test_what_cannot_be_a_notice_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is no signal that can announce an end"):
        Notice.of(GRACE_S, [name])


@pytest.mark.parametrize("grace_s", [4.0, 10.0, GRACE_S, 300.0])
def test_two_process_trees_end_before_the_last_moment(grace_s: float) -> None:
    short = Graces().within(grace_s)
    assert 2 * (short.terminate_s + short.kill_s) <= grace_s or short == Graces()
    assert short.terminate_s <= Graces().terminate_s

import json
import re
from typing import Any

import pytest

from autotune.cli.screens.live import begin
from autotune.cli.screens.observer import Mode, News, PlainObserver, Unfailing, choose_mode, observing
from autotune.domain import Budget, TrialState
from autotune.ports import Observer
from tests.support import factories
from trainer.child.contract import CurrentPhase

NOW = factories.NOW


def running(number: Any, cycles: int = 0, attempt: int = 1) -> Any:
    found = tuple(factories.cycle(i) for i in range(cycles))
    knobs = factories.configuration(micro_batch_size=4) if number else factories.configuration()
    return factories.trial(number, state=TrialState.RUNNING, attempt=attempt, cycles=found, configuration=knobs)


def start() -> Any:
    return begin(factories.study(), [], Budget(wall_s=600), NOW)


@pytest.mark.parametrize(
    ("json_", "live", "quiet", "terminal", "mode"),
    [
        (True, True, True, True, Mode.JSON),
        (False, True, True, True, Mode.QUIET),
        (False, True, False, True, Mode.LIVE),
        (False, False, False, True, Mode.PLAIN),
        (False, True, False, False, Mode.PLAIN),
    ],
)
def test_mode(json_: bool, live: bool, quiet: Any, terminal: bool, mode: Mode) -> None:
    assert choose_mode(json=json_, live=live, quiet=quiet, terminal=terminal) is mode


def tell_a_story(observer: Observer) -> None:
    observer.event(factories.event("trial_started", "trial 0 (baseline) started"))
    observer.phase(running(0), CurrentPhase("load", -1, ""))
    observer.phase(running(0), CurrentPhase("generate", 0, "recorded"))
    observer.trial(running(0, 1))
    observer.tick(10.0, 590.0)
    observer.trial(running(0, 2))
    observer.event(factories.event("trial_finished", "trial 0: OK"))
    observer.trial(factories.finished(0, cycles=2))
    observer.event(factories.event("swept", "ended process 17,\nleft by an earlier run", trial=None))
    observer.trial(running(1))
    observer.trial(factories.failed(1, configuration=factories.configuration(micro_batch_size=4)))
    observer.event(factories.event("study_ended", "the study ended: the time budget is used up", trial=None))


def test_plain_lines_tell_each_thing_once() -> None:
    written: list[str] = []
    tell_a_story(PlainObserver(start(), written.append, lambda: NOW))
    said = [re.sub(r"^\d\d:\d\d:\d\d ", "", line) for line in written]
    assert said == [
        "#0 baseline started",
        "#0 cycle 0 replayed: 10 s, 161.3k tokens/hour",
        "#0 cycle 1 replayed: 10 s, 161.3k tokens/hour",
        "#0 ok: 161.3k tokens/hour, took 50 s",
        "ended process 17, left by an earlier run",
        "#1 search started: micro_batch_size 4",
        "#1 OOM in update (host memory): the process tree reached 8.1 GiB of 8.0 GiB; "
        "try micro_batch_size 1, took 20 s",
        "the study ended: the time budget is used up",
    ]


def test_a_repeated_trial_says_so_and_shows_its_cycles_again() -> None:
    written: list[str] = []
    observer = PlainObserver(start(), written.append, lambda: NOW)
    observer.trial(running(0, 1))
    observer.trial(running(0, 1, attempt=2))
    assert sum("cycle 0" in line for line in written) == 2
    assert "started again (attempt 2)" in written[2]


def test_gain_is_told_at_the_end_of_a_faster_trial() -> None:
    written: list[str] = []
    observer = PlainObserver(start(), written.append, lambda: NOW)
    observer.trial(factories.finished(0, cycle_seconds=10.0))
    observer.trial(factories.finished(1, cycle_seconds=5.0, configuration=factories.configuration(micro_batch_size=4)))
    assert "(+100.0 %)" in written[-1]


def test_trials_of_earlier_runs_are_no_news() -> None:
    news = News((factories.finished(0), running(1, 2)))
    assert news.of(factories.finished(0)) == (False, (), False)
    started, cycles, ended = news.of(running(1, 3))
    assert (started, [c.index for c in cycles], ended) == (False, [2], False)
    assert news.of(factories.trial(2)) == (False, (), False)


def test_plain_lines_go_to_stderr_and_carry_no_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    with observing(Mode.PLAIN, start(), lambda: NOW) as observer:
        observer.event(factories.event("swept", "\x1b[31mred\x1b[0m"))
        tell_a_story(observer)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "\x1b" not in captured.err
    assert captured.err.count("\n") == 9


def test_ndjson_goes_to_stdout_one_valid_document_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with observing(Mode.JSON, start(), lambda: NOW) as observer:
        tell_a_story(observer)
        observer.phase(running(2), CurrentPhase("update", 1, "recorded"))
        observer.phase(running(2), CurrentPhase("update", 1, "recorded"))
    captured = capsys.readouterr()
    assert captured.err == ""
    records = [json.loads(line) for line in captured.out.splitlines()]
    kinds = [r["type"] for r in records]
    assert kinds.count("cycle") == 2
    assert kinds.count("trial") == 5  # Two started and ended, one only started.
    assert kinds.count("event") == 4
    assert kinds.count("phase") == 3
    assert kinds.count("progress") == 1
    failed = next(r for r in records if r["type"] == "trial" and r["state"] == "FAIL")
    assert failed["outcome"]["suggestion"] == "try micro_batch_size 1"


def test_progress_is_spaced_and_survives_a_clock_that_jumps_back(capsys: pytest.CaptureFixture[str]) -> None:
    moments = iter([0.0, 5.0, 10.0, 12.0, 3.0, 4.0])
    with observing(Mode.JSON, start(), lambda: next(moments)) as observer:
        for _ in range(6):
            observer.tick(1.0, None)
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with observing(Mode.QUIET, start(), lambda: NOW) as observer:
        tell_a_story(observer)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", "")


def test_the_live_table_goes_to_stderr_and_its_last_state_stays(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with observing(Mode.LIVE, start(), lambda: NOW) as observer:
        tell_a_story(observer)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "OOM in update" in captured.err
    assert "1 ok, 1 OOM" in captured.err


def test_a_display_that_fails_does_not_fail_the_study(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_: Any) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    observer = Unfailing(PlainObserver(start(), broken, lambda: NOW))
    tell_a_story(observer)
    said = capsys.readouterr().err
    assert said.count("the display stopped") == 1


def test_even_with_stderr_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Closed:
        def write(self, _: Any) -> None:
            raise ValueError("I/O operation on closed file")

    monkeypatch.setattr("sys.stderr", Closed())
    with observing(Mode.PLAIN, start(), lambda: NOW) as observer:
        tell_a_story(observer)


def test_a_stopped_trial_is_told_by_its_bound() -> None:
    said: list[str] = []
    observer = PlainObserver(start(), said.append, lambda: NOW)
    observer.trial(factories.stopped(1))
    assert "stopped after 3 cycles: at most 171.2k tokens/hour, the best has at least 190.2k, took 50 s" in said[-1]
    assert "ok:" not in said[-1]

"""The judge of stated gains: what fails here counts what it should not, or loses or repeats a study of a campaign."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import TrialKind
from autotune.errors import MachineError, UsageError
from autotune.running import proc
from benchmarks.referee import campaign as campaigns
from benchmarks.referee import disturbances
from benchmarks.referee.__main__ import main
from benchmarks.referee.campaign import Campaign, figures_of, go_on
from benchmarks.referee.disturbances import Disturbances
from benchmarks.referee.recorded import CONFIGURATIONS, rows_of, steps_of, trials_of
from benchmarks.referee.summary import summary, words

RECORDED = Path(__file__).parents[2] / "fixtures" / "referee"


@pytest.mark.parametrize(("more", "referee"), [((), [0.81, 0.91]), (("--quiet",), [0.95, 1.06])])
def test_a_recorded_check_gives_the_figures_that_were_read_off_it_by_hand(
    capsys: pytest.CaptureFixture[str], more: tuple[str, ...], referee: list[float]
) -> None:
    assert main(["--recorded", str(RECORDED), "--json", *more]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["gain", "low", "high", "decided", "referee"]
    assert found["referee"] == referee
    assert found["decided"] is (found["gain"] is not None and (found["low"] > 0 or found["high"] < 0))


@pytest.mark.parametrize(("name", "answers", "cycles"), [("study", {7, 14}, 2), ("study-quiet", {8, 15}, 3)])
def test_recorded_trials_are_the_products_own_and_a_drift_alone_discards_no_cycle(
    name: str, answers: set[int], cycles: int
) -> None:
    trials = trials_of(rows_of(RECORDED / f"{name}.jsonl"))
    assert {t.number for t in trials if t.configuration == CONFIGURATIONS["answer"]} == answers
    assert [t.kind for t in trials] == [TrialKind.BASELINE, TrialKind.SEARCH, TrialKind.CONFIRM, TrialKind.CONFIRM]
    assert [t.pair for t in trials] == [None, None, 0, 0]
    assert all(t.feasible for t in trials)
    assert len(trials[2].speed_cycles()) == cycles
    kept = [c for t in trials for c in t.cycles]
    assert all(c.outside_cpu is not None and c.outside_cpu > 0.05 for c in kept if c.noisy or not c.accepted)
    assert all(sum(c.lengths) == c.completion_tokens for c in kept)


def test_of_a_turn_the_first_two_steps_and_of_a_broken_one_all_are_left_out() -> None:
    steps = steps_of(rows_of(RECORDED / "plain_trl-quiet.jsonl"))
    counts = {turn: len(list(some)) for turn, some in itertools.groupby(steps, lambda step: (step.run, step.round))}
    assert set(counts.values()) == {10}
    assert ("answer", 3) not in counts
    assert len(counts) == 5


def test_no_disturbance_outlives_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Any] = []
    begin = Disturbances._begin

    def noted(self: Disturbances, act: str) -> Any:
        begun.append(begin(self, act))
        return begun[-1]

    monkeypatch.setattr(Disturbances, "_begin", noted)
    monkeypatch.setattr(disturbances, "schedule", lambda *_: iter([(0.0, 60.0, ("busy", "busy"))]))
    with Disturbances("bursts", 1, tmp_path) as running:
        while len(begun) < 2:
            os.sched_yield()
        assert all(one.poll() is None for one in begun)
    assert all(proc.read_stat(one.pid) is None for one in begun)
    assert running.seconds > 0


GAIN = {"value": 0.9, "low": 0.5, "high": 1.4}


class Commands:
    """The tool's command line, made up; study 2 keeps the baseline, and of study 3 the export does not train."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.break_at = ""

    def __call__(self, *words: tuple[str, ...], home: Path) -> tuple[int, str]:
        argv = [word for some in words for word in some]
        name = argv[argv.index("--name") + 1] if "--name" in argv else next(w for w in argv if w.startswith("none-"))
        self.calls.append(f"{argv[0]} {name[-1]}")
        assert home.parent.is_dir()
        if self.calls[-1] == self.break_at:
            raise KeyboardInterrupt
        if argv[0] == "start":
            return (4, "nothing") if name.endswith("4") else (0, "an end screen")
        if argv[0] == "trials":
            return 0, json.dumps({"trials": [{}] * 7})
        if argv[0] == "best":
            kept = name.endswith("2")
            row = {"gain": None if kept else GAIN, "changes": [] if kept else ["a: 1 -> 2"], "confirmed": True}
            return 0, json.dumps({"recommendation": {"rows": [row], "notes": ["keep it"] if kept else []}})
        if name.endswith("3"):
            raise MachineError("autotune verify ended with exit code 5")
        steps = [
            {"run": "baseline", "round": 1, "step_seconds": 4.0, "tokens": 200.0, "counts": n < 3} for n in range(4)
        ]
        ratios = {"tokens_per_hour_ratio": 1.8, "step_speed_ratio": 1.9, "round_step_speed_ratios": [1.9]}
        return 0, json.dumps({**ratios, "disturbed": False, "steps": steps})


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> Commands:
    made = Commands()
    monkeypatch.setattr(campaigns, "command", made)
    monkeypatch.setattr(campaigns, "SETTLE_S", 0.0)
    return made


def test_a_campaign_writes_a_row_a_study_and_goes_on_where_it_was(tmp_path: Path, commands: Commands) -> None:
    asked = Campaign(tmp_path / "out.jsonl", "none", "5m", "/models/one", "/env/bin/python")
    commands.break_at = "verify 3"
    with pytest.raises(KeyboardInterrupt):
        go_on(asked, 4, lambda _: None)
    assert [row["study"] for row in rows_of(asked.out)] == ["none-5m-001", "none-5m-002"]
    commands.break_at, commands.calls = "", []
    go_on(asked, 4, lambda _: None)
    told = ["start 3", "trials 3", "best 3", "verify 3", "start 4", "trials 4"]
    assert commands.calls == told, "the broken one begins anew, and no other"
    go_on(asked, 4, lambda _: None)
    assert commands.calls == told
    rows = rows_of(asked.out)
    assert [row["decided"] for row in rows] == [True, False, True, False]
    assert rows[0]["referee"] == {"by_tokens": 0.8, "by_seconds": 0.9, "rounds": [0.9], "counted": 3}
    assert [row["referee"] is None for row in rows] == [False, True, True, True]
    assert rows[2]["fault"] == "autotune verify ended with exit code 5"
    assert str(tmp_path) not in asked.out.read_text()
    assert "/models" not in asked.out.read_text()
    assert not asked.folder.exists()


def test_a_file_of_other_rows_is_not_written_to(tmp_path: Path, commands: Commands) -> None:
    asked = Campaign(tmp_path / "out.jsonl", "none", "5m", "/models/one", "/env/bin/python")
    asked.out.write_text("mine\n")
    with pytest.raises(UsageError, match=r"out\.jsonl, line 1: expected a JSON object with study"):
        go_on(asked, 2, lambda _: None)
    assert (asked.out.read_text(), commands.calls) == ("mine\n", [])


def test_a_machine_that_was_never_quiet_gives_no_figure() -> None:
    assert figures_of({"tokens_per_hour_ratio": 1.8, "disturbed": True, "steps": []}) is None


def row(disturbed: str, stated: float | None, referee: float | None, half: float = 0.2, slower: float = 0.0) -> Any:
    gain = None if stated is None else {"value": stated, "low": stated - half, "high": stated + half}
    judged = None if referee is None else {"by_tokens": referee, "by_seconds": referee - slower}
    return {"study": "x", "disturbed": disturbed, "decided": stated is not None, "stated": gain, "referee": judged}


def test_the_summary_counts_halves_and_undecided_ones_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [row("none", 0.9, 0.9), row("none", 1.0, 0.7), row("none", None, None), row("none", 0.5, None)]
    rows += [row("mix", 1.2, 1.0), row("bursts", 1.2, 1.0, slower=0.1), row("copy", 3.0, 1.0)]
    found = summary(rows)
    assert found["quiet"] == {
        "studies": 4,
        "undecided": 1,
        "not_refereed": 1,
        "judged": 2,
        "held_by_tokens": 1,
        "held_by_seconds": 1,
        "stated_over_referee_by_tokens": round((1.0 + 2.0 / 1.7) / 2, 4),
        "stated_over_referee_by_seconds": round((1.0 + 2.0 / 1.7) / 2, 4),
    }
    held = found["disturbed"]
    assert (held["judged"], held["held_by_tokens"], held["held_by_seconds"]) == (3, 2, 1)
    assert held["stated_over_referee_by_tokens"] == 1.1
    assert (found["all"]["studies"], found["all"]["held_by_tokens"]) == (7, 3)
    assert "| quiet | 4 | 1 | 1 | 1 of 2 (1 by seconds) | 1.088" in words(found)
    assert "| - |" in words(summary([]))
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(one) + "\n" for one in rows))
    assert main(["--summary", str(file), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found

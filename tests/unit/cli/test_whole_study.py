"""The display driven by the real loop on a fake clock: what a user would see from start to end."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.cli.screens.live import begin
from autotune.cli.screens.observer import Mode, observing
from autotune.cli.screens.study import end_screen
from autotune.domain import Budget, TrialState
from autotune.proposals.proposer import make_proposer
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.store import open_store
from autotune.study.loop import StudyLoop
from search_spaces.space import SearchSpace
from tests.support import factories
from tests.support.fakes import FakeClock, FakeStop
from tests.support.simulated import SimulatedRunner
from tests.unit.cli.drawing import text, widest

SPACE = SearchSpace.from_json(
    {
        "knobs": {
            "micro_batch_size": [1, 2, 4, 8],
            "gradient_checkpointing": [True, False],
            "precision": ["fp32", "bf16"],
        }
    }
)


def run(mode: Mode, budget: Budget | None = None, limit: int = 5 * factories.GIB) -> Any:
    clock, store = FakeClock(), open_store(":memory:")
    budget = budget or Budget(wall_s=3600.0)
    spec = factories.study_spec(space=SPACE.as_json(), memory_limit=limit)
    study = store.create_study(spec, clock.now())
    with observing(mode, begin(study, (), budget, clock.now(), legal=32), clock.now) as observer:
        result = StudyLoop(
            study=study,
            budget=budget,
            store=store,
            proposer=make_proposer(SPACE, spec.baseline, spec.resources, "tpe", 0),
            runner=SimulatedRunner(clock, memory_limit=limit),
            clock=clock,
            observer=observer,
            stop=FakeStop(),
            directory_of=lambda t: Path("runs") / str(t.number) / str(t.attempt),
        ).run()
    store.close()
    return result


@pytest.fixture(scope="module")
def quiet() -> Any:
    return run(Mode.QUIET)


def test_every_trial_starts_and_ends_once_in_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(Mode.PLAIN)
    said = capsys.readouterr().err.splitlines()
    assert "the display stopped" not in "".join(said)
    for trial in result.trials:
        starts = [line for line in said if re.search(rf"#{trial.number} \w+ started", line)]
        ends = [line for line in said if re.search(rf"#{trial.number} (ok|stopped|OOM)", line)]
        assert (len(starts), len(ends)) == (1, 1), trial.number
    assert "the study ended" in said[-1]


def test_ndjson_tells_the_same_story_as_the_store(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(Mode.JSON)
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    ended = [r for r in records if r["type"] == "trial" and r["state"] not in ("RUNNING", "WAITING")]
    assert [r["number"] for r in ended] == [t.number for t in result.trials]
    cycles = [r for r in records if r["type"] == "cycle"]
    assert len(cycles) == sum(len(t.cycles) for t in result.trials)


@pytest.mark.parametrize("mode", [Mode.LIVE, Mode.JSON])
def test_the_display_changes_nothing_about_the_study(
    mode: Mode, quiet: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = run(mode)
    assert [t.configuration for t in shown.trials] == [t.configuration for t in quiet.trials]
    assert shown.recommendation == quiet.recommendation
    assert "the display stopped" not in capsys.readouterr().err


def test_the_live_table_ends_with_the_facts(capsys: pytest.CaptureFixture[str]) -> None:
    result = run(Mode.LIVE)
    err = capsys.readouterr().err
    failures = sum(t.state is TrialState.FAIL for t in result.trials)
    assert failures > 0
    assert f"{failures} OOM" in err
    assert max(map(len, err.splitlines())) <= 80


def read_of(result: Any) -> StudyReading:
    answer = (AnswerSource.RECOMMENDATION, result.recommendation)
    return StudyReading(result.study, tuple(result.trials), known_answer=answer)


def test_the_end_screen_of_a_whole_study(quiet: Any) -> None:
    result = quiet
    screen = end_screen(read_of(result), ended_by=result.ended_by)
    drawn = text(screen)
    assert widest(screen) <= 80
    assert "Best configuration: +" in drawn
    assert "confirmed in fresh processes" in " ".join(drawn.split())
    assert "If you allow precision bf16" in drawn
    assert result.ended_by in " ".join(drawn.split())


def test_knobs_that_always_changed_together_have_one_gain_in_one_line(quiet: Any) -> None:
    baseline, row = quiet.study.spec.baseline, quiet.recommendation.rows[0]
    pair = tuple(t for t in quiet.trials if t.configuration in (baseline, row.configuration))
    drawn = text(end_screen(replace(read_of(quiet), trials=pair), ended_by="x"))
    (count,) = re.findall(r"(\d) together \+[\d.]+ %", drawn)
    assert drawn.count(f"one of the {count}") == int(count) - 1 > 0
    assert len(re.findall(r" → .* %", drawn)) == 1


def test_the_end_screen_when_the_baseline_does_not_fit() -> None:
    result = run(Mode.QUIET, limit=int(1.4 * factories.GIB))
    drawn = " ".join(text(end_screen(read_of(result), ended_by="x", whole=True)).split())
    assert result.trials[0].state is TrialState.FAIL
    assert "baseline OOM in update" in drawn
    assert "reference #" in drawn

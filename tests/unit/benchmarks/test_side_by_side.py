"""Live studies beside each other: what is counted, and what may not be compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain import EarlierStudy, FailureReason, PriorKnowledge, Study, Trial
from autotune.errors import UsageError
from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks import side_by_side
from benchmarks.side_by_side import check, compiled, search_of, table
from tests.support import factories as f
from tests.support.recorded import record


def history(*seconds: float) -> list[Trial]:
    """The baseline of 10 s a cycle, then trials of so many seconds each; 0 is one that ran out of memory."""
    others = [f.failed(n) if s == 0 else f.finished(n, cycle_seconds=s) for n, s in enumerate(seconds, start=1)]
    return [f.finished(0), *others]


def study(number: int, sampler: str) -> Study:
    return replace(f.study(), id=number, spec=f.study_spec(f"by-{sampler}", sampler=sampler))


def test_the_fastest_so_far_when_it_was_found_and_what_memory_cost() -> None:
    found = search_of(study(1, "tpe"), history(0, 8.0, 12.0, 5.0, 6.0), 600.0)
    assert found.gains == pytest.approx((1.0, 1.25, 1.25, 2.0, 2.0))
    assert (found.ooms, found.lost) == (1, pytest.approx(20 / 220))
    assert [found.reached(gain) for gain in (1.0, 1.2, 2.0, 2.1)] == [0, 2, 4, None]
    slower = search_of(study(2, "grey"), history(8.0), 300.0)
    lines = [[c.strip() for c in line.strip("|").split("|")] for line in table([found, slower])]
    assert lines[2][:8] == ["by-tpe", "tpe", "10 min", "5", "1", "9.1%", "2.00", "4"]
    assert lines[2][-2:] == ["4", "4"]
    assert lines[3][6:8] == ["1.25", "1"]
    assert lines[3][-2:] == ["not reached", "not reached"]


def test_an_engine_that_was_compiled_in_one_study_is_told() -> None:
    """In the first pair that was recorded it was in TPE's trials, which ran first."""

    def started(*seconds: float) -> list[Trial]:
        later = [f.finished(n).with_(startup={"import": 30.0, "engine": s}) for n, s in enumerate(seconds, start=1)]
        return [f.finished(0), *later]

    quick, slow = search_of(study(1, "grey"), started(12.0, 9.0), 60.0), search_of(study(2, "tpe"), started(48.0), 60.0)
    (said,) = compiled([quick, slow])
    assert said.startswith("study 'by-tpe': an engine took 48 s to start, in another study at most 12 s")
    assert compiled([quick, search_of(study(2, "tpe"), started(20.0), 60.0)]) == []
    assert compiled([quick, search_of(study(2, "tpe"), history(8.0), 60.0)]) == [], "it had no engine"
    full = f.failed(1, f.failure(FailureReason.OOM, phase="engine")).with_(seconds=75.0)
    assert len(compiled([quick, search_of(study(2, "tpe"), [f.finished(0), full], 60.0)])) == 1


def test_what_the_machine_broke_is_no_trial_and_a_search_that_found_nothing_has_its_baseline() -> None:
    broken = f.failed(1, f.failure(FailureReason.INFRA))
    found = search_of(study(1, "tpe"), [f.finished(0), broken], 60.0)
    assert (found.trials, found.gains, found.reached(1.0)) == ((), (), 0)
    assert "| 1.00 | 0 |" in table([found])[2]


def test_other_workloads_and_inherited_knowledge_are_refused() -> None:
    one, two = study(1, "tpe"), study(2, "grey")
    check([one, two])
    other = replace(two, spec=replace(two.spec, memory_limit=1 << 30))
    with pytest.raises(UsageError, match="not alike: memory_limit: "):
        check([one, other])
    earlier = EarlierStudy(1, "by-tpe", (0, 1), 0.0, "study 'by-tpe'")
    with pytest.raises(UsageError, match="'by-grey' began with what 'by-tpe' measured"):
        check([one, replace(two, beforehand=PriorKnowledge(earlier=(earlier,)))])
    with pytest.raises(UsageError, match="baseline has no tokens/hour"):
        search_of(one, [f.failed(0)], 1.0)


def test_the_command_reads_stored_studies(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = read_settings(environ={}, home=tmp_path)
    settings.home.prepare()
    store = open_store(settings.database)
    for sampler in ("tpe", "grey"):
        made = store.create_study(f.study_spec(f"by-{sampler}", sampler=sampler), f.NOW)
        for trial in history(8.0):
            record(store, made, trial)
    store.close()
    assert side_by_side.main([str(tmp_path), "by-tpe", "by-grey"]) == 0
    assert "| by-grey | grey |" in capsys.readouterr().out
    assert side_by_side.main([str(tmp_path), "by-tpe", "none"]) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert side_by_side.main([str(tmp_path)]) == 2

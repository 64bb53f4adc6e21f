"""What a report says of long runs: from the trials alone, and nothing where there are none."""

from __future__ import annotations

from autotune.domain import CycleKind, Trial, TrialState
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.recommendation.recommend import recommend
from autotune.report import report
from autotune.report.verified import section
from autotune.verify import long_run as long_runs
from tests.support import factories as f

STUDY = f.study()
BASELINE = STUDY.spec.baseline
LEADER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)


def searched() -> list[Trial]:
    return [f.finished(0, cycle_seconds=10.0), f.finished(1, cycle_seconds=5.0, configuration=LEADER)]


def long_run(number: int, seconds: float, **changes: object) -> Trial:
    draft = long_runs.draft(STUDY, LEADER, 4)
    cycles = tuple(f.cycle(i, seconds=seconds, cycle_kind=CycleKind.NATURAL) for i in range(4))
    made = f.finished(number, kind=draft.kind, configuration=LEADER, source=draft.source, protocol=draft.protocol)
    return made.with_(cycles=cycles, **changes)


def report_of(trials: list[Trial]) -> str:
    answer = AnswerSource.RECOMMENDATION, recommend(STUDY.spec, trials, "")
    return report(StudyReading(STUDY, trials, known_answer=answer))


def test_a_study_without_either_has_no_such_section() -> None:
    assert section(STUDY, searched()) == []
    assert "## Verified" not in report_of(searched())


def test_a_long_run_is_judged_by_the_figure_as_it_stands() -> None:
    trials = [*searched(), long_run(2, 6.0)]
    text = report_of(trials)
    assert "## Verified" in text
    assert "measured / predicted = 0.833" in text
    assert "reason    generate took 0.50 s a cycle longer than predicted (3.00 s instead of 2.50 s)" in text


def test_one_that_was_broken_off_or_has_no_figure_left_says_nothing() -> None:
    broken = long_run(2, 6.0, state=TrialState.FAIL)
    assert section(STUDY, [*searched(), broken]) == []
    failed = f.failed(1, configuration=LEADER)
    assert section(STUDY, [searched()[0], failed, long_run(2, 6.0)]) == []

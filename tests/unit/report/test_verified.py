"""What a report says of long runs and repetitions: from the trials alone, and nothing where there are none."""

from __future__ import annotations

from dataclasses import replace

from autotune.domain import CycleKind, Trial, TrialKind, TrialState
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.recommendation.recommend import recommend
from autotune.report import report
from autotune.report.verified import section
from autotune.verify import long_run as long_runs
from autotune.verify import repeats
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


def repeated(number: int, seconds: float) -> Trial:
    draft = repeats.draft(STUDY, (), LEADER)
    return f.finished(number, kind=draft.kind, configuration=LEADER, source=draft.source, cycle_seconds=seconds)


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


def test_repetitions_give_their_spread_and_change_no_confirmed_figure() -> None:
    confirmed = [
        f.finished(2, kind=TrialKind.CONFIRM, pair=0, configuration=BASELINE),
        f.finished(3, kind=TrialKind.CONFIRM, pair=0, configuration=LEADER, cycle_seconds=5.0),
    ]
    trials = [*searched(), *confirmed]
    before = recommend(STUDY.spec, trials, "")
    trials += [repeated(4, 5.0), repeated(5, 5.5)]
    after = recommend(STUDY.spec, trials, "")
    assert before is not None
    assert after is not None
    assert after.rows[0].tokens_per_hour == before.rows[0].tokens_per_hour
    assert replace(after.rows[0].gain or f.gain(), low=0, high=0) == replace(
        before.rows[0].gain or f.gain(), low=0, high=0, cycles=(after.rows[0].gain or f.gain()).cycles
    )
    text = "\n".join(section(STUDY, trials))
    assert "configuration: " in text
    assert "over 2 runs in fresh processes" in text
    assert "standard deviation of a run 6.7 %" in text

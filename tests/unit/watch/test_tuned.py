"""What a study knows about a run at other lengths: it is asked when nobody is at hand to doubt the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import CycleKind, Trial
from autotune.recommendation.recommend import row_of
from autotune.watch.findings import Level, look
from autotune.watch.series import Series
from autotune.watch.tuned import TunedRun, tuned_run
from tests.support import factories as f
from tests.support.not_none import not_none
from tests.unit.watch.made_runs import growing

LONG = tuple(2 * n for n in f.LENGTHS)
WIDE = f.configuration(micro_batch_size=8, gradient_accumulation_steps=1)
STUDY = f.study(spec=f.study_spec(baseline=WIDE, memory_limit=4 * f.GIB))
"""A study whose baseline fits at 128 tokens and not at 512."""
FAST_WHEN_LONG = f.configuration(micro_batch_size=1, gradient_accumulation_steps=8)


def measured(number: int, seconds: float, longer: float, **changes: object) -> Trial:
    """A trial whose cycles take ``seconds`` at the recorded lengths, and ``longer`` times that at twice those."""
    cycles = [f.cycle(seconds=seconds, lengths=f.LENGTHS)] * 3
    cycles += [f.cycle(seconds=seconds * longer, lengths=LONG, cycle_kind=CycleKind.DOUBLE)]
    trial = f.finished(number, **changes)  # type: ignore[arg-type]
    return trial.with_(cycles=tuple(replace(c, index=i) for i, c in enumerate(cycles)))


def run_of(trials: list[Trial]) -> TunedRun:
    row = not_none(row_of(STUDY.spec, trials, WIDE))
    return not_none(tuned_run(STUDY, trials, row))


@pytest.fixture
def trials() -> list[Trial]:
    return [measured(0, 10.0, 2.0, configuration=WIDE), measured(1, 11.0, 1.2, configuration=FAST_WHEN_LONG)]


def test_at_the_measured_lengths_a_step_takes_what_was_stated(trials: list[Trial]) -> None:
    tuned = run_of(trials)
    assert tuned.mean_length == pytest.approx(sum(f.LENGTHS) / len(f.LENGTHS))
    assert tuned.seconds(tuned.mean_length, max(f.LENGTHS)) == pytest.approx(10.0, rel=0.02)
    assert tuned.seconds(2 * tuned.mean_length, max(LONG)) > 15.0


def test_another_configuration_is_named_only_where_it_is_faster(trials: list[Trial]) -> None:
    tuned = run_of(trials)
    assert tuned.faster(tuned.mean_length, max(f.LENGTHS)) is None
    name, gain = not_none(tuned.faster(2 * tuned.mean_length, max(LONG)))
    assert "micro" in name
    assert gain > 0.2


def test_longer_completions_fit_less_and_fewer_rows_fit_longer_ones(trials: list[Trial]) -> None:
    tuned = run_of(trials)
    fits = [tuned.fits(length) for length in (128, 512, 4_000)]
    assert fits == sorted(fits, reverse=True)
    assert fits[0] > 0.9 > 0.3 > fits[1]
    assert [tuned.setting_for(n).partition(",")[0] for n in (512, 1_000, 2_000)] == [
        *("micro_batch_size 4", "micro_batch_size 2", "micro_batch_size 1")
    ]
    assert "gradient_accumulation_steps 2 fits up to 512" in tuned.setting_for(512)
    row = not_none(row_of(STUDY.spec, trials, WIDE))
    assert not_none(tuned_run(STUDY, trials, row, 8.0 * f.GIB)).fits(512) > 0.9, "with more memory"
    assert tuned.setting_for(40_000) == "no smaller micro-batch is sure to fit"


def test_a_run_with_longer_completions_than_the_study_allows_is_foretold_by_the_memory_model(
    trials: list[Trial],
) -> None:
    tuned = run_of(trials)
    edge = next(n for n in range(100, 1_000, 10) if tuned.fits(n) < 0.5)
    lines, series = growing(300, longest=lambda i: edge * (0.3 + 0.006 * i), memory=None), Series()
    truth = next(i for i, line in enumerate(lines, start=1) if float(line.split("length/max:")[1].split(" ")[0]) > edge)
    series.read(lines[: truth // 2])
    found = {finding.kind: finding for finding in look(series, tuned=tuned)}
    assert found["memory"].step == pytest.approx(truth, rel=1 / 3)
    assert found["memory"].level > Level.NOTE
    assert "micro_batch_size" in found["memory"].sentence

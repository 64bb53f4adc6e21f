"""Each rank writes its own record of a cycle; what is counted over cycles is counted once."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.console import Console

from autotune.cli.screens.trial import trial_screen
from autotune.domain import CycleKind, Trial
from autotune.recommendation.reading import StudyReading
from autotune.report import report
from autotune.study.budget import predict
from tests.support import factories


def doubled(trial: Trial) -> Trial:
    """The same trial as two ranks tell of it; the second one's clock is a little off."""
    other = tuple(replace(c, rank=1, seconds=c.seconds - 0.001) for c in trial.cycles)
    return trial.with_(cycles=tuple(c for pair in zip(trial.cycles, other, strict=True) for c in pair))


@pytest.fixture
def one() -> Trial:
    natural = factories.cycle(9, cycle_kind=CycleKind.NATURAL, zero_std_groups=1, lengths=(16,) * 160)
    trial = factories.finished(0, cycle_seconds=10.0)
    return trial.with_(cycles=(*trial.cycles, natural), seconds=100.0)


def test_speed_is_rank_0s(one: Trial) -> None:
    assert one.tokens_per_hour is not None
    assert doubled(one).tokens_per_hour == one.tokens_per_hour
    assert len(doubled(one).speed_cycles()) == 3


def test_the_predicted_start_up_is_not_eaten_by_the_second_ranks_cycles(one: Trial) -> None:
    alone, both = (predict([trial], trial.configuration) for trial in (one, doubled(one)))
    assert alone.start_up == pytest.approx(60.0)
    assert both == alone


def test_groups_at_natural_lengths_are_not_doubled(one: Trial) -> None:
    for trial in (one, doubled(one)):
        reading = StudyReading(factories.study(), (trial,), (0.0, 0.0))
        assert "40 groups ran at natural lengths" in report(reading)


def test_the_trials_page_counts_groups_once_and_shows_both_ranks(one: Trial) -> None:
    console = Console(width=160, record=True)
    console.print(trial_screen(doubled(one), factories.study()))
    shown = console.export_text()
    assert "39 of 40 groups have differing rewards" in shown
    assert "0/r0" in shown
    assert "0/r1" in shown

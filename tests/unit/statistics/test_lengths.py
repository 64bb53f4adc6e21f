"""Tokens/hour by completion length: what was not measured is said to be, and nothing is made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import CycleKind, Trial, TrialKind
from autotune.recommendation.recommend import recommend
from autotune.statistics import lengths
from autotune.study import confirmation
from autotune.wording.sentences import lengths_words
from tests.support import factories as f
from tests.support.not_none import not_none

SPEC = f.study_spec()
FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
TWICE = tuple(min(2 * n, f.MAX_COMPLETION) for n in f.LENGTHS)
LONGEST = (f.MAX_COMPLETION,) * f.ROWS


def with_longer(trial: Trial, double: float, maximum: float) -> Trial:
    """A trial with a cycle of each longer kind, of so many seconds."""
    more = (
        f.cycle(90, seconds=double, lengths=TWICE, cycle_kind=CycleKind.DOUBLE),
        f.cycle(91, seconds=maximum, lengths=LONGEST, cycle_kind=CycleKind.MAXIMUM),
    )
    return trial.with_(cycles=(*trial.cycles, *more))


def test_every_length_is_stated_from_its_own_cycles() -> None:
    runs = [with_longer(f.finished(1, cycle_seconds=10.0), 15.0, 20.0) for _ in range(2)]
    once, twice, longest = lengths.figures(runs, 161_000.0)
    assert (once.at, once.tokens_per_hour, once.cycles) == ("1x", 161_000.0, 6)
    assert once.mean_length == pytest.approx(sum(f.LENGTHS) / 8)
    assert (twice.at, twice.cycles) == ("2x", 2)
    assert twice.tokens_per_hour == pytest.approx(3600 * sum(TWICE) / 15.0)
    assert longest.tokens_per_hour == pytest.approx(3600 * 8 * 128 / 20.0)
    assert longest.mean_length == 128


def test_a_discarded_cycle_and_another_ranks_do_not_count() -> None:
    trial = with_longer(f.finished(1), 15.0, 20.0)
    bad = [replace(c, accepted=False) for c in trial.cycles if c.cycle_kind is CycleKind.DOUBLE]
    other = [replace(c, rank=1) for c in trial.cycles if c.cycle_kind is CycleKind.MAXIMUM]
    plain = trial.with_(cycles=(*trial.speed_cycles(), *bad, *other))
    assert [x.tokens_per_hour for x in lengths.figures([plain], 1.0)] == [1.0, None, None]


def test_what_was_not_measured_is_never_a_figure() -> None:
    trials = [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]
    found = not_none(recommend(SPEC, trials, ""))
    said = lengths_words(found.rows[0])
    assert "twice" not in said
    assert "limit" not in said
    assert found.rows[0].maximum_tokens_per_hour is None
    assert len(found.rows[0].lengths) == 3


def test_a_row_an_earlier_version_stored_says_what_it_knew() -> None:
    row = f.recommendation_row(lengths=())
    assert lengths_words(row) == "226.0k at this policy's lengths, 180.0k at the limit"


def test_a_confirmation_runs_one_cycle_at_twice_the_lengths_and_its_cost_is_planned() -> None:
    plan = confirmation.next_trial(
        f.study(spec=SPEC), [f.finished(0), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]
    )
    assert plan.draft.kind is TrialKind.CONFIRM
    assert plan.draft.protocol.double == 1

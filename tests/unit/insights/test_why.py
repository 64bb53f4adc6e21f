"""Shares of knobs in words and as data, and the failures one knob away."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import FailureReason, TrialKind
from autotune.domain.differences import Differences, chosen_differences
from autotune.insights.why import (
    MOST_FAILED,
    RuledOut,
    RulingCause,
    by_trials,
    failed_neighbours,
    neighbour_words,
    range_words,
    ruled_words,
    share_words,
    shares_json,
    shares_lines,
    summary_words,
)
from autotune.statistics.knob_shares import KnobShares, Share
from autotune.statistics.retries import SOURCE
from tests.support import factories
from tests.support.not_none import not_none

BASE = factories.configuration(gradient_accumulation_steps=4, steps_per_generation=4)
FOUR = BASE.with_(micro_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=2)
EIGHT = BASE.with_(micro_batch_size=8, gradient_accumulation_steps=1, steps_per_generation=1)


def test_what_follows_from_others_is_no_difference() -> None:
    assert chosen_differences(BASE, FOUR) == {"micro_batch_size": (2, 4)}
    half = BASE.with_(steps_per_generation=2)
    assert chosen_differences(BASE, half) == {"steps_per_generation": (4, 2)}, "half an update is another share"
    assert chosen_differences(half, FOUR.with_(steps_per_generation=1)) == {"micro_batch_size": (2, 4)}


def shares(*found: Share, elsewhere: float = 0.0) -> KnobShares:
    changes: Differences = {"attn_implementation": ("sdpa", "eager"), "gradient_checkpointing": (True, False)}
    changes |= {"micro_batch_size": (2, 8)}
    logs = [sum(math.log1p(getattr(s, name)) for s in found) for name in ("value", "low", "high")]
    together = Share(tuple(changes), *map(math.expm1, logs))
    return KnobShares(changes, found, together, elsewhere, 9)


EAGER = Share(("attn_implementation",), 0.254, -0.014, 0.573)
PROVEN = Share(("micro_batch_size",), 0.6, 0.4, 0.83)
BOTH = Share(("gradient_checkpointing", "micro_batch_size"), 0.4, 0.051, 0.859)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (EAGER, "attn_implementation eager: +25 % (-1 % to +57 %)"),
        (BOTH, "gradient_checkpointing off with micro_batch_size 8: +40 % (+5 % to +86 %), never tried apart"),
        (replace(EAGER, low=-0.0041, high=1.5), "attn_implementation eager: +25 % (-0.4 % to +150 %)"),
        (replace(EAGER, low=-0.9, high=19.0), "attn_implementation eager: not told apart from noise"),
        (replace(EAGER, value=4.0, low=0.5, high=9.0), "attn_implementation eager: faster, by how much is not known"),
        (
            replace(EAGER, value=-0.8, low=-0.95, high=-0.1),
            "attn_implementation eager: slower, by how much is not known",
        ),
        (replace(EAGER, value=11.0, low=7.0, high=15.0), "attn_implementation eager: 12.0x (8.0x to 16.0x)"),
        (
            Share(("micro_batch_size",), 0.0, 0.0, 0.0),
            "micro_batch_size 8: nothing, it acts on no phase of these cycles",
        ),
    ],
)
def test_a_share_in_words(share: Share, words: str) -> None:
    assert share_words(shares(share), share) == words


@given(low=st.floats(-0.99, 1e4), wide=st.floats(1.01, 1e6), at=st.floats(0.0, 1.0))
def test_no_percentage_is_above_a_thousand_and_no_interval_wider_than_fourfold(
    low: float, wide: float, at: float
) -> None:
    high, value = (1.0 + low) * wide - 1.0, (1.0 + low) * wide**at - 1.0
    words = range_words(Share(("micro_batch_size",), value, low, high))
    assert all(abs(float(figure)) <= 1000 for figure in re.findall(r"[+-]([\d.]+) %", words))
    assert (re.search(r"\d", words) is None) == (high + 1.0 > 4.0 * (1.0 + low))


def test_the_last_line_says_what_all_do_together_and_what_is_proven() -> None:
    assert shares_lines(None) == []
    assert shares_lines(shares(EAGER))[1:] == ["together +25 %, by one model of 9 trials; no single knob is proven"]
    assert summary_words(shares(EAGER, PROVEN)) == "together +101 %, by one model of 9 trials; proven: micro_batch_size"
    assert summary_words(shares(BOTH)).endswith("; proven: gradient_checkpointing with micro_batch_size")
    elsewhere = summary_words(shares(PROVEN, elsewhere=-0.081))
    assert elsewhere.endswith("; -8.1 % of it in phases that none of them acts on")
    assert "of it in phases" not in summary_words(shares(PROVEN, elsewhere=0.04))


def test_the_document_has_both_sides_of_each_change() -> None:
    document = not_none(shares_json(shares(BOTH)))
    assert document["knobs"][0]["changes"] == [
        {"knob": "gradient_checkpointing", "before": True, "after": False},
        {"knob": "micro_batch_size", "before": 2, "after": 8},
    ]
    assert document["together"] == {
        "gain": pytest.approx(0.4),
        "low": pytest.approx(0.051),
        "high": pytest.approx(0.859),
        "proven": True,
    }
    assert shares_json(None) is None


def test_neighbours_that_failed_or_were_stopped_are_named_but_not_as_figures() -> None:
    crash = factories.failure(FailureReason.INFRA)
    trials = [
        factories.finished(0, configuration=BASE, cycle_seconds=10.0),
        factories.finished(1, configuration=FOUR, cycle_seconds=5.0),
        factories.failed(2, configuration=EIGHT),
        factories.stopped(3, configuration=FOUR.with_(logprob_rows=4)),
        factories.failed(4, crash, configuration=FOUR.with_(logprob_rows=8)),
        factories.failed(5, configuration=FOUR.with_(precision="bf16")),
        factories.finished(6, configuration=FOUR.with_(precision="bf16"), kind=TrialKind.VERIFY, source=SOURCE),
    ]
    bigger, stopped = failed_neighbours(trials, FOUR)
    assert (bigger.change.after, bigger.trial, bigger.cause) == (8, 2, "OOM in update (host)")
    own = not_none(trials[1].tokens_per_hour)
    assert stopped.at_least == pytest.approx(own / 171_234.0 - 1.0)
    words = [neighbour_words(one) for one in (bigger, stopped)]
    assert words[0] == "micro_batch_size 4 -> 8: OOM in update (host), #2"
    assert re.fullmatch(r"logprob_rows 2 -> 4: stopped, against it the answer gains at least \+\d+\.\d %, #3", words[1])


def test_every_trial_is_ruled_out_once_at_most_and_the_answer_never() -> None:
    quality = factories.failure(FailureReason.QUALITY)
    trials = [
        factories.finished(0, configuration=BASE),
        factories.finished(1, configuration=FOUR, cycle_seconds=5.0),
        factories.finished(2, configuration=EIGHT, cycle_seconds=20.0),
        factories.stopped(3),
        factories.failed(4),
        factories.failed(5),
        factories.failed(6, quality),
        factories.failed(7, factories.failure(FailureReason.CANCELLED)),
        factories.trial(8),
    ]
    found = by_trials(trials, [0, 1])
    assert sorted(n for r in found for n in r.trials) == [2, 3, 4, 5, 6]
    assert [r.by for r in found] == [RulingCause.GUARD, RulingCause.FAILURE, RulingCause.STOPPED, RulingCause.SLOWER]
    assert all(r.count == len(r.trials) for r in found)
    assert "failure: 2 trials (#4, #5)" in ruled_words(found[1])
    assert ruled_words(RuledOut(RulingCause.LEGALITY, "", 3200, "4 is 2.")).endswith("3,200 combinations, as 4 is 2")


def test_of_thousands_of_neighbours_the_first_are_told() -> None:
    """Every size of a chunk is a neighbour of every other; an answer must not grow with the study."""
    ended = [factories.failed(n, configuration=BASE.with_(logprob_token_chunk=64 + n)) for n in range(40, 80)]
    found = failed_neighbours(ended, BASE)
    assert [f.trial for f in found] == list(range(40, 40 + MOST_FAILED))

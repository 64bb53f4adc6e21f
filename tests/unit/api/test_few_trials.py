"""Every sentence about a study with no, one, two or three trials says something, and nothing that is not so."""

from __future__ import annotations

import re

import pytest

from api.dashboard.answer_view import answer_page
from api.dashboard.study_view import study_view
from api.dashboard.why_view import WhyQuery, why_view
from autotune.cli.screens.study import end_screen, why_screen
from autotune.domain import CycleKind, FailureReason, Trial, TrialKind, TrialState
from autotune.forecast.explain import explain
from tests.support import factories as f
from tests.support.served import words_of
from tests.unit.api.test_pages import drawn, snapshot
from tests.unit.cli.drawing import text

SPACE = {"knobs": {"micro_batch_size": [1, 2, 4, 8], "gradient_checkpointing": [True, False]}}
STUDY = f.study(spec=f.study_spec(space=SPACE))
BASE = STUDY.spec.baseline
FOUR = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
BOTH = FOUR.with_(gradient_checkpointing=False)
BASELINE = TrialKind.BASELINE
FAILED = (f.failed(0), f.failed(1, configuration=FOUR))
TWO = (f.finished(0), f.finished(1, configuration=FOUR, cycle_seconds=8.0))

STUDIES: dict[str, tuple[Trial, ...]] = {
    "none": (),
    "waiting": (f.trial(0),),
    "running": (f.trial(0, state=TrialState.RUNNING),),
    "one": (f.finished(0),),
    "one cycle": (f.finished(0, cycles=1),),
    "one broken off": (f.broken_off(0, cycles=(f.cycle(0, cycle_kind=CycleKind.WARMUP),)),),
    "one failed": (f.failed(0),),
    "two": TWO,
    "two of one cycle": (f.finished(0, cycles=1), f.finished(1, configuration=FOUR, cycle_seconds=8.0, cycles=1)),
    "two, one failed": (f.finished(0), f.failed(1, configuration=FOUR)),
    "two, one stopped": (f.finished(0), f.stopped(1, at_most=90_000.0, configuration=FOUR)),
    "two failed": FAILED,
    "broken off, then another": (f.broken_off(0), f.finished(1, configuration=FOUR)),
    "broken off, then measured": (f.broken_off(0), f.finished(1, kind=BASELINE, configuration=BASE)),
    "three": (*TWO, f.finished(2, configuration=BOTH, cycle_seconds=6.0)),
    "three alike": (f.finished(0), f.finished(1, configuration=FOUR), f.finished(2, configuration=BOTH)),
    "three failed": (*FAILED, f.failed(2, f.failure(FailureReason.CRASH), configuration=BOTH)),
    "three, one held": (*FAILED, f.finished(2, configuration=BOTH)),
}


def everything_said(trials: tuple[Trial, ...]) -> list[str]:
    """The sentences of the pages and of the screens."""
    found = snapshot(trials, study=STUDY)
    page, why = study_view(found, {}), why_view(found, WhyQuery())
    charts = [v for v in (*vars(why).values(), page.history) if hasattr(v, "says")]
    said = [sentence for chart in charts for sentence in (chart.title, chart.says, chart.note)]
    rows = 0 if found.recommendation is None else len(found.recommendation.rows)
    answer = answer_page(found, ["not exported"] * rows)
    said += [answer.headline, answer.baseline, *answer.notes, words_of(drawn(found))]
    ends = end_screen(found, ended_by="the end", whole=True)
    said.append(" ".join(text(ends).split()))
    explained = explain(found)
    if explained is not None:
        said.append(" ".join(text(why_screen(explained)).split()))
    return [sentence for sentence in said if sentence]


@pytest.mark.parametrize("name", STUDIES)
def test_no_sentence_is_nonsense(name: str) -> None:
    for said in everything_said(STUDIES[name]):
        assert not re.search(r"\band\s*$|:\s*$|: and\b", said), f"it breaks off: {said}"
        assert "explains most, 0" not in said
        assert not re.search(r"interval (\S+(?: %)?) to \1(?![\d.])", said), f"an interval without width: {said}"
        assert not re.search(r"Between (\S+) and \1\b", said), said
        assert not re.search(r"\b(\w+): \1:", said, re.IGNORECASE), f"a label twice: {said}"
        assert not re.search(r"\b1 (trials|configurations|pairs|steps|knobs)\b", said), said
        assert not re.search(r"\b0 configurations and\b", said), said
        assert "nan" not in said.split()


@pytest.mark.parametrize("name", STUDIES)
def test_failed_ok_and_unmeasured_are_never_said_of_one_baseline(name: str) -> None:
    trials = STUDIES[name]
    said = " ".join(everything_said(trials))
    broken = any(t.outcome is not None and t.outcome.reason is FailureReason.CANCELLED for t in trials)
    claims = [c for c in ("baseline failed", "was not measured", "ok; gains are stated", "ok, and kept") if c in said]
    assert len(claims) <= 1, claims
    assert not (broken and "baseline failed" in said)


@pytest.mark.parametrize("name", ["none", "waiting", "running", "one broken off"])
def test_what_was_not_measured_is_not_called_infeasible(name: str) -> None:
    said = [s for s in everything_said(STUDIES[name]) if s != "No feasible trial has both a speed and a peak."]
    assert not re.search(r"\bfeasible\b", re.sub(r"0 feasible of \d+ needed", "", " ".join(said)))


def test_a_baseline_alone_is_not_said_to_have_been_compared() -> None:
    for name in ("one", "one cycle", "two, one failed", "broken off, then measured"):
        said = " ".join(everything_said(STUDIES[name]))
        assert "Only your baseline has a figure so far" in said, name
        assert "proven to beat" not in said, name
        assert "measured faster" not in said, name
    compared = " ".join(everything_said(STUDIES["two, one stopped"]))
    assert "Nothing is proven to beat your baseline" in compared


def test_what_measured_faster_without_proof_is_not_called_slower() -> None:
    faster = f.finished(1, configuration=FOUR, cycle_seconds=[3.0, 6.0, 9.0])
    said = " ".join(everything_said((f.finished(0, cycle_seconds=[4.0, 10.0, 16.0]), faster)))
    assert "unproven: 1 trial (#1); measured faster, not proven" in said
    assert "slower" not in said.replace("measured faster", "")
    slower = (f.finished(0), f.finished(1, configuration=FOUR, cycle_seconds=12.0))
    assert "slower: 1 trial (#1); measured and not faster" in " ".join(everything_said(slower))


@pytest.mark.parametrize("name", ["none", "one", "two", "broken off, then another"])
def test_a_map_of_two_knobs_is_drawn_only_where_two_differ(name: str) -> None:
    found = why_view(snapshot(STUDIES[name], study=STUDY), WhyQuery())
    assert (found.fits.title, str(found.fits.drawing)) == ("What fits", "")
    three = why_view(snapshot(STUDIES["three"], study=STUDY), WhyQuery())
    assert three.fits.title == "What fits: micro_batch_size and gradient_checkpointing"

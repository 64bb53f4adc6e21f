"""What a person sees."""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from api.dashboard.filters import page_of
from api.dashboard.render import render
from api.dashboard.study_view import study_view
from autotune.charts.assets import STYLE
from autotune.charts.phase_bars import gain_bar, phase_bars
from autotune.cli.screens.study import end_screen
from autotune.cli.screens.tables import knob_columns, trials_table
from autotune.domain import Budget, FailureReason, Outcome, Phase, Pool, Study, Trial, TrialKind, TrialState
from autotune.recommendation.reading import AnswerSource, StudyReading, read_study
from autotune.recommendation.recommend import recommend
from autotune.settings import Settings
from autotune.store import open_store
from autotune.wording.sentences import evidence_words, gain_words, speed_words
from tests.support import factories
from tests.support.not_none import not_none
from tests.support.served import Reader, words_of
from tests.unit.cli.drawing import text
from trainer.child.contract import CurrentPhase, PhaseMark


def snapshot(trials: tuple[Trial, ...] = (), **changes: Any) -> StudyReading:
    study = changes.pop("study", factories.study())
    found = recommend(study.spec, trials, "the end", now=factories.NOW)
    base: dict[str, Any] = {
        "study": study,
        "trials": trials,
        "spent": (95.0, 0.0),
        "limits": Budget(wall_s=600.0),
        "known_answer": (AnswerSource.RECOMMENDATION, found),
        "fingerprint": factories.fingerprint(),
    }
    return StudyReading(**(base | changes))


def drawn(found: StudyReading, life: Any = None) -> str:
    """Both pages of a snapshot."""
    lives = {trial.number: life for trial in found.trials}
    page = render("study.html", study=study_view(found, lives)).decode()
    one = {"studies": [found], "part": page_of([found], 1, 9), "menus": (), "every": 1, "before": "", "after": ""}
    return page + render("studies.html", **one).decode()


def test_the_page_says_what_the_end_screen_and_the_json_say(finished: Reader, finished_home: Settings) -> None:
    """Three places, one answer: else nobody knows which to believe."""
    store = open_store(finished_home.database)
    found = read_study(store, store.study(1))
    store.close()
    stored = not_none(found.stored)
    document = finished.json("/api/v1/studies/1/recommendation")["recommendation"]
    page = words_of(finished.page("/studies/1"))
    screen = " ".join(text(end_screen(found, ended_by=stored.ended_by, whole=True)).split())
    assert len(stored.rows) == len(document["rows"]) >= 1
    for row, json_row in zip(stored.rows, document["rows"], strict=True):
        assert json_row["tokens_per_hour"] == row.tokens_per_hour
        sentences = [*speed_words(row).split("; "), evidence_words(row), row.limit]
        sentences += [gain_words(row.gain)] if row.gain is not None else []
        for sentence in sentences:
            assert sentence in page
            assert " ".join(sentence.split()) in screen
    assert stored.rows[0].gain is not None
    headline = not_none(re.search(r"Best configuration: \S+ %", screen))
    assert headline.group() in page
    assert stored.ended_by in page


def test_without_scripts_the_page_is_whole(finished: Reader) -> None:
    page = finished.page("/studies/1")
    for trial in finished.json("/api/v1/studies/1/trials?limit=500")["trials"]:
        assert f">#{trial['number']}</a>" in page
    assert page.index(">#0</a>") > 0
    assert "<time datetime=" in page
    assert 'lang="en"' in page
    assert 'name="viewport"' in page


def test_trials_come_best_first_with_failures_and_their_causes(reader: Reader, study: Study) -> None:
    page = reader.page("/studies/1")
    table = page[page.index('class="trials"') : page.index("</table>", page.index('class="trials"'))]
    assert re.findall(r">#(\d)</a>", table) == ["1", "0", "3", "4", "2"]
    said = words_of(page)
    assert "OOM in update (host memory): the process tree reached 8.1 GiB of 8.0 GiB" in said
    assert "→ try micro_batch_size 1" in said
    assert "Best so far" in said
    assert "time 1 min 35 s of 10 min" in said
    assert "trials 4 of 9 the number of trials will end it, in about 1 min 59 s at this rate" in said
    assert "4 tried: 2 ok, 1 OOM, 1 running" in said
    assert "+100.0 %" in said
    assert "° changes numerics or the update" not in said, "no row shown with a speed has the mark"


def test_the_running_trial_shows_its_phase_and_last_sign(reader: Reader, study: Study, settings: Settings) -> None:
    assert "#3 search · starting" in words_of(reader.page("/studies/1"))
    path = settings.home.attempt(study.id, study.spec.name, 3, 1) / "phase"
    path.parent.mkdir(parents=True)
    mark = PhaseMark(path)
    mark.set("update", 2, "recorded")
    page = reader.page("/studies/1")
    assert "#3 search · update, cycle 2 · last update" in words_of(page)
    mark.set("generate", 3, "recorded")
    mark.close()
    assert "generate, cycle 3" in words_of(reader.page("/studies/1"))


KNOBS = st.fixed_dictionaries(
    {}, optional={"micro_batch_size": st.integers(1, 10**6), "precision": st.text(max_size=8), "x<y": st.floats()}
)
OUTCOMES = st.builds(
    Outcome,
    reason=st.sampled_from([None, *FailureReason]),
    phase=st.none() | st.text(max_size=12),
    pool=st.sampled_from([None, *Pool]),
    message=st.text(max_size=40),
    suggestion=st.text(max_size=40),
)
SECONDS = st.floats(min_value=0, allow_nan=False) | st.just(float("inf"))


@st.composite
def any_trial(draw: st.DrawFn, number: int) -> Trial:
    """Whatever a store can hold, sensible or not."""
    cycles = tuple(
        factories.cycle(i, seconds=draw(st.floats(1e-9, 1e9)), loss=float("nan"))
        for i in range(draw(st.integers(0, 3)))
    )
    return factories.trial(
        number,
        draw(st.sampled_from(list(TrialKind))),
        state=draw(st.sampled_from(list(TrialState))),
        configuration=factories.configuration(**draw(KNOBS)),
        outcome=draw(st.none() | OUTCOMES),
        cycles=cycles,
        worst_case_passed=draw(st.booleans()),
        watchdog_peak=draw(st.none() | st.integers(0, 2**62)),
        seconds=draw(st.none() | SECONDS),
        finished_at=draw(st.none() | st.floats(0, 1e12)),
        pair=draw(st.none() | st.integers(0, 3)),
        source=draw(st.text(max_size=10)),
    )


@examples(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), count=st.integers(0, 4), wall=SECONDS, limit=st.none() | SECONDS)
def test_any_state_of_any_trial_can_be_shown(data: st.DataObject, count: int, wall: float, limit: float | None) -> None:
    """One odd trial must not hide a whole study."""
    trials = tuple(data.draw(any_trial(number)) for number in range(count))
    life = data.draw(st.none() | st.tuples(st.builds(CurrentPhase, st.text(), st.integers(-1, 9), st.text()), SECONDS))
    found = snapshot(trials, spent=(wall, wall), limits=Budget(limit, data.draw(st.none() | st.integers(1, 99)), limit))
    page = drawn(found, life)
    for trial in trials:
        assert f">#{trial.number}</a>" in page
    for drawing in re.findall(r"<(?:rect|line)[^>]*>", page):
        assert not re.search(r'="-|nan|inf', drawing), drawing


def test_three_trials_that_failed_alike_are_one_row_and_one_cause() -> None:
    illegal = factories.failure(FailureReason.ILLEGAL, message="six rows hold no whole group")
    sizes = {n: factories.configuration(micro_batch_size=n, precision="bf16") for n in (1, 2, 3, 4)}
    refused = [factories.failed(n, illegal, configuration=sizes[n]) for n in (1, 2, 3)]
    trials = (factories.finished(0), *refused, factories.failed(4, configuration=sizes[4]))
    said = words_of(drawn(snapshot(trials)))
    assert "3× #3 invalid settings: six rows hold no whole group" in said
    assert "the same: #2 , #1" in said
    assert "#1 ×3 #2 #3 search invalid settings - … bf16" in said
    table = text(trials_table(trials, knob_columns([t.configuration for t in trials], 40)))
    rows = [" ".join(line.split()) for line in table.splitlines()]
    assert rows[2:] == ["#1 x3 search invalid settings - … bf16", "#4 search OOM - 4 bf16"]


def test_a_study_that_has_not_begun() -> None:
    page = words_of(drawn(snapshot()))
    assert "Nothing measured yet" in page
    assert "No trial has been started" in page


def test_a_baseline_that_failed_is_told_as_the_end_screen_tells_it() -> None:
    other = factories.configuration(micro_batch_size=1, gradient_accumulation_steps=8)
    trials = (factories.failed(0), factories.finished(1, configuration=other))
    page = words_of(drawn(snapshot(trials)))
    assert "Your baseline failed; this is the first configuration that fits." in page
    assert "Baseline: OOM in update" in page


@pytest.mark.parametrize(
    ("low", "value", "high"), [(0.3, 0.4, 0.5), (-0.2, 0.1, 0.4), (-0.5, -0.4, -0.3), (0.0, 0.0, 0.0), (0.3, 1.0, 3.0)]
)
def test_the_interval_is_drawn_where_it_lies(low: float, value: float, high: float) -> None:
    found = not_none(gain_bar(factories.gain(low=low, value=value, high=high)))
    zero, left, middle = float(found.zero), float(found.low), float(found.value)
    assert min(zero, left) >= 0
    assert max(zero, left + float(found.width)) <= 1000.5
    assert left - 0.1 <= middle <= left + float(found.width) + 0.1
    assert (left > zero + 0.2) is (low > 0)


def test_an_interval_without_a_place_is_left_out() -> None:
    assert gain_bar(factories.gain(high=float("inf"))) is None
    assert gain_bar(factories.gain(low=0.3, value=3.0, high=30.0)) is None, "its ends tell nothing"


def test_phases_fill_the_bar() -> None:
    bars = phase_bars({Phase.UPDATE.value: 0.6, "odd": 0.3, Phase.SYNC.value: 0.1, Phase.WAIT.value: float("nan")})
    assert [b.style for b in bars] == ["update", "other", "sync"]
    assert sum(float(b.width) for b in bars) == pytest.approx(1000, abs=1)
    assert phase_bars({}) == ()


def test_every_colour_of_a_phase_is_defined() -> None:
    style = STYLE.read_text()
    for name in (*(phase.value for phase in Phase), "other"):
        assert f".phase-{name} " in style
        assert f"--{name}:" in style


def test_a_stopped_trial_shows_its_bound_and_why() -> None:
    page = drawn(snapshot((factories.finished(0), factories.stopped(1), factories.failed(2))))
    read = words_of(page)
    assert "stopped" in read
    assert "≤ 171.2k" in read
    assert "it is never recommended" in read
    assert 'title="stopped after 3 cycles: at most 171.2k tokens/hour, the best has at least 190.2k"' in page
    assert "never recommended" not in words_of(drawn(snapshot((factories.finished(0),))))

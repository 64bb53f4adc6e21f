"""One pair of configurations has one gain, whoever states it: of every pair of every recorded study."""

from __future__ import annotations

import csv
import json
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from html import unescape
from itertools import permutations
from pathlib import Path

import pytest

from api.dashboard.answer_view import answer_page
from api.dashboard.compare_view import compare_view
from api.dashboard.render import render
from api.dashboard.report_page import report_page
from api.dashboard.study_view import study_view
from api.dashboard.trials_view import trials_csv
from api.dashboard.why_view import WhyQuery, why_view
from autotune.cli.commands.compare import comparison_json, comparison_screen
from autotune.cli.screens.study import end_screen
from autotune.documents.recommendation import recommendation_json
from autotune.domain import Configuration, Gain, Resources, StudyStatus, Trial
from autotune.insights.why import shares_lines
from autotune.recommendation.comparison import Comparison, compare_trials, verdict
from autotune.recommendation.current import answer_document
from autotune.recommendation.reading import StudyReading
from autotune.report import report
from autotune.statistics.evidence import gain
from autotune.statistics.knob_shares import knob_shares
from autotune.wording.sentences import gain_figure, row_gain_words
from benchmarks.gpu.journal import trial_of
from benchmarks.intervals.recordings import TABLES
from tests.support import factories
from tests.support.served import words_of
from tests.unit.cli import drawing
from trainer.child.contract import CycleKind

REFEREE = Path(__file__).parents[2] / "fixtures" / "referee"
RECORDED = (
    *sorted(TABLES.glob("h?00-*.jsonl")),
    *sorted(REFEREE.glob("study*.jsonl")),
    *TABLES.glob("disturbed-*.jsonl"),
)
SEEN = "seconds", "accepted", "noisy"
PERCENT = re.compile(r"[+-]?(\d[\d,]*(?:\.\d+)?) ?%")
INTERVAL = re.compile(r"interval ([+-]?[\d.,]+)( %|x|[kMG]?) to ([+-]?[\d.,]+)(?: %|x|[kMG]?)")


@cache
def reading(path: Path) -> StudyReading:
    """A recorded study, as a store would give it."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    whole = [trial_of(r, path.name) for r in rows if r.get("row") == "trial"]
    trials = whole or _of_cycles([r for r in rows if r.get("row") in (None, "cycle")])
    resources = Resources(gpus=1, device="cuda") if rows[0].get("measures_a_gpu") else Resources()
    spec = factories.study_spec(path.stem, baseline=trials[0].configuration, resources=resources)
    study = replace(factories.study(), spec=spec, status=StudyStatus.DONE)
    return StudyReading(study=study, trials=tuple(trials), spent=(480.0, 0.0))


def _of_cycles(rows: list[dict[str, object]]) -> list[Trial]:
    """Of a study of which only the cycles were kept: the baseline's trials, and the answer's."""
    found: dict[int, Trial] = {}
    for number, row in enumerate(dict.fromkeys((r["trial"], r["kind"], r["pair"]) for r in rows)):
        trial, kind, pair = row
        own = [r for r in rows if r["trial"] == trial]
        cycles = tuple(
            factories.cycle(i, completion_tokens=r.get("tokens") or r["completion_tokens"], **{n: r[n] for n in SEEN})
            for i, r in enumerate(own)
            if CycleKind.RECORDED.value in (r.get("lengths"), r.get("cycle_kind"))
        )
        is_answer = kind == "search" or (kind == "confirm" and any(t.pair == pair for t in found.values()))
        configuration = factories.configuration(**({"gradient_checkpointing": False} if is_answer else {}))
        made = factories.finished(number, configuration=configuration)
        found[number] = made.with_(kind=type(made.kind)(str(kind)), pair=pair, cycles=cycles)
    return list(found.values())


def pairs() -> Iterator[tuple[StudyReading, Trial, Trial]]:
    for path in RECORDED:
        study = reading(path)
        for a, b in permutations(study.trials, 2):
            yield study, a, b


def stated(found: Gain | None) -> tuple[float, bool] | None:
    return None if found is None else (math.copysign(1.0, found.value), found.decided)


def test_there_are_studies_and_pairs() -> None:
    assert len(RECORDED) == 9
    assert sum(compare_trials(*pair).ratio is not None for pair in pairs()) > 40


def test_compare_states_the_gain_of_the_two_configurations_whichever_of_their_runs_is_named() -> None:
    seen: dict[tuple[str, Configuration, Configuration], Gain | None] = {}
    for study, a, b in pairs():
        key = (study.study.spec.name, a.configuration, b.configuration)
        told = compare_trials(study, a, b)
        found, decided = told.ratio, told.ratio is not None and told.ratio.decided
        assert (told.decided, comparison_json(told)["decided"]) == (decided, decided)
        assert seen.setdefault(key, found) == found
        assert found == gain(study.trials, b.configuration, a.configuration)


def test_the_other_way_round_it_is_the_inverse_and_decided_alike() -> None:
    for study, a, b in pairs():
        one, other = compare_trials(study, a, b).ratio, compare_trials(study, b, a).ratio
        assert (one is None) is (other is None)
        if one is None or other is None:
            continue
        assert (1.0 + one.value) * (1.0 + other.value) == pytest.approx(1.0)
        assert (1.0 + one.low) * (1.0 + other.high) == pytest.approx(1.0)
        assert one.decided is other.decided


def rows_of(study: StudyReading) -> Iterator[tuple[Comparison, Gain]]:
    """Each answered row's gain, with the comparisons of its trials and the reference's."""
    for row in study.recommendation.rows:
        over = [t for t in study.trials if t.configuration == study.reference]
        for trial in (t for t in study.trials if t.number in row.trials):
            for other in over if row.gain is not None else ():
                assert row.gain is not None
                yield compare_trials(study, other, trial), row.gain


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_answer_table_shares_page_and_api_state_what_compare_states(path: Path) -> None:
    study = reading(path)
    recommendation = study.recommendation
    if recommendation is None:
        return
    for comparison, row in rows_of(study):
        assert stated(comparison.ratio) == stated(row)
        assert comparison_json(comparison)["decided"] is row.decided
    ranked = {s.configuration: s.ratio for s in study.standings}
    saved = list(csv.DictReader(trials_csv(study, study.trials, {}).decode().splitlines()))
    for line, trial in zip(saved, study.trials, strict=True):
        anchor = next(t for t in study.trials if t.configuration == study.reference)
        ratio, word = compare_trials(study, anchor, trial).ratio, study.gain_words(trial)
        if ratio is not None:
            assert math.copysign(1.0, study.gains[trial.configuration]) == math.copysign(1.0, ratio.value)
            assert bool(word) is bool(trial.tokens_per_hour)
            assert ranked.get(trial.configuration) in (None, study.gains[trial.configuration])
            assert float(line["gain"]) == study.gains[trial.configuration]
    for row in recommendation.rows:
        shares = knob_shares(study.trials, study.study.spec.baseline, row.configuration)
        if shares is not None and row.gain is not None:
            assert (shares.together.value, shares.together.low) == (row.gain.value, row.gain.low)
        said = next(r for r in recommendation_json(recommendation)["rows"] if r["title"] == row.title)
        assert (said["gain"] is None) is (row.gain is None)
        if row.gain is not None:
            assert said["gain"]["value"] == row.gain.value


def screens(study: StudyReading) -> Iterator[str]:
    """All that people are shown of a study, as text."""
    yield drawing.text(end_screen(study, ended_by="x", whole=True))
    yield report(study)
    yield report_page(study)
    page = study_view(study, {})
    yield " ".join((page.title, *page.knobs, page.history.says, *(" ".join(row) for row in page.history.rows)))
    why = why_view(study, WhyQuery(), predict_pairs=lambda *_: {}, predict_peaks=lambda *_: ())
    yield render("why.html", why=why).decode()
    yield render("study.html", study=page).decode()
    for a, b in permutations(study.trials, 2):
        view = compare_view(study, [a.number, b.number])
        yield from (*view.verdicts, str(view.figures))
    for row in study.recommendation.rows if study.recommendation is not None else ():
        yield "\n".join(shares_lines(knob_shares(study.trials, study.study.spec.baseline, row.configuration)))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_pages_reports_and_api_state_the_gain_that_compare_states(path: Path) -> None:
    study = reading(path)
    for a, b in permutations(study.trials, 2):
        found, view = compare_trials(study, a, b), compare_view(study, [a.number, b.number])
        assert view.verdicts == (verdict(found),)
        assert verdict(found) in " ".join(drawing.text(comparison_screen(found)).split())
        change = {line.name: line.change for line in view.figures}.get("tokens/hour")
        assert change in (None, "" if found.ratio is None else gain_figure(found.ratio))
        if found.ratio is not None:
            doubt = ("it includes no difference", "too few undisturbed cycles to decide")
            assert view.verdicts[0].endswith(doubt) is not found.decided
    if study.recommendation is None or not study.recommendation.rows:
        return
    answer = answer_page(study, [""] * len(study.recommendation.rows))
    pages = render("study.html", study=study_view(study, {})), render("recommendation.html", answer=answer)
    best = [" ".join(drawing.text(end_screen(study, ended_by="x", whole=whole)).split()) for whole in (True, False)]
    texts = [*best[:1], report(study), *map(words_of, (report_page(study), *map(bytes.decode, pages)))]
    told = answer_document(study)["recommendation"]["rows"]
    assert study.first_row is None or study.first_row.gain is None or row_gain_words(study.first_row) in best[1]
    for row, document in zip(study.recommendation.rows, told, strict=True):
        if row.gain is not None:
            assert all(row_gain_words(row) in text for text in texts)
            assert (document["gain"]["value"], document["gain"]["low"]) == (row.gain.value, row.gain.low)


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_answer_is_at_most_twenty_lines_and_ends_with_what_is_next(path: Path) -> None:
    run, places = ("2,000 updates: " + 20 * "hours ", "saved: 3 h"), {"more": "autotune best --why · autotune serve"}
    drawn = drawing.lines(
        end_screen(reading(path), ended_by="the time limit", next_command="x", run=run, places=places)
    )
    assert len(drawn) <= 20
    assert max(map(len, drawn)) <= 80
    assert " ".join(drawn[-1].split()) in ("next x", "next the same command with a larger --budget")


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_no_screen_states_more_than_a_thousand_percent_or_ends_that_tell_nothing(path: Path) -> None:
    seen = 0
    for text in map(unescape, screens(reading(path))):
        flat = " ".join(re.sub(r"<[^>]*>", " ", text).split())
        for number in PERCENT.findall(flat):
            assert float(number.replace(",", "")) <= 1000.0, number
        for low, unit, high in INTERVAL.findall(flat):
            ends = [float(end.replace(",", "")) for end in (low, high)]
            ends = [1.0 + end / 100.0 for end in ends] if unit == " %" else ends
            assert ends[1] <= 4.08 * ends[0], (low, high, flat[:200])
            seen += 1
    assert seen or len(reading(path).trials) < 3

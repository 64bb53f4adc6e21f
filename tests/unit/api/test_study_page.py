"""The page of a study beyond its answer: timeline, cost, notes, requests to the tuner, and the trials as a file."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from api.dashboard.answer_view import cost_of
from api.dashboard.budget_view import go_on_command
from api.dashboard.timeline import PAUSE_S, timeline_chart
from api.guard.security import Access
from autotune.charts.chart import nowhere
from autotune.cli.app import build_app
from autotune.cli.failures import exit_code_of
from autotune.domain import Budget, Study, StudyStatus, Trial
from autotune.recommendation.reading import StudyReading
from autotune.settings import Settings
from tests.support import factories
from tests.support.served import TOKEN, Reader, words_of

OWNER = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/html"}


@pytest.fixture
def owner(settings: Settings, study: Study) -> Iterator[Reader]:
    """A server that takes requests for a running study."""
    reader = Reader(settings, Access(token=TOKEN), allow_control=True)
    yield reader
    reader.cache.close()


def post(reader: Reader, form: str) -> Any:
    return reader.ask("/studies/1/control", "POST", content=form, headers=OWNER)


def test_a_note_and_tags_are_shown_on_the_pages_and_in_the_file(owner: Reader) -> None:
    assert post(owner, "action=annotate&trial=1&note=old").status_code == 303
    answer = post(owner, "action=annotate&trial=1&note=%3Db%3E+seen&tags=fast,+fast,,odd")
    assert (answer.status_code, answer.headers["location"]) == (303, "/studies/1/trials/1")
    post(owner, "action=annotate&note=of+the+study")
    assert "=b> seen fast odd" in words_of(owner.ask("/studies/1/trials/1", headers=OWNER).text)
    page = words_of(owner.ask("/studies/1", headers=OWNER).text)
    assert "fast, odd" in page
    assert "of the study" in page
    text = owner.ask("/studies/1/trials.csv?sort=number", headers=OWNER).text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["number"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert (rows[1]["note"], rows[1]["tags"]) == ("'=b> seen", "fast odd"), "no spreadsheet runs it"
    assert rows[1]["micro_batch_size"] == str(owner.cache.snapshot(1).trials[1].configuration["micro_batch_size"])
    assert len(list(csv.reader(io.StringIO(owner.ask("/studies/1/trials.csv?outcome=OOM", headers=OWNER).text)))) == 2


def test_a_program_and_the_command_line_annotate_as_the_page_does(
    owner: Reader, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {"trial": 2, "note": "by a program", "tags": ["odd"]}
    assert owner.ask("/api/v1/studies/1/annotations", "POST", json=document, headers=OWNER).status_code == 202
    for refused in ({"trial": "2"}, {"note": 3}, {"tags": ["x" * 41]}, {"command": "rm"}):
        assert owner.ask("/api/v1/studies/1/annotations", "POST", json=refused, headers=OWNER).status_code == 422
    home = ("--home", str(settings.home.root))
    for words in (("of the study", "--tag", "a", "--tag", "b"), ("x", "--trial", "1"), ("", "--trial", "1")):
        assert exit_code_of(lambda words=words: build_app()(["note", *words, *home])) == 0  # type: ignore[misc]
    capsys.readouterr()
    assert exit_code_of(lambda: build_app()(["note", "--json", *home])) == 0
    told = json.loads(capsys.readouterr().out)
    assert told == owner.json("/api/v1/studies/1/annotations", headers=OWNER)
    assert told["annotations"] == [{"trial": None, "note": "of the study", "tags": ["a", "b"]}, document]
    assert "by a program odd" in words_of(owner.ask("/studies/1/trials/2", headers=OWNER).text)
    assert exit_code_of(lambda: build_app()(["note", "x", "--trial", "99", *home])) == 2


@pytest.mark.parametrize(
    ("form", "status"),
    [
        ("action=stop", 303),
        ("action=extend&wall_seconds=600&trials=", 303),
        ("action=extend", 400),
        ("action=extend&wall_seconds=-1", 400),
        ("action=extend&gpu_hours=1", 409),
        ("action=stop&wall_seconds=600", 400),
        ("action=retry&trial=1", 303),
        ("action=retry&trial=3", 409),
        ("action=retry", 400),
        ("action=stop&trial=1", 400),
        ("action=annotate&trial=99", 404),
        ("action=%3Cscript%3E", 400),
        ("", 400),
    ],
)
def test_a_button_is_a_request_to_the_tuner(owner: Reader, form: str, status: int) -> None:
    assert post(owner, form).status_code == status
    stored = [e.kind for e in owner.cache.events(1, 1, 100)]
    assert stored == ([f"{form[7:].partition('&')[0]}_requested"] if status == 303 else [])


def test_parts_of_the_page_stand_in_the_order_in_which_they_are_read(reader: Reader, study: Study) -> None:
    parts = re.findall(r'<section id="([\w-]+)"', reader.page("/studies/1"))
    order = ["answer", "rounds", "failures", "knobs", "history", "timeline", "trials"]
    assert [part for part in parts if part in order] == order


def test_a_server_that_only_reads_has_no_buttons_and_takes_no_request(reader: Reader, study: Study) -> None:
    assert post(reader, "action=stop").status_code == 403
    page = reader.page("/studies/1")
    assert 'method="post"' not in page
    assert "--allow-control" in page


def reading(*trials: Trial, **changes: Any) -> StudyReading:
    return StudyReading(study=changes.pop("study", factories.study()), trials=trials, **changes)


def test_the_timeline_has_a_row_a_gpu_and_leaves_pauses_out() -> None:
    first = replace(factories.finished(0), started_at=1000.0, finished_at=1100.0, startup={"load": 40.0})
    second = replace(factories.finished(1), started_at=1050.0, finished_at=1100.0, startup={"load": 50.0}, cycles=())
    later = replace(first, number=2, started_at=1100.0 + PAUSE_S + 1.0, finished_at=1200.0 + PAUSE_S + 1.0)
    chart = timeline_chart([first, second, later], {0: "GPU 0", 1: "GPU 10", 2: "GPU 0"}, nowhere)
    rows = {row[0]: dict(zip(chart.heads, row, strict=True)) for row in chart.rows}
    assert list(rows) == ["GPU 0", "GPU 10"]
    assert (rows["GPU 0"]["trials"], rows["GPU 0"]["start-up"], rows["GPU 0"]["no trial"]) == ("2", "40 %", "0 %")
    assert (rows["GPU 10"]["start-up"], rows["GPU 10"]["no trial"]) == ("25 %", "75 %")
    assert "GPU 10: 0 % of the time in cycles, 25 % starting up, 75 % without a trial" in chart.says
    boxes = [tuple(map(float, m)) for m in re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', chart.drawing)]
    assert max(x + width for x, width in boxes) <= 841.0
    assert timeline_chart([factories.trial(0)], {}, nowhere).drawing == ""


@pytest.mark.parametrize(
    ("status", "wall_s", "expected"),
    [
        (StudyStatus.DONE, 600.0, "autotune start --name a --budget 20m"),
        (StudyStatus.DONE, None, "autotune start --budget 10m --name a"),
        (StudyStatus.OPEN, 600.0, "autotune start --name a --budget 10m"),
        (StudyStatus.OPEN, 1234.5, "autotune start --name a --budget 1235s"),
    ],
)
def test_the_command_that_goes_on_has_more_budget_after_the_end(
    status: StudyStatus, wall_s: float | None, expected: str
) -> None:
    study = reading(study=factories.study(status=status), limits=Budget(wall_s=wall_s))
    assert go_on_command(study, "autotune start --budget 10m --name a") == expected
    assert go_on_command(study, "") == ""


@pytest.mark.parametrize("query", ["updates=x", "updates=0", "updates=-1", "updates=1e9", "updates=9&price=nan"])
def test_a_question_about_cost_that_has_no_answer_says_why(finished: Reader, query: str) -> None:
    page = finished.page(f"/studies/1/recommendation?{query}")
    assert 'role="alert">' in page
    assert "instead of" not in words_of(page).partition("Your whole run")[2]


def test_the_cost_of_a_whole_run_is_the_one_of_the_command_line(finished: Reader) -> None:
    lines = cost_of(finished.cache.snapshot(1), [("updates", "2000")]).lines
    assert lines
    page = words_of(finished.page("/studies/1/recommendation?updates=2000"))
    assert all(" ".join(line.split()) in page for line in lines)


def test_the_columns_of_the_table_are_those_that_were_chosen(finished: Reader) -> None:
    page = finished.page("/studies/1?column=precision&column=nothing")
    head = page[page.index('class="trials"') : page.index("</thead>", page.index('class="trials"'))]
    assert re.findall(r'class="num name">(.*?)</th>', head) == ["precision"]

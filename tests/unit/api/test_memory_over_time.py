"""The memory of a trial over its time, over HTTP and on its page; nothing else of the machine, and never a failure."""

import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from api.schemas.trials import MemoryTimeline
from autotune.documents import memory_timeline
from autotune.documents.memory_timeline import LARGEST_BYTES, text_of
from autotune.domain import Study
from autotune.recommendation.current import attempt_paths
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories as f
from tests.support.recorded import record
from tests.support.served import Reader
from tests.unit.documents.test_memory_timeline import BAD

MEMORY = "/api/v1/studies/1/trials/1/memory"
PAGE = "/studies/1/trials/1"
DRAWN = 'class="chart chart-memory-time"'


@pytest.fixture
def file(settings: Settings, study: Study) -> Path:
    """Of trial 1, as its tuner wrote it."""
    path = attempt_paths(settings.home, study, f.finished(1)).memory
    path.parent.mkdir(parents=True)
    path.write_text(text_of(f.timeline()))
    return path


def test_it_is_what_the_description_says(reader: Reader, file: Path) -> None:
    answer = reader.ask(MEMORY)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    found = MemoryTimeline.model_validate_json(answer.content)
    assert (found.study, found.trial, found.attempt) == ("first", 1, 1)
    assert found.memory_limit_bytes == 8 * f.GIB
    assert [p.host_bytes for p in found.host] == [p.used for p in f.timeline().host]
    assert [(p.seconds, p.phase, p.cycle) for p in found.host][3:5] == [(3.0, "update", 0), (4.0, "update", 0)]
    assert found.host[0].phase is None
    assert found.device == []
    assert reader.ask(f"{MEMORY}?attempt=1").content == answer.content


def test_gpus_are_a_series_of_their_own(reader: Reader, file: Path) -> None:
    file.write_text(text_of(replace(f.timeline(), device=(f.point(5.0, 7),))))
    found = reader.json(MEMORY)
    assert found["device"] == [{"seconds": 5.0, "device_used_bytes": 7, "phase": "update", "cycle": 0}]


def test_who_polls_is_told_when_there_is_more(reader: Reader, file: Path) -> None:
    tag = {"If-None-Match": reader.ask(MEMORY).headers["etag"]}
    assert reader.ask(MEMORY, headers=tag).status_code == 304
    host = (*f.timeline().host, f.point(9.0))
    file.write_text(text_of(replace(f.timeline(), host=host)))
    answer = reader.ask(MEMORY, headers=tag)
    assert (answer.status_code, len(answer.json()["host"])) == (200, len(host))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/api/v1/studies/1/trials/0/memory", "no memory timeline yet"),
        ("/api/v1/studies/1/trials/4/memory", "has not been started, so it has no memory timeline"),
        ("/api/v1/studies/1/trials/99/memory", "no trial 99"),
        ("/api/v1/studies/9/trials/0/memory", "no study 9"),
        (f"{MEMORY}?attempt=2", "no attempt 2"),
    ],
)
def test_where_there_is_none_yet_is_a_problem_of_404(reader: Reader, file: Path, path: str, said: str) -> None:
    answer = reader.ask(path)
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")
    assert said in answer.json()["detail"]


@pytest.mark.parametrize("data", [*BAD, b"", b" " * (LARGEST_BYTES + 1)], ids=lambda data: repr(data[:40]))
def test_a_damaged_one_is_left_out_and_nothing_fails(reader: Reader, file: Path, data: bytes) -> None:
    file.write_bytes(data)
    assert reader.ask(MEMORY).status_code == 404
    assert DRAWN not in reader.page(PAGE)
    assert reader.crashes == []


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_plain_file_is_not_waited_for(reader: Reader, file: Path, make: object) -> None:
    file.unlink()
    make(file)  # type: ignore[operator]
    assert reader.ask(MEMORY).status_code == 404
    assert DRAWN not in reader.page(PAGE)


def test_a_link_in_its_place_or_on_the_way_is_not_followed(reader: Reader, file: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    file.rename(elsewhere / file.name)
    file.symlink_to(elsewhere / file.name)
    assert reader.ask(MEMORY).status_code == 404
    assert DRAWN not in reader.page(PAGE)
    file.unlink()
    file.parent.rmdir()
    file.parent.symlink_to(elsewhere)
    assert memory_timeline.read(file) == f.timeline(), "it is there, but by way of a link"
    assert reader.ask(MEMORY).status_code == 404
    assert DRAWN not in reader.page(PAGE)


@pytest.mark.parametrize("query", ["attempt=0", "attempt=../1", "path=/etc/passwd", "file=memory.json", "attempt=1e3"])
def test_no_query_names_a_path(reader: Reader, file: Path, query: str) -> None:
    assert reader.ask(f"{MEMORY}?{query}").status_code == 422


@pytest.mark.parametrize("number", ["..", "..%2f..", "%2e%2e", "1%2f..%2f..", "-1"])
def test_no_address_names_a_path(reader: Reader, file: Path, number: str) -> None:
    assert reader.ask(f"/api/v1/studies/1/trials/{number}/memory").status_code in (404, 422)


def test_a_study_whose_name_is_a_path_stays_in_its_folder(reader: Reader, settings: Settings) -> None:
    store = open_store(settings.database)
    made = store.create_study(f.study_spec("../../../../etc"), f.NOW)
    record(store, made, f.finished(0))
    store.close()
    path = attempt_paths(settings.home, made, f.finished(0)).memory
    assert settings.home.runs in path.parents
    assert ".." not in path.parts
    assert reader.ask(f"/api/v1/studies/{made.id}/trials/0/memory").status_code == 404


def test_the_page_draws_it_with_its_words_and_names_the_file(reader: Reader, file: Path) -> None:
    page = reader.page(PAGE)
    assert page.count(DRAWN) == 1
    assert "The process tree held most after 4.0 s, in update of cycle 0: 3.00 GiB, 38 % of the limit." in page
    assert page.count('class="chart ') == page.count('class="data"'), "every chart is a table too"
    assert str(file) in page
    assert f'href="{MEMORY}"' in page
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    file.unlink()
    without = reader.page(PAGE)
    assert 'id="timeline"' in without, "where a page that is left open puts it when it comes"
    assert f'href="{MEMORY}"' not in without


def test_an_open_page_is_told_of_more(reader: Reader, file: Path) -> None:
    headers = {"Accept": "text/html"}
    tag = {**headers, "If-None-Match": reader.ask(PAGE, headers=headers).headers["etag"]}
    assert reader.ask(PAGE, headers=tag).status_code == 304
    file.write_text(text_of(replace(f.timeline(), host=(*f.timeline().host, f.point(9.0, 5 * f.GIB)))))
    answer = reader.ask(PAGE, headers=tag)
    assert answer.status_code == 200
    assert "held most after 9.0 s" in answer.text


def test_hostile_phases_are_only_text(reader: Reader, file: Path) -> None:
    evil = "<script>alert('&\"x')</script>\x1b[2J\u202e"
    file.write_text(text_of(memory_timeline.MemoryTimeline(f.NOW, (f.point(0.0, 1, evil), f.point(1.0, 2, evil, 1)))))
    page = reader.page(PAGE)
    assert DRAWN in page
    assert "<script>" not in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert reader.json(MEMORY)["host"][0]["phase"] == evil
    assert reader.crashes == []

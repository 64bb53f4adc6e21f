"""A trial's log by byte range: exact, bounded, harmless, and nothing else of the machine."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from api.logs import LARGEST_BYTES, UnsatisfiableError, harmless, part_of
from autotune.domain import Study, TrialState
from autotune.recommendation.current import attempt_paths
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories
from tests.support.recorded import record
from tests.support.served import Reader

LOG = "/api/v1/studies/1/trials/1/log"
TEXT = "step 1\nstep 2 \u00fc\n".encode()


@pytest.fixture
def log(settings: Settings, study: Study) -> Path:
    """Of trial 1, as its process wrote it."""
    store = open_store(settings.database)
    path = attempt_paths(settings.home, study, store.trial(study.id, 1)).log
    store.close()
    path.parent.mkdir(parents=True)
    path.write_bytes(TEXT)
    return path


def test_the_whole_log(reader: Reader, log: Path) -> None:
    answer = reader.ask(LOG)
    assert (answer.status_code, answer.content) == (200, TEXT)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["accept-ranges"] == "bytes"
    assert reader.ask(LOG, headers={"If-None-Match": answer.headers["etag"]}).status_code == 304


@examples(deadline=None)
@given(size=st.integers(0, 60), first=st.none() | st.integers(0, 70), last=st.none() | st.integers(0, 70))
def test_a_range_is_what_python_slices(size: int, first: int | None, last: int | None) -> None:
    data = bytes(range(size))
    asked = f"bytes={'' if first is None else first}-{'' if last is None else last}"
    if first is None:
        wanted = data if last is None else data[-last:] if last else b""
    else:
        wanted = data[first:] if last is None else data[first : last + 1]
        wanted = data if last is not None and last < first else wanted
    ignored = last is None if first is None else last is not None and last < first
    if not wanted and not ignored:
        with pytest.raises(UnsatisfiableError) as caught:
            part_of(size, asked)
        assert caught.value.size == size
        return
    part = part_of(size, asked)
    assert data[part.first : part.last + 1] == wanted
    assert part.size == size


@pytest.mark.parametrize("asked", [None, "", "lines=0-1", "bytes=", "bytes=0-1,3-4", "bytes=a-b", "bytes=5-2", "\xff"])
def test_what_is_no_range_asks_for_all(asked: str | None) -> None:
    assert part_of(10, asked) == part_of(10, None)
    assert (part_of(10, asked).first, part_of(10, asked).last, part_of(10, asked).whole) == (0, 9, True)


def test_an_answer_is_bounded(settings: Settings) -> None:
    part = part_of(10 * LARGEST_BYTES, "bytes=5-")
    assert part.last + 1 - part.first == LARGEST_BYTES
    with pytest.raises(UnsatisfiableError, match="ask for at most"):
        part_of(LARGEST_BYTES + 1, None)


def test_a_reader_follows_a_log_that_grows(reader: Reader, log: Path) -> None:
    part = reader.ask(LOG, headers={"Range": "bytes=7-"})
    assert (part.status_code, part.content) == (206, TEXT[7:])
    assert part.headers["content-range"] == f"bytes 7-{len(TEXT) - 1}/{len(TEXT)}"
    nothing = reader.ask(LOG, headers={"Range": f"bytes={len(TEXT)}-"})
    assert nothing.status_code == 416
    assert nothing.headers["content-range"] == f"bytes */{len(TEXT)}"
    with log.open("ab") as stream:
        stream.write(b"more\n")
    assert reader.ask(LOG, headers={"Range": f"bytes={len(TEXT)}-"}).content == b"more\n"


HOSTILE = "\x1b]0;title\x07\x1b[2J\u009b31m\u202eevil\r\x00\x7f <script>alert(1)</script>\n"


def test_nothing_in_it_steers_a_terminal_and_no_offset_moves(reader: Reader, log: Path) -> None:
    log.write_bytes(HOSTILE.encode())
    whole = reader.ask(LOG).content
    assert len(whole) == len(HOSTILE.encode())
    assert not set(whole.decode()) & set("\x1b\x07\x9b\u202e\r\x00\x7f")
    assert b"<script>alert(1)</script>\n" in whole, "text/plain with nosniff; it is the log's own text"
    each = [("GET", LOG, {"headers": {"Range": f"bytes={first}-{first}"}}) for first in range(len(whole))]
    assert b"".join(answer.content for answer in reader.ask_all(each)) == whole


@given(data=st.binary(max_size=60) | st.text(max_size=40).map(str.encode))
def test_harmless_is_as_long_and_settled(data: bytes) -> None:
    made = harmless(data)
    assert len(made) == len(data)
    assert harmless(made) == made
    assert b"\x1b" not in made


@pytest.mark.parametrize("query", ["attempt=2", "which=server"])
def test_what_there_is_none_of(reader: Reader, log: Path, query: str) -> None:
    assert reader.ask(f"{LOG}?{query}").status_code == 404


@pytest.mark.parametrize(
    "query", ["attempt=0", "attempt=../1", "which=../../etc/passwd", "path=/etc/passwd", "file=log.txt", "attempt=1e3"]
)
def test_no_query_names_a_path(reader: Reader, log: Path, query: str) -> None:
    assert reader.ask(f"{LOG}?{query}").status_code == 422


@pytest.mark.parametrize("number", ["..", "..%2f..", "%2e%2e", "1%2f..%2f..", "1/../../../etc/passwd%00", "-1"])
def test_no_address_names_a_path(reader: Reader, log: Path, number: str) -> None:
    answer = reader.ask(f"/api/v1/studies/1/trials/{number}/log")
    assert answer.status_code in (404, 422)
    assert "root:" not in answer.text


def test_a_link_in_its_place_is_not_followed(reader: Reader, log: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("of the house")
    log.unlink()
    log.symlink_to(secret)
    assert reader.ask(LOG).status_code == 404
    log.unlink()
    moved = log.parent.with_name("moved")
    log.parent.rename(moved)
    (moved / "log.txt").write_text("elsewhere")
    log.parent.symlink_to(moved)
    assert reader.ask(LOG).status_code == 404, "nor one on the way"


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_plain_file_is_not_waited_for(reader: Reader, log: Path, make: object) -> None:
    log.unlink()
    make(log)  # type: ignore[operator]
    assert reader.ask(LOG).status_code == 404


def test_the_stored_log_path_is_not_believed(reader: Reader, settings: Settings, study: Study, log: Path) -> None:
    """Whoever writes into the database must not be able to have any file read."""
    store = open_store(settings.database)
    record(store, study, factories.failed(5, factories.oom(log_path="/etc/passwd"), state=TrialState.FAIL))
    store.close()
    assert reader.ask("/api/v1/studies/1/trials/5/log").status_code == 404


def test_a_study_whose_name_is_a_path_stays_in_its_folder(reader: Reader, settings: Settings) -> None:
    store = open_store(settings.database)
    made = store.create_study(factories.study_spec("../../../../etc"), factories.NOW)
    record(store, made, factories.finished(0))
    store.close()
    path = attempt_paths(settings.home, made, factories.finished(0)).log
    assert settings.home.runs in path.parents
    assert ".." not in path.parts
    assert reader.ask(f"/api/v1/studies/{made.id}/trials/0/log").status_code == 404


def test_a_trial_that_was_not_started_has_none(reader: Reader, log: Path) -> None:
    assert "not been started" in reader.ask("/api/v1/studies/1/trials/4/log").json()["detail"]

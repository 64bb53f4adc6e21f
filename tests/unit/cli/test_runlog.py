from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli.runlog import LONGEST_LINE, _Lines, follow, read_lines
from autotune.recommendation.current import log_tail


def never() -> Any:
    return False


def test_a_log_that_does_not_exist_yet_is_waited_for(tmp_path: Path) -> None:
    path, waits = tmp_path / "log.txt", []

    def wait() -> None:
        waits.append(1)
        if len(waits) == 3:
            path.write_text("here\n")

    assert list(follow(path, lambda: len(waits) > 4, wait)) == ["here"]


def test_what_was_written_just_before_the_end_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("one\n")

    def ended() -> Any:
        with path.open("a") as stream:
            stream.write("two\n" if path.stat().st_size < 8 else "")
        return True

    assert list(follow(path, ended, lambda: pytest.fail("waited"))) == ["one", "two"]


def test_a_log_that_is_shortened_is_followed_from_its_end(tmp_path: Path) -> None:
    path, texts, over = tmp_path / "log.txt", iter(["b\n", "b\nc\n"]), []
    path.write_text("a long first line\n")

    def wait() -> None:
        text = next(texts, None)
        if text is None:
            over.append(1)
        else:
            path.write_text(text)

    assert list(follow(path, lambda: bool(over), wait)) == ["a long first line", "[the log was shortened here]", "c"]


@given(st.lists(st.binary(max_size=12)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(pieces: list[bytes]) -> None:
    apart, whole = _Lines(), _Lines()
    one = [line for piece in pieces for line in apart.feed(piece)] + list(apart.feed(b"", last=True))
    other = list(whole.feed(b"".join(pieces))) + list(whole.feed(b"", last=True))
    assert one == other


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    lines = _Lines()
    shown = [line for _ in range(5) for line in lines.feed(b"x" * LONGEST_LINE)]
    assert sum(map(len, shown)) >= 4 * LONGEST_LINE


def test_tail_takes_the_last_lines_that_say_something(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("\n".join(f"line {n}" for n in range(100_000)) + "\n\n  \n")
    assert log_tail(path, 2) == ("line 99998", "line 99999")
    assert log_tail(path, 0) == ()
    assert log_tail(tmp_path / "none", 5) == ()


def test_reading_a_whole_log_keeps_blank_lines(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes("ä\n\nb".encode())
    assert list(read_lines(path)) == ["ä", "", "b"]

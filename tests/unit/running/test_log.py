from __future__ import annotations

import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from autotune.running.log import CappedLog, LogPump, read_tail


def split(kept: bytes, marker: bytes = b"\n[... ") -> tuple[bytes, bytes, int]:
    """(head, tail, bytes said to be missing)."""
    head, _, rest = kept.partition(marker)
    number, _, tail = rest.partition(b" bytes left out ...]\n")
    return head, tail, int(number or 0)


@given(pieces=st.lists(st.integers(0, 90), max_size=40), head=st.integers(1, 50), tail=st.integers(1, 50))
def test_the_beginning_and_the_end_are_kept_and_the_gap_is_stated(
    tmp_path_factory: object, pieces: list[int], head: int, tail: int
) -> None:
    path: Path = tmp_path_factory.mktemp("log") / "log.txt"  # type: ignore[attr-defined]
    written = b"".join(bytes([65 + i % 26]) * n for i, n in enumerate(pieces))
    log, at = CappedLog(path, head, tail), 0
    for size in pieces:
        log.write(written[at : at + size])
        at += size
        assert path.stat().st_size <= head + 2 * tail + 60
    log.close()
    kept = path.read_bytes()
    if len(written) <= head + tail:
        assert kept == written
        return
    first, last, missing = split(kept)
    assert written.startswith(first)
    assert written.endswith(last)
    assert len(first) == head
    assert len(last) == tail
    assert missing == len(written) - head - tail


def test_a_full_disk_loses_the_log_and_nothing_else() -> None:
    log = CappedLog(Path("/dev/full"))
    log.write(b"words")
    log.close()
    assert log.failed


def test_the_pump_ends_although_someone_still_holds_the_pipe(tmp_path: Path) -> None:
    output, held = os.pipe()
    pump = LogPump(output, CappedLog(tmp_path / "log.txt"))
    pump.start()
    os.write(held, b"last words")
    pump.finish()
    os.close(held)
    assert not pump.is_alive()
    assert (tmp_path / "log.txt").read_bytes() == b"last words"


def test_the_tail_of_a_log_is_text_whatever_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"head \xff\xfe tail")
    assert read_tail(path, 5) == " tail"
    assert "\ufffd" in read_tail(path)
    assert read_tail(tmp_path / "none") == ""

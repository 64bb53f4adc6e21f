from __future__ import annotations

import itertools
import os
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from autotune.running import log
from autotune.running.log import MAX_LINE, MetricsTail, PhaseTail
from tests.support.not_none import not_none
from trainer.child.contract import CurrentPhase, NoteRecord, PhaseMark, dumps, read_phase

GOOD = [dumps(NoteRecord(f"n{i}", {"value": i})).encode() for i in range(3)]
JUNK = st.binary(max_size=60).map(lambda b: b.replace(b"\n", b" ")) | st.sampled_from(
    [b'{"kind":"cycle"}', b"null", b"[[[[", b'{"kind":["note"]}', b'{"kind":"startup","part":"load","seconds":1e999}']
)


def names(records: object) -> list[str]:
    return [r.name for r in records]  # type: ignore[attr-defined]


@given(
    before=st.lists(JUNK, max_size=4), after=st.lists(JUNK, max_size=4), cuts=st.lists(st.integers(0, 400), max_size=6)
)
def test_records_survive_any_neighbours_and_any_way_of_being_written(
    tmp_path_factory: object, before: list[bytes], after: list[bytes], cuts: list[int]
) -> None:
    path: Path = tmp_path_factory.mktemp("tail") / "metrics.jsonl"  # type: ignore[attr-defined]
    data = b"\n".join([*before, *GOOD, *after]) + b"\n"
    edges = sorted({0, len(data), *(c for c in cuts if c < len(data))})
    reader, seen = MetricsTail(path), []
    with path.open("ab", buffering=0) as stream:
        for start, end in itertools.pairwise(edges):
            stream.write(data[start:end])
            seen += reader.poll()
    seen += reader.finish()
    assert names(r for r in seen if isinstance(r, NoteRecord)) == ["n0", "n1", "n2"]
    assert reader.bad_lines + len(seen) == sum(bool(line.strip()) for line in data.split(b"\n"))


def test_a_line_is_read_once_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    reader = MetricsTail(path)
    assert reader.poll() == []
    path.write_bytes(GOOD[0][:10])
    assert reader.poll() == []
    path.write_bytes(GOOD[0] + b"\n")
    assert names(reader.poll()) == ["n0"]
    assert reader.poll() == []
    assert reader.bad_lines == 0


def test_an_endless_line_is_dropped_once_and_not_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"x" * (3 * MAX_LINE) + b"\n" + GOOD[1] + b"\n")
    reader = MetricsTail(path)
    assert names(reader.finish()) == ["n1"]
    assert reader.bad_lines == 1


def test_one_poll_takes_a_bounded_amount_and_the_last_takes_all(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    line = dumps(NoteRecord("long", {"text": "x" * 10_000})).encode() + b"\n"
    path.write_bytes(line * (3 * log.MAX_READ // len(line)))
    reader = MetricsTail(path)
    first = reader.poll()
    assert reader.bytes_read <= log.MAX_READ + log.CHUNK
    assert len(first) + len(reader.finish()) == 3 * log.MAX_READ // len(line)


def test_a_phase_is_told_once_and_only_if_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "phase"
    reader = PhaseTail(path)
    assert reader.poll() is None
    mark = PhaseMark(path)
    mark.set("update", 3, "recorded")
    phase = not_none(reader.poll())
    assert (phase.phase, phase.cycle, phase.cycle_kind) == ("update", 3, "recorded")
    assert reader.poll() is None
    before = reader.modified
    while reader.modified == before:  # the file system's clock may be coarse
        mark.set("update", 3, "recorded")
        assert reader.poll() is None, "the same phase again is a heartbeat, not a change"
    mark.close()


def test_a_mark_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    """Else a disk that failed as the reward began would be told as the reward's fault, and the trial not run again."""
    path = tmp_path / "phase"
    mark = PhaseMark(path)
    mark.set("generate", 1, "recorded")
    only_read = os.open(path, os.O_RDONLY)
    os.dup2(only_read, mark._fd)
    mark.set("reward", 1, "recorded")
    assert read_phase(path) == CurrentPhase("generate", 1, "recorded")
    mark.close()
    os.close(only_read)

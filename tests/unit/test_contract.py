"""What crosses the process wall: nothing malformed gets through, everything well-formed comes back as it was."""

from __future__ import annotations

import json
import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import factories as f
from trainer.child.contract import (
    ContractError,
    CurrentPhase,
    FailureReason,
    PhaseMark,
    Protocol,
    Result,
    dumps,
    iter_complete_lines,
    parse_record,
    read_phase,
    read_result,
    write_atomic,
)

RECORDS = [f.cycle(3), f.startup(), f.worst_case(), f.note("lengths", lengths=[1, 2])]


@pytest.mark.parametrize("record", RECORDS, ids=lambda r: r.kind)
def test_a_record_comes_back_as_it_was(record: object) -> None:
    assert parse_record(dumps(record)) == record
    assert parse_record(dumps(record).encode()) == record


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_contract_error(line: bytes) -> None:
    try:
        parse_record(line)
    except ContractError:
        return


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(), lambda c: st.lists(c) | st.dictionaries(st.text(), c)
    )
)
def test_any_json_is_a_record_or_a_contract_error(value: object) -> None:
    for kind in ("cycle", "startup", "note", None):
        body = {**value, "kind": kind} if isinstance(value, dict) else value
        try:
            parse_record(json.dumps(body))
        except ContractError:
            continue


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize("place", ["seconds", "started", "drift", "cpu_seconds"])
def test_a_figure_that_is_not_finite_is_refused(place: str, value: str) -> None:
    data = json.loads(dumps(f.cycle()))
    data[place] = value
    with pytest.raises(ContractError, match=place):
        parse_record(json.dumps(data))


def test_phases_must_be_finite_and_whole_numbers_must_fit() -> None:
    data = json.loads(dumps(f.cycle()))
    with pytest.raises(ContractError, match="update"):
        parse_record(json.dumps({**data, "phases": {"update": "nan"}}))
    with pytest.raises(ContractError, match="64 bits"):
        parse_record(json.dumps({**data, "rows": 2**70}))
    with pytest.raises(ContractError, match="positive"):
        parse_record(json.dumps({**data, "seconds": 0.0}))


def test_a_loss_may_be_nan_because_training_can_make_it_so() -> None:
    record = parse_record(dumps(replace(f.cycle(), loss=math.nan)))
    assert math.isnan(record.loss)  # type: ignore[union-attr, arg-type]


def test_an_unfinished_line_waits() -> None:
    assert list(iter_complete_lines(b'{"a":1}\n\n{"b"')) == [b'{"a":1}']
    assert list(iter_complete_lines(b"")) == []


def test_a_result_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomic(path, dumps(Result(False, FailureReason.OOM)))
    assert read_result(path).reason is FailureReason.OOM
    write_atomic(path, dumps({"ok": True, "version": 99}))
    with pytest.raises(ContractError, match="version 99"):
        read_result(path)


def test_a_file_is_replaced_whole_whether_the_disk_is_waited_for_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(_: int) -> None:
        raise OSError("the disk does not answer")

    path = tmp_path / "file"
    write_atomic(path, "first")
    monkeypatch.setattr(os, "fsync", never)
    with pytest.raises(OSError, match="does not answer"):
        write_atomic(path, "second")
    assert path.read_text() == "first"
    write_atomic(path, "third", durable=False)
    assert path.read_text() == "third"
    assert list(tmp_path.iterdir()) == [path]


def test_the_phase_mark_is_rewritten_in_place(tmp_path: Path) -> None:
    mark = PhaseMark(tmp_path / "phase")
    assert read_phase(tmp_path / "phase") is None
    mark.set("generate", 3, "recorded")
    mark.set("update", 3, "maximum")
    mark.close()
    assert read_phase(tmp_path / "phase") == CurrentPhase("update", 3, "maximum")
    assert (tmp_path / "phase").stat().st_size == PhaseMark.WIDTH
    assert read_phase(tmp_path / "absent") is None


def test_unknown_keys_are_ignored_and_missing_ones_named() -> None:
    data = json.loads(dumps(f.cycle()))
    assert parse_record(json.dumps({**data, "of_tomorrow": 1})) == f.cycle()
    del data["rows"]
    with pytest.raises(ContractError, match=r"cycle\.rows: missing"):
        parse_record(json.dumps(data))


def test_a_protocol_keeps_its_lengths() -> None:
    assert json.loads(dumps(Protocol(lengths=(1, 2))))["lengths"] == [1, 2]

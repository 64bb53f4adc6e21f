"""Tables: what a study's trials become, files there and back, and one sentence for whatever is no table."""

from __future__ import annotations

import gzip
import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import SWEEP, FailureReason, PriorKnowledge, Trial, TrialKind
from autotune.errors import UsageError
from autotune.tables import repeats
from autotune.tables.files import lines, parsed, read, write
from autotune.tables.table import RecordedTable, table_of
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import restart_key
from tests.support import factories as f
from tests.support.synthetic_table import KNOBS, table

FEW = {**KNOBS, "logprob_rows": (1,), "logprob_token_chunk": (256,), "optimizer": ("adamw_torch",)}


def swept(*more: Trial) -> RecordedTable:
    """A stored sweep of a baseline, one row that ran out and one that was repeated."""
    ran = f.finished(2, source=SWEEP)
    own = {"kind": TrialKind.VERIFY, "configuration": ran.configuration, "source": repeats.SOURCE}
    again = [f.finished(n, **own) for n in (3, 4)]
    trials = [f.finished(0), f.failed(1, source=SWEEP), ran, *again, *more]
    return table_of(f.study(), trials, {2: f.worst_case()}, f.fingerprint())


@settings(max_examples=5, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    interaction=st.floats(0.0, 1.0),
    oom_from=st.floats(0.2, 1.0),
    times=st.integers(0, 3),
    suffix=st.sampled_from([".jsonl", ".jsonl.gz"]),
)
def test_a_table_survives_its_file(
    tmp_path_factory: pytest.TempPathFactory, seed: int, interaction: float, oom_from: float, times: int, suffix: str
) -> None:
    first = table(seed=seed, knobs=FEW, interaction=interaction, oom_from=oom_from, repeats=times, top=5)
    path = tmp_path_factory.mktemp("table") / f"one{suffix}"
    write(first, path)
    there = read(path)
    write(there, path)
    assert lines(there) == lines(first)
    assert read(path) == there
    assert there.header == first.header
    assert there.name == "one"
    for before, after in zip(first.rows, there.rows, strict=True):
        assert after.configuration == before.configuration
        assert after.trial.cycles == before.trial.cycles
        assert after.trial.tokens_per_hour == before.trial.tokens_per_hour
        assert after.trial.startup == before.trial.startup
        assert len(after.repeats) == len(before.repeats)
        assert after.trial.outcome is not None
        assert before.trial.outcome is not None
        assert after.trial.outcome.reason == before.trial.outcome.reason


def test_a_row_has_all_that_was_measured_of_its_configuration() -> None:
    made = swept()
    baseline, failed, repeated = made.rows
    assert baseline.configuration == made.header.baseline
    assert failed.trial.outcome == f.oom()
    assert [t.number for t in repeated.repeats] == [3, 4]
    assert repeated.worst_case == f.worst_case()
    assert made.header.lengths == f.LENGTHS
    assert made.header.memory_limit == f.study_spec().memory_limit
    data = json.loads(lines(made)[3])
    assert data["startup"] == dict(repeated.trial.startup)
    assert data["restart_key"]["process"] == dict(restart_key(repeated.configuration, Restart.ENGINE))
    assert {"update", "generate", "cycle"} <= set(data["cycles"][0]["peaks"])


@pytest.mark.parametrize(
    ("trial", "why"),
    [
        (f.stopped(5), "stopped early"),
        (f.failed(5, f.failure(FailureReason.INFRA)), "broken by the machine or cancelled"),
        (f.failed(5, f.failure(FailureReason.CANCELLED)), "broken by the machine or cancelled"),
        (f.finished(5, configuration=f.configuration(precision="fp8", fp8_emulate=True)), "FP8 in emulation"),
        (f.finished(5, configuration=f.configuration(temperature=0.5)), "at lengths of its own"),
    ],
)
def test_what_is_no_whole_measurement_is_left_out_and_counted(trial: Trial, why: str) -> None:
    made = swept(trial)
    assert len(made.rows) == 3
    assert made.header.left_out == {why: 1}


def test_confirmations_of_a_search_are_repeats() -> None:
    own = f.numbered(2)
    confirmed = f.finished(5, kind=TrialKind.CONFIRM, configuration=own, pair=0)
    assert [t.number for t in swept(confirmed).rows[2].repeats] == [3, 4, 5]


def test_what_runs_or_waits_is_no_row_yet() -> None:
    assert len(swept(f.trial(5)).rows) == 3


def test_a_row_is_there_once_and_the_baseline_is_spelt_as_the_rows_are() -> None:
    made = swept(f.finished(5, configuration=f.configuration()), f.finished(6, configuration=f.numbered(2)))
    assert len(made.rows) == 3


def test_a_table_carries_what_its_device_was_measured_to_do(tmp_path: Path) -> None:
    measured = {"device": "cpu", "flops": {"fp32": 1.5e11}, "bandwidth": 1.2e10}
    study = f.study(beforehand=PriorKnowledge(measured))
    path = tmp_path / "t.jsonl"
    write(table_of(study, [f.finished(0)], {}, f.fingerprint()), path)
    assert read(path).header.probe == measured


def test_the_users_folders_do_not_travel() -> None:
    text = "\n".join(lines(swept()))
    assert '"model":"small"' in text
    for private in ("/models", "/studies", "/training", "log.txt"):
        assert private not in text


def broken(place: int, **changes: Any) -> list[str]:
    text = lines(swept())
    text[place] = json.dumps({**json.loads(text[place]), **changes})
    return text


def without(place: int, name: str) -> list[str]:
    text = lines(swept())
    data = json.loads(text[place])
    del data[name]
    text[place] = json.dumps(data)
    return text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ([], "x is no table: it is empty"),
        (["{"], "x, line 1: expected a line of JSON"),
        (["[]"], "x, line 1: expected an object"),
        (['{"row":"header"}'], 'x, line 1: expected a header with "format": "autotune-table"'),
        (broken(0, version=2), "x, line 1: version 2 of the format, expected 1"),
        (broken(0, rows_per_update="8"), "x, line 1: rows_per_update: expected a whole number, got '8'"),
        (broken(0, space=[]), "x, line 1: space: expected an object, got []"),
        (broken(0, space={"knobs": {}}),
         "x, line 1: search space: knobs: no knob is listed."),
        (broken(0, model=None), "x, line 1: model: expected text, got None"),
        (broken(0, synthetic=0), "x, line 1: synthetic: expected true or false, got 0"),
        (broken(0, memory_limit=-4), "x, line 1: memory_limit: expected a number of at least 1, got -4"),
        (broken(0, resources={"model": {}, "compute_capability": [9]}),
         "x, line 1: resources: compute_capability: expected 2 values, got 1"),
        (broken(0, probe=[]), "x, line 1: probe: expected an object, got []"),
        (broken(0, probe={"flops": 5}), "x, line 1: probe: expected FLOP/s by type, got 5"),
        (broken(0, probe={"flops": {"fp32": "x"}}), "x, line 1: probe: expected FLOP/s by type, got {'fp32': 'x'}"),
        (without(0, "baseline"), "x, line 1: baseline is missing"),
        (without(2, "seconds"), "x, line 3: seconds is missing"),
        (broken(2, seconds=-1), "x, line 3: seconds: expected a number of at least 0, got -1"),
        (broken(2, state="PRUNED"), "x, line 3: state: expected COMPLETE or FAIL, got PRUNED"),
        (broken(2, state="COMPLETE"), "x, line 3: state COMPLETE and the outcome's reason contradict each other"),
        (broken(3, cycles=[]), "x, line 4: a COMPLETE row without a recorded cycle"),
        (broken(3, configuration={"a": None}),
         "x, line 4: configuration: expected an object of knobs and their values"),
        (broken(3, kind="search!"), "x, line 4: kind: 'search!' is no TrialKind"),
        ([*lines(swept()), lines(swept())[2]], "x, line 5: the configuration of an earlier line again"),
        (lines(swept())[:1] + lines(swept())[2:], "x: no row has the baseline's configuration"),
        ([lines(swept())[0], lines(swept())[1].replace('"seconds":10.0', '"seconds":NaN', 1)],
         "x, line 2: NaN is no number of a table"),
        ([lines(swept())[0], lines(swept())[1].replace('"seconds":10.0', '"seconds":0.0', 1)],
         "x, line 2: cycle 0: expected positive finite seconds"),
    ],
)  # fmt: skip
def test_what_is_no_table_is_one_sentence_with_its_line(text: list[str], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        parsed(text, "x")
    assert str(refused.value) == said


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_change_to_a_line_is_a_crash(data: st.DataObject) -> None:
    text = lines(swept())
    place = data.draw(st.integers(0, len(text) - 1))
    cut = data.draw(st.integers(0, len(text[place])))
    put = data.draw(st.sampled_from(["", "0", "null", '"', "}", "[]", "é", "-1", "1e999"]))
    text[place] = text[place][:cut] + put + text[place][cut + data.draw(st.integers(0, 3)) :]
    with suppress(UsageError):
        parsed(text, "x")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x1f\x8bnot gzip", "cannot be read"),
        (gzip.compress(b"x" * 1000, mtime=0)[:14] + b"\xff" * 30, "cannot be read"),
        (b"\xff\xfe\x00", "is no table: it is not text in UTF-8"),
        (b"", "it is empty"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"t\.jsonl\.gz") as refused:
        read(path)
    assert said in str(refused.value)


def test_a_missing_file_and_a_cut_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.jsonl")
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress("\n".join(lines(swept())).encode())[:-20])
    with pytest.raises(UsageError, match=r"cut\.jsonl\.gz cannot be read"):
        read(path)


def test_writing_replaces_the_whole_file_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text("precious")
    bad = replace(swept(), rows=(replace(swept().rows[0], trial=f.finished(0).with_(seconds=float("nan"))),))
    with pytest.raises(ValueError, match="JSON"):
        write(bad, path)
    assert path.read_text() == "precious"
    with pytest.raises(UsageError, match=r"ends in \.jsonl or \.jsonl\.gz"):
        write(swept(), tmp_path / "t.csv")
    with pytest.raises(UsageError, match="cannot be written"):
        write(swept(), path / "below.jsonl")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.jsonl"]
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        write(swept(), tmp_path / "folder.jsonl")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.jsonl", "t.jsonl"], "no half a table is left behind"


def test_empty_lines_are_passed_over_and_counted(tmp_path: Path) -> None:
    text = lines(swept())
    path = tmp_path / "t.jsonl"
    path.write_text("\n".join(text) + "\n")
    whole = read(path).rows
    path.write_text("\n\n".join(text) + "\n\n")
    assert read(path).rows == whole
    path.write_text("\n\n".join([*text[:2], "{"]))
    with pytest.raises(UsageError, match="line 5: expected a line of JSON"):
        read(path)

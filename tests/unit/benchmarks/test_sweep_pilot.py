"""What a pilot says of the whole table, on a made-up machine of which every row is known."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import Configuration, Trial
from autotune.errors import UsageError
from autotune.proposals.sweep import spread
from autotune.tables.files import write
from autotune.tables.table import Header, RecordedTable, TableRow
from benchmarks.search.discrimination import Criterion
from benchmarks.sweeps import __main__ as command
from benchmarks.sweeps import pilot_report
from benchmarks.sweeps.cases import AGAIN, CASES, table_file
from benchmarks.sweeps.pilot import LEAST_FULL, MIB, MOST_FULL, Judgement, judged, limit_of, weak
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.unit.benchmarks.test_sweeps import MADE, baseline, resources

CASE = CASES["cpu-14m-compiled"]
SPACE = SearchSpace.load(CASE.space)
BASELINE = baseline(CASE, SPACE)
EVERY = SPACE.candidates(BASELINE, resources(CASE), same_learning=False)
LENGTHS = (1, 2, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 19, 32)
SMALL = 2097152
PROBE = {"device": "cpu", "name": "cpu made up", "flops": {"fp32": 2e11, "bf16": 4e11}, "bandwidth": 9e9}


def seconds(c: Configuration) -> Mapping[str, float]:
    """By phase; neither the allocator nor compiling does anything here."""
    vllm, micro = c["rollout_engine"] == "vllm", int(c["micro_batch_size"])
    generations = int(c["gradient_accumulation_steps"]) / int(c["steps_per_generation"])
    crowded = 2.0 if c.get("kv_cache_memory_bytes") == SMALL else 1.0
    wide = (1.4 if c["master_weights"] == "fp32" else 1.0) * (0.85 if c["attn_implementation"] == "eager" else 1.0)
    update = 0.6 + 0.96 / micro + 0.2 * bool(c["gradient_checkpointing"]) + 0.4 * (c["logprob_token_chunk"] == 16)
    generate = (0.3 if vllm else 0.9) * generations**0.7 * crowded
    return {"generate": generate, "update": update * wide, "logprob": 0.2 * vllm, "sync": 0.1 * vllm, "idle": 0.01}


def peak(c: Configuration) -> float:
    """Bytes."""
    engine = 2.2e8 + int(c["kv_cache_memory_bytes"]) if c["rollout_engine"] == "vllm" else 0.0
    states = 2.4e8 if c["master_weights"] == "fp32" else 1.2e8
    tiles = 6e7 * int(c["micro_batch_size"]) if c["logprob_token_chunk"] == 4096 else 4e7
    return 5.8e8 + engine + states + tiles


def pilot(
    count: int = 15,
    *,
    more_memory: float = 1.0,
    row_s: float = 12.0,
    of: Callable[[Configuration], Mapping[str, float]] = seconds,
    failed: Sequence[int] = (),
) -> RecordedTable:
    """So many rows, all over the space; those at the places ``failed`` were broken."""
    others = [c for c in EVERY if c != BASELINE]
    chosen = [BASELINE, *(others[i] for i in spread(others, [BASELINE], count - 1, 0))]
    rows = []
    for place, c in enumerate(chosen):
        if place in failed:
            rows.append(TableRow(f.failed(place, configuration=c), same_learning=True))
        else:
            rows.append(TableRow(ran(place, c, of(c), int(peak(c) * more_memory), row_s), same_learning=True))
    header = Header(
        study="pilot",
        framework="trl",
        model=CASE.architecture.name,
        resources=resources(CASE),
        space=SPACE.as_json(),
        baseline=BASELINE,
        rows_per_update=CASE.rows,
        max_prompt_length=CASE.longest_prompt,
        max_completion_length=CASE.longest,
        protocol=f.protocol(lengths=LENGTHS),
        probe=PROBE,
    )
    return RecordedTable(header, tuple(rows))


def ran(number: int, c: Configuration, phases: Mapping[str, float], host_peak: int, row_s: float) -> Trial:
    chance = Random(f"pilot/{c.key}")
    cycles = []
    for index in range(3):
        factor = 1.0 + 0.02 * (chance.random() - 0.5)
        own = {name: s * factor for name, s in phases.items()}
        cycles.append(f.cycle(index, seconds=sum(own.values()), lengths=LENGTHS, phases=own, peaks={}))
    return f.finished(number, configuration=c, cycles=3).with_(
        cycles=tuple(cycles), watchdog_peak=host_peak, seconds=row_s
    )


@pytest.fixture(scope="module")
def found() -> Judgement:
    return judged(pilot())


def beyond(limit: int, more_memory: float = 1.0) -> float:
    """Share of all rows that would really run out."""
    return sum(peak(c) * more_memory > limit for c in EVERY) / len(EVERY)


@pytest.mark.parametrize("more_memory", [1.0, 1.25])
def test_about_a_quarter_of_the_rows_that_were_not_run_exceeds_the_limit(more_memory: float) -> None:
    found = judged(pilot(more_memory=more_memory))
    assert found.planned == len(EVERY)
    assert 0.15 <= beyond(found.limit, more_memory) <= 0.38
    assert LEAST_FULL - 0.01 <= found.beyond <= MOST_FULL + 0.01
    assert found.limit % MIB == 0


def test_where_all_rows_were_run_the_measured_peaks_decide() -> None:
    found = judged(pilot(len(EVERY)))
    assert found.beyond == found.beyond_measured == pytest.approx(beyond(found.limit))
    assert LEAST_FULL <= found.beyond <= MOST_FULL


def test_a_knob_that_does_nothing_is_weak_and_one_that_does_much_is_not() -> None:
    found = judged(pilot(100))
    assert "enforce_eager" in weak(found.without), "though the prior has an opinion of it"
    assert found.without["host_allocator"] < found.without["gradient_checkpointing"]
    assert "master_weights" not in weak(found.without)
    assert set(found.without) <= set(SPACE.values)


def test_how_far_the_baseline_is_from_the_best_is_told(found: Judgement) -> None:
    """The recorded table of two ranks was in vain for that."""
    held = [sum(seconds(c).values()) for c in EVERY if peak(c) <= found.limit]
    assert found.baseline_lacks == pytest.approx(1.0 - min(held) / sum(seconds(BASELINE).values()), abs=0.1)
    near, far = ("\n".join(pilot_report.lines("it", replace(found, baseline_lacks=lacks))) for lacks in (0.04, 0.4))
    assert "the baseline is expected to lack 4.0% of the fastest row: " in near
    assert "the baseline is expected to lack 40.0% of the fastest row\n" in far


def test_what_the_baseline_tells_is_measured(found: Judgement) -> None:
    phases = seconds(BASELINE)
    assert found.baseline_phases["update"] == pytest.approx(phases["update"] / sum(phases.values()), abs=0.01)
    assert found.baseline_peak == int(peak(BASELINE))
    assert [c.name for c in found.workload] == ["largest phase", "model", "tail of the recorded lengths"]
    assert all(c.passed for c in found.workload)
    assert 0.0 < found.scatter < 0.02
    hours = found.hours
    assert hours[0] * 3600 == pytest.approx(12.0 * len(EVERY))
    assert hours[1] * 3600 == pytest.approx(12.0 * AGAIN * 3)


def all_update(c: Configuration) -> Mapping[str, float]:
    return {**seconds(c), "update": 9.0}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (pilot(of=all_update), "FAIL  largest phase"),
        (pilot(row_s=25.0), "FAIL  seconds of a row"),
        (pilot(of=lambda _: {"generate": 1.0, "update": 1.0}), "FAIL  rows within 5 % of the best"),
    ],
)
def test_what_speaks_against_the_table_is_told(table: RecordedTable, said: str) -> None:
    found = judged(table)
    text = "\n".join(pilot_report.lines("it", found))
    assert not found.promises
    assert said in text
    assert "WOULD PROBABLY NOT COUNT" in text


def test_a_limit_under_the_baseline_is_told(found: Judgement) -> None:
    low = replace(found, limit=int(found.baseline_peak))
    assert not low.fits
    assert not low.promises
    assert "THE BASELINE WOULD NOT FIT" in "\n".join(pilot_report.lines("it", low))


def promising(found: Judgement) -> Judgement:
    good = tuple(replace(c, passed=True) for c in (*found.workload, *found.rows))
    return replace(found, workload=good[:3], rows=good[3:], limit=int(2 * found.baseline_peak) // MIB * MIB)


def test_one_criterion_is_enough_to_speak_against_it(found: Judgement) -> None:
    good = promising(found)
    assert good.promises
    for place, criterion in enumerate(good.rows):
        bad: list[Criterion] = list(good.rows)
        bad[place] = replace(criterion, passed=False)
        assert not replace(good, rows=tuple(bad)).promises


@pytest.mark.parametrize(
    ("table", "said"),
    [
        (replace(pilot(), header=replace(pilot().header, memory_limit=1 << 30)), "without a memory limit"),
        (pilot(6, failed=(2, 3)), r"4 of the pilot's 6 rows have a peak \(OOM 2\); at least 5"),
        (pilot(8, failed=(0,)), "the baseline among them"),
    ],
)
def test_what_cannot_be_judged_is_one_sentence(table: RecordedTable, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        judged(table)


@given(st.lists(st.integers(1, 3000), min_size=4, max_size=300, unique=True))
def test_the_limit_is_between_a_fifth_and_a_third_of_the_peaks(sizes: list[int]) -> None:
    peaks = [4.0 * MIB * size for size in sizes]
    limit = limit_of(peaks)
    share = sum(p > limit for p in peaks) / len(peaks)
    assert limit % MIB == 0
    assert LEAST_FULL - 1 / len(peaks) <= share <= MOST_FULL + 1 / len(peaks)


def test_the_limit_is_where_peaks_are_far_apart() -> None:
    peaks = [1000.0 * MIB + i for i in range(74)] + [2000.0 * MIB + i for i in range(26)]
    assert 1100 * MIB < limit_of(peaks) < 1900 * MIB


def run(
    monkeypatch: pytest.MonkeyPatch, out: Path, made: Callable[[Path], None], rows: str = "15", code: int = 0
) -> tuple[int, list[str]]:
    argv: list[str] = []

    def swept(words: Sequence[str], **_: object) -> SimpleNamespace:
        argv.extend(words)
        made(table_file(CASE, out, pilot=True))
        return SimpleNamespace(returncode=code)

    monkeypatch.setattr(command, "make", lambda *_: MADE)
    monkeypatch.setattr(subprocess, "run", swept)
    return command.main([CASE.name, "--out", str(out), "--pilot", rows]), argv


def test_the_command_runs_the_pilot_and_names_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], found: Judgement
) -> None:
    code, argv = run(monkeypatch, tmp_path, lambda path: write(pilot(), path))
    out = capsys.readouterr().out
    assert code == (0 if found.promises else 3)
    assert argv[argv.index("--rows") + 1] == "15"
    assert "--memory-limit" not in argv
    assert f"memory limit: {found.limit // MIB}MiB" in out
    assert f"--go -- --memory-limit {found.limit // MIB}MiB" in out
    monkeypatch.setattr(command, "judged", lambda _: promising(found))
    assert run(monkeypatch, tmp_path, lambda path: write(pilot(), path))[0] == 0


def test_a_pilot_that_was_broken_off_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, tmp_path, lambda path: write(pilot(), path), code=130)[0] == 130
    assert "memory limit" not in capsys.readouterr().out
    assert run(monkeypatch, tmp_path / "none", lambda _: None)[0] == 2
    assert "pilot-cpu-14m-compiled" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        run(monkeypatch, tmp_path, lambda _: None, rows="3")

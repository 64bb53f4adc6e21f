"""The table and its summary, from trials that were made up: what is said follows from them, and only from them."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.domain import Configuration, FailureReason, Pool, Trial, TrialKind
from autotune.tables.files import read
from benchmarks.gpu import design, journal, table
from benchmarks.gpu.__main__ import left_of, main
from benchmarks.gpu.architectures import ARCHITECTURES
from benchmarks.gpu.run import Asked, Run, RunRequest
from benchmarks.gpu.summary import TRIED, summary
from tests.support import factories

H200 = {"name": "NVIDIA H200", "memory": 141 << 30, "compute_capability": [9, 0], "mig": False}
DEFAULTS = factories.configuration(rollout_engine="transformers")
COMPETENT = DEFAULTS.with_(rollout_engine="vllm")
QUICK = COMPETENT.with_(micro_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=2)
LARGE = DEFAULTS.with_(micro_batch_size=8, gradient_accumulation_steps=1, steps_per_generation=1)
SECONDS = {DEFAULTS: 10.0, COMPETENT: 5.0, QUICK: 2.5}


def run(out: Path, *, arch: str = "qwen2.5-0.5b", device: str = "cuda", rounds: int = 2) -> Run:
    wanted = RunRequest(
        ARCHITECTURES[arch], device, "/python", out, trials=5, rows=8, completion=128, prompt=64, rounds=rounds
    )
    spec = replace(factories.study_spec(), baseline=DEFAULTS)
    gpus = [H200] if device == "cuda" else []
    fingerprint = factories.fingerprint(
        hardware={"cpu": "example", "cores": 2, "memory": None, "gpus": gpus, "driver": "580.1"}
    )
    entries = (
        design.Entry("baseline", DEFAULTS),
        design.Entry("competent", COMPETENT),
        design.Entry("design", QUICK),
        design.Entry("design", LARGE),
        design.Entry("baseline", DEFAULTS),
    )
    return Run(wanted, spec, fingerprint, entries, ("precision fp8: needs torchao",))


def measured(number: int, configuration: Configuration, **changes: object) -> Trial:
    return factories.finished(number, cycle_seconds=SECONDS[configuration], configuration=configuration).with_(
        **changes
    )


def measure(here: Run, numbers: range) -> None:
    """Finish these trials of the plan, as ``SECONDS`` says; the large one runs out of memory."""
    for number in numbers:
        entry = here.planned()[number]
        if entry.configuration == LARGE:
            lost = factories.oom(pool=Pool.DEVICE, phase="update", message="CUDA out of memory")
            trial = factories.failed(number, lost, configuration=LARGE, kind=TrialKind.SEARCH)
        else:
            kinds = {"confirm": TrialKind.CONFIRM, "design": TrialKind.SEARCH}
            kind = TrialKind.BASELINE if number == 0 else kinds.get(entry.role, TrialKind.VERIFY)
            trial = measured(number, entry.configuration, kind=kind, pair=entry.pair)
        row = journal.row_of(trial, entry.role)
        journal.append(here.file, {**row, "recorded_lengths": [64] * 8} if number == 0 else row)


def finished(here: Run, checks: tuple[journal.Row, ...] = (), unchecked: str = "no GPU") -> table.Finished:
    rows = here.rows()
    return table.Finished(here, here.trials(), tuple(str(r["role"]) for r in rows), checks, unchecked)


@pytest.fixture
def whole(tmp_path: Path) -> Run:
    here = run(tmp_path)
    measure(here, range(5))
    measure(here, range(5, len(here.planned())))
    return here


def text_of(here: Run) -> str:
    return "\n".join(summary(finished(here)))


def test_the_leaders_are_confirmed_beside_the_defaults(whole: Run) -> None:
    confirmed = [e for e in whole.planned() if e.role == "confirm"]
    assert {e.configuration for e in confirmed} == {DEFAULTS, COMPETENT, QUICK}
    assert [e.pair for e in confirmed] == [0, 0, 0, 1, 1, 1]
    assert whole.next() is None


def test_what_is_next_follows_from_what_is_there(tmp_path: Path) -> None:
    here = run(tmp_path)
    assert here.next() == (0, here.entries[0])
    assert here.protocol().natural > 0, "lengths are drawn from the first trial's own"
    measure(here, range(2))
    assert here.next() == (2, here.entries[2])
    assert (here.protocol().natural, here.protocol().lengths) == (0, (64,) * 8)
    assert left_of(here, 0) == "3 of 5 trials, the confirmation"
    assert left_of(here, 2) == "2 files of GPU tests, 3 of 5 trials, the confirmation"


def test_gains_are_over_both_defaults(whole: Run) -> None:
    lines = [line for line in text_of(whole).splitlines() if line.startswith("| best, same learning |")]
    assert [line.split("|")[3].strip() for line in lines[:2]] == ["4.00×", "2.00×"]
    assert [line.split("|")[5].strip() for line in lines[:2]] == ["2", "2"]
    assert "micro_batch_size 2 → 4" in text_of(whole)


def test_a_gain_that_was_not_confirmed_says_so(tmp_path: Path) -> None:
    here = run(tmp_path, rounds=0)
    measure(here, range(5))
    assert "not confirmed, so flattered by having been chosen" in text_of(here)


def test_an_out_of_memory_is_counted_by_phase_and_pool(whole: Run) -> None:
    text = text_of(whole)
    assert "| OOM | update | device | 1 |" in text
    assert f"1 of {len(whole.trials())} trials" in text


def test_the_share_of_the_roofline_is_of_this_gpu(whole: Run) -> None:
    text = text_of(whole)
    rows = [
        line for line in text.splitlines() if line.startswith("| TRL's defaults |") and line.rstrip().endswith("% |")
    ]
    assert len(rows) == 1
    rate, most, share = (cell.strip() for cell in rows[0].split("|")[2:5])
    assert float(rate.replace(",", "")) == pytest.approx(3600 * 448 / 10.0)
    assert float(share.rstrip("%")) / 100 == pytest.approx(
        float(rate.replace(",", "")) / float(most.replace(",", "")), abs=1e-3
    )
    assert "989 TFLOP/s" in text


def test_an_unknown_gpu_has_no_roofline(tmp_path: Path) -> None:
    here = run(tmp_path)
    measure(here, range(5))
    hardware = {**here.fingerprint.hardware, "gpus": [{**H200, "name": "Example 9000"}]}
    here = replace(here, fingerprint=replace(here.fingerprint, hardware=hardware))
    assert "Not stated: no roofline is known for Example 9000." in text_of(here)


def test_a_table_that_is_not_complete_says_so(tmp_path: Path) -> None:
    here = run(tmp_path)
    measure(here, range(3))
    assert "**Not complete: 3 of 5 planned trials.**" in text_of(here)
    measure(here, range(3, 5))
    measure(here, range(5, len(here.planned())))
    assert "Not complete" not in text_of(here)


def test_what_was_left_out_and_not_tested_is_told(whole: Run) -> None:
    text = text_of(whole)
    assert "- precision fp8: needs torchao" in text
    assert "Not run: no GPU." in text
    row = {"file": "test_engine.py", "passed": 3, "failed": ["test_a: broke"], "skipped": ["test_b: no vllm"]}
    said = "\n".join(summary(finished(whole, (row,), "")))
    assert "- test_engine.py: 3 passed, 1 failed, 1 skipped." in said
    assert "  - test_a: broke" in said
    assert "  - test_b: no vllm" in said


def test_a_recorded_table_is_named_for_gpu_model_and_day(whole: Run, tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    path, words = table.write(finished(whole), whole.rows(), ["see {table}"], tables)
    assert path.parent == tables
    assert path.name.startswith("h200-qwen2.5-0.5b-20")
    assert path.suffix == ".jsonl"
    assert words.read_text() == f"see {path.name}\n"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["row"] for line in lines] == ["header", *["trial"] * len(whole.trials())]
    assert lines[0]["measures_a_gpu"] is True
    assert lines[0]["fingerprint"] == whole.fingerprint.digest
    assert {"phases", "peaks", "seconds", "drift"} <= set(lines[1]["cycles"][0])
    assert len(path.read_bytes()) < table.MOST_BYTES


def test_a_large_table_is_compressed(whole: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "MOST_BYTES", 5000)
    path, _ = table.write(finished(whole), whole.rows(), [], tmp_path / "tables")
    assert path.name.endswith(".jsonl.gz")
    assert len(gzip.decompress(path.read_bytes()).splitlines()) == 1 + len(whole.trials())


@pytest.mark.parametrize(("arch", "device"), [("tiny", "cpu"), ("tiny", "cuda"), ("qwen2.5-0.5b", "cpu")])
def test_what_was_only_tried_never_stands_among_recorded_tables(tmp_path: Path, arch: str, device: str) -> None:
    here = run(tmp_path / "out", arch=arch, device=device)
    here.wanted.out.mkdir()
    measure(here, range(5))
    tables = tmp_path / "tables"
    path, words = table.write(finished(here), here.rows(), list(summary(finished(here))), tables)
    assert not tables.exists()
    assert path.parent == here.wanted.out / "table"
    assert f"**{TRIED}**" in words.read_text()
    assert json.loads(path.read_text().splitlines()[0])["measures_a_gpu"] is False


def test_a_trial_that_failed_stays_failed_when_the_run_goes_on(whole: Run) -> None:
    lost = [t for t in whole.trials() if t.outcome is not None and t.outcome.reason is FailureReason.OOM]
    assert [t.configuration for t in lost] == [LARGE]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--arch", "qwen2.5-0.5b", "--device", "cpu"], "--device cpu only tries the command, with --arch tiny"),
        (["--arch", "tiny", "--device", "cpu", "--trials", "1"], "--trials 1: expected 2 to 100"),
        (["--arch", "qwen2.5-0.5b", "--trials", "30"], "--trials 30: expected 60 to 100"),
        (["--arch", "tiny", "--device", "cpu", "--slice-s", "5"], "--slice-s 5: expected at least 60 seconds"),
        (["--arch", "tiny", "--device", "cpu", "--rows", "0"], "--rows 0: expected a whole number above 0"),
        (["--arch", "tiny", "--device", "cpu", "--python", "/nowhere"], "--python /nowhere is not an interpreter"),
        (["--arch", "tiny", "--device", "cpu", "--rounds", "-1"], "--rounds -1: expected 0 to 10"),
    ],
)
def test_bad_input_is_one_sentence_and_makes_nothing(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([*arguments, "--out", str(out)], Asked()) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not out.exists()


def test_where_vllm_is_refused_other_trials_take_the_place_of_its_own(tmp_path: Path) -> None:
    """A version nobody checked: each of its trials would end at once, and the table would be nearly empty."""
    other = DEFAULTS.with_(micro_batch_size=1, gradient_accumulation_steps=8, steps_per_generation=8)
    here = replace(run(tmp_path), spare=(design.Entry("design", other),))
    measure(here, range(1))
    lost = factories.failure(FailureReason.ILLEGAL, message="vLLM 0.9.0 is installed")
    row = journal.row_of(factories.failed(1, lost, configuration=COMPETENT, kind=TrialKind.VERIFY), "competent")
    assert here.next() == (1, here.entries[1])
    journal.append(here.file, row)
    engines = [e.configuration["rollout_engine"] for e in here.planned()]
    assert engines == ["transformers", "vllm", "transformers", "transformers", "transformers"]
    assert here.planned()[-1].configuration == other
    assert "- rollout_engine vllm: vLLM 0.9.0 is installed" in text_of(here)
    assert "| best, same learning | vLLM colocated, else TRL's defaults | not measured: one of the two failed" in (
        text_of(here)
    )


def test_the_same_trials_are_written_for_searches(whole: Run, tmp_path: Path) -> None:
    made = read(table.write_for_searches(finished(whole), tmp_path / "tables"))
    rows = {row.configuration: row for row in made.rows}
    spelt = made.header.baseline
    assert set(rows) == {spelt, COMPETENT, QUICK, LARGE}
    assert not rows[LARGE].trial.feasible
    assert rows[QUICK].trial.tokens_per_hour == pytest.approx(3600 * sum(factories.LENGTHS) / 2.5)
    assert all(len(rows[c].repeats) == 2 for c in (spelt, COMPETENT, QUICK))
    assert made.header.fingerprint == whole.fingerprint.digest

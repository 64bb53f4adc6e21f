"""What cycles take on a real GPU is known in size before any trial: if this fails, a plan misleads."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.domain import Phase
from benchmarks import gpu_times
from benchmarks.study_table import recorded

TABLES = Path(__file__).resolve().parents[3] / "benchmarks" / "tables"
FILES = sorted(TABLES.glob("h100-study-*.jsonl"))


def test_the_prior_alone_knows_about_how_long_an_h100_takes() -> None:
    """The machine's own processes differed by a third (docs, ``h100-studies``)."""
    found = [one for path in FILES for one in gpu_times.compared(*recorded(path))]
    assert len(found) >= 8
    for one in found:
        assert 1 / 2 < one.ratio < 1.5, (one.study, one.number)
        assert one.expected[Phase.GENERATE.value] > 0.5 * one.measured[Phase.GENERATE.value]
    by_study = {one.study: one for one in found}
    assert len(by_study) == 3
    plain, roomy, large = (next(o for o in found if o.study == "h100-0.5b" and o.number == n) for n in (0, 1, 2))
    for phases in ("measured", "expected"):
        of = [getattr(one, phases)[Phase.UPDATE.value] for one in (plain, roomy, large)]
        assert of[0] > of[1] > of[2], "checkpointing and small micro-batches cost time"


def test_the_command_prints_a_line_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_times.main([str(path) for path in FILES]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 + sum(len(gpu_times.compared(*recorded(path))) for path in FILES)


def test_what_cannot_be_compared_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = FILES[0].read_text()
    (tmp_path / "other.jsonl").write_text(text.replace("NVIDIA H100 80GB HBM3", "NVIDIA Unheard-of"))
    assert gpu_times.main([str(tmp_path / "other.jsonl")]) == 2
    assert "there is no data sheet of a NVIDIA Unheard-of" in capsys.readouterr().err
    assert gpu_times.main([str(tmp_path / "none.jsonl")]) == 2
    assert gpu_times.main([]) == 2

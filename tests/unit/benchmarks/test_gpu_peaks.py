"""What a real GPU held is known before any trial: if this fails, a search begins with a wrong idea of what fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import gpu_peaks
from benchmarks.study_table import recorded

TABLES = Path(__file__).resolve().parents[3] / "benchmarks" / "tables"
FILES = sorted(TABLES.glob("h100-study-*.jsonl"))


def test_the_formulas_alone_know_what_an_h100_held() -> None:
    found = [one for path in FILES for one in gpu_peaks.compared(*recorded(path))]
    errors = {one.configuration.key: abs(one.error) for one in found if one.error is not None}
    assert len(errors) >= 6, "configurations that held"
    assert max(errors.values()) < 0.05
    full = [one for one in found if one.measured is None]
    assert full, "and one that did not"
    assert all(one.fits < 0.5 for one in full)
    assert all(one.fits > 0.9 for one in found if one.measured is not None)


def test_the_command_prints_a_line_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_peaks.main([str(path) for path in FILES]) == 0
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 2 + sum(len(gpu_peaks.compared(*recorded(path))) for path in FILES)
    assert any("out of memory" in text for text in said)


def test_a_study_without_a_gpu_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = FILES[0].read_text().replace('"measures_a_gpu":true', '"measures_a_gpu":false')
    (tmp_path / "cpu.jsonl").write_text(text)
    assert gpu_peaks.main([str(tmp_path / "cpu.jsonl")]) == 2
    assert "was not measured on one GPU" in capsys.readouterr().err
    assert gpu_peaks.main([str(tmp_path / "none.jsonl")]) == 2
    assert gpu_peaks.main([]) == 2

from pathlib import Path

from autotune.domain import Study
from tests.unit.cli.conftest import Run


def test_a_file_and_its_plot(autotune: Run, study: Study, tmp_path: Path) -> None:
    target = tmp_path / "out" / "my report.md"
    code, out, err = autotune("report", "-o", str(target), "--updates", "1000")
    assert (code, out, err) == (0, f"{target}\n", f"making the folder {target.parent}\n")
    text = target.read_text()
    assert "](my%20report.svg)" in text
    assert "\nYour run: 1,000 updates of " in text
    assert (target.parent / "my report.svg").read_text().startswith("<svg")
    assert autotune("report", "first", "-o", str(target), "--force", "--updates", "1000")[0] == 0
    assert target.read_text() == text, "the same study must give the same text"


def test_printed_it_names_no_plot(autotune: Run, study: Study) -> None:
    code, out, err = autotune("report", "-o", "-")
    assert (code, err) == (0, "")
    assert out.startswith("# Study `first`\n")
    assert ".svg" not in out
    assert "\nper_device_train_batch_size: 4\n" in out, "the answer's own file"
    assert autotune("report")[1] == out


def test_what_is_there_is_not_overwritten(autotune: Run, study: Study, tmp_path: Path) -> None:
    target = tmp_path / "report.md"
    target.with_suffix(".svg").write_text("mine")
    code, out, err = autotune("report", "-o", str(target))
    assert (code, out) == (2, "")
    assert "report.svg is there already; --force overwrites it" in err
    assert not target.exists()
    assert target.with_suffix(".svg").read_text() == "mine"


def test_a_page_is_one_file_without_a_plot_beside_it(autotune: Run, study: Study, tmp_path: Path) -> None:
    target = tmp_path / "report.HTML"
    assert autotune("report", "-o", str(target), "--updates", "1000") == (0, f"{target}\n", "")
    text = target.read_text()
    assert "<svg" in text
    assert "Your run: 1,000 updates of " in text
    assert "<script" not in text
    assert "\nper_device_train_batch_size: 4\n" in text, "the answer's own file"
    assert list(tmp_path.glob("report.*")) == [target]
    code, _, err = autotune("report", "-o", str(target))
    assert code == 2
    assert "is there already; --force overwrites it" in err
    assert autotune("report", "-o", str(tmp_path / "no" / "r.html"), "--force")[0] == 0

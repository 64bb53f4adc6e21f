"""Questions people ask of the tool, each with its right answer; and the runner that puts them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from benchmarks.cases.__main__ import main
from benchmarks.cases.asking import Answer, asked
from benchmarks.cases.case import Case, cases_below
from benchmarks.cases.judging import wrong

CASES = Path(__file__).parents[2] / "fixtures" / "cases"


def name_of(case: Case) -> str:
    return str(case.folder.relative_to(CASES))


def in_its_lane(case: Case) -> object:
    """What a model needs is asked of every GPU, for many seconds; short questions of it are in ``test_planning``."""
    return pytest.param(case, marks=pytest.mark.slow) if "--need" in case.options else case


@pytest.mark.parametrize("case", [in_its_lane(case) for case in cases_below(CASES)], ids=name_of)
def test_the_product_answers_what_is_right(case: Case) -> None:
    assert wrong(case, asked(case)) == []


def test_every_kind_of_question_is_asked() -> None:
    cases = cases_below(CASES)
    assert {case.ask for case in cases} == {"import", "check", "plan", "diagnose"}
    assert {case.framework for case in cases if case.ask == "import"} == {"trl", "openr1", "swift", "verl"}
    assert len(cases) >= 100


def write(folder: Path, name: str, **values: object) -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "case.yaml").write_text(yaml.safe_dump(values))
    (folder / name / "log.txt").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1 GiB")


@pytest.mark.parametrize(
    ("right", "words"),
    [
        ({"reason": "OOM", "pool": "device"}, ""),
        ({"reason": "OOM", "pool": "host"}, "pool device, right is host"),
        ({"reason": "OOM", "pool": "nothing"}, "pool device, right is None"),
        ({"reason": "CRASH"}, "reason OOM, right is CRASH"),
        ({"suggests": ["a dog"]}, "lacks 'a dog'"),
        ({"suggests": ["a dog | lower"]}, ""),
        ({"never": ["cuda OUT"]}, "said 'cuda OUT'"),
        ({"refused": ["x"]}, "not refused"),
    ],
)
def test_a_wrong_answer_is_told_with_what_is_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], right: object, words: str
) -> None:
    write(tmp_path, "one", ask="diagnose", framework="trl", input="log.txt", phase="update", right=right)
    assert main([str(tmp_path)]) == (1 if words else 0)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("wrong" if words else "right")
    assert words in lines[0]
    assert lines[1] == ("0 of 1 right" if words else "1 of 1 right")


def test_all_are_told_in_one_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a", ask="diagnose", framework="trl", input="log.txt", right={"reason": "OOM"})
    write(tmp_path, "b/c", ask="diagnose", framework="verl", input="log.txt", right={"reason": "HANG"})
    assert main([str(tmp_path), "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["cases"], document["wrong"]) == (2, 1)
    assert [Path(name).name for name in document["answers"]] == ["a", "c"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "expected a mapping"),
        ("ask: [", "not YAML"),
        ("ask: sing\nright: {legal: true}", "ask: expected one of import, check, plan, diagnose, got sing"),
        ("ask: check", "right: expected"),
        ("ask: check\nright: {}", "right: expected"),
        ("ask: check\nright: {legal: true}\nwhere: there", "unknown key where"),
        ("ask: check\nright: {rihgt: true}\noptions: --gpus 1", "unknown key rihgt"),
        ("ask: import\nright: {legal: true}\nmachine: {gpu: 1}", "machine"),
        ("ask: import\nright: {legal: true}\nmachine: 3", "machine: expected a mapping"),
        ("ask: import\nright: {legal: true}\ngiven: {setting: 1}", "given: unknown key setting"),
        ("ask: import\nright: {legal: true}\ninput: gone.yaml", "gone.yaml"),
    ],
)
def test_a_case_that_cannot_be_read_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (tmp_path / "case.yaml").write_text(text)
    assert main([str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_a_folder_without_cases_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path)]) == 2
    assert "no case.yaml" in capsys.readouterr().err


def test_a_crash_of_the_product_is_a_wrong_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "a", ask="diagnose", framework="nobody's", input="log.txt", right={"reason": "OOM"})
    write(tmp_path, "b", ask="diagnose", framework="trl", input="log.txt", right={"reason": "OOM"})
    assert main([str(tmp_path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "the product crashed: " in lines[0]
    assert lines[1].startswith("right")


def test_a_plan_is_judged_by_what_is_likely(tmp_path: Path) -> None:
    best = [{"fits_probability": 0.4, "peak_bytes": 30 << 30, "peak_bytes_low": 20 << 30, "peak_bytes_high": 40 << 30}]
    answer = Answer(plan={"best": best, "framework_defaults": {"fits_probability": 0.6}})

    def said(**right: object) -> list[str]:
        return wrong(Case(tmp_path, "plan", right), answer)

    assert said(fits="not likely", defaults_fit="likely", peak_gib=[29, 31], measured_gib=21.0) == []
    assert len(said(fits="likely", defaults_fit="not likely", peak_gib=[31, 33], measured_gib=41.0)) == 4

"""Two frameworks on one workload: what may be compared, and the table of what gave the most tokens/hour."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Configuration, Study, Trial
from autotune.errors import UsageError
from autotune.recommendation.reading import StudyReading
from benchmarks import frameworks
from tests.support import factories

FASTER = factories.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
SECONDS = {"trl": {False: 10.0, True: 8.0}, "ms_swift": {False: 20.0, True: 5.0}}
"""Framework -> whether it is the tuned configuration -> seconds of a cycle."""


def record(framework: str, lengths: tuple[int, ...] = factories.LENGTHS, **changes: Any) -> StudyReading:
    spec = factories.study_spec(framework=framework, name=framework, **changes)
    spent = SECONDS[framework]
    trials = [
        factories.finished(0, cycle_seconds=spent[False], configuration=spec.baseline),
        factories.finished(1, cycle_seconds=spent[True], configuration=FASTER),
    ]
    return StudyReading(factories.study(spec=spec, lengths=lengths), trials, fingerprint=factories.fingerprint())


def test_baselines_and_leaders_of_both_replay_the_first_studys_lengths() -> None:
    other = tuple(length + 1 for length in factories.LENGTHS)
    found = frameworks.contenders(record("trl"), record("ms_swift", other))
    assert [each.study.spec.framework for each in found] == ["trl", "trl", "ms_swift", "ms_swift"]
    assert {each.study.lengths for each in found} == {factories.LENGTHS}
    assert [each.words for each in found] == ["its baseline", "micro_batch_size 4"] * 2


@pytest.mark.parametrize(
    ("a", "b", "said"),
    [
        (record("trl"), record("trl"), "both studies are of TRL"),
        (
            record("trl"),
            record("ms_swift", workload=factories.workload(max_completion_length=7)),
            r"workload\.max_completion_length: 128 -> 7",
        ),
        (record("trl"), record("ms_swift", workload=factories.workload(prompts_sha256="0")), "prompts_sha256"),
        (record("trl", lengths=()), record("ms_swift", lengths=()), "has recorded no lengths"),
    ],
)
def test_what_is_no_comparison_of_frameworks_is_refused(a: StudyReading, b: StudyReading, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        frameworks.contenders(a, b)


def test_the_fastest_stands_first_with_its_ratio_and_phases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = {name: record(name, workload=factories.workload(passthrough={"x": name})) for name in SECONDS}
    order: list[tuple[str, bool]] = []

    def once(study: Study, configuration: Configuration, _: object) -> Trial:
        tuned = configuration == FASTER
        order.append((study.spec.framework, tuned))
        return factories.finished(0, cycle_seconds=SECONDS[study.spec.framework][tuned], configuration=configuration)

    monkeypatch.setattr(frameworks, "once", once)
    monkeypatch.setattr(frameworks, "record_of", lambda _, name: records[name])
    assert frameworks.main(tmp_path, ["trl", "ms_swift"], 2) == 0
    assert order == [*order[:4], *reversed(order[:4])], "in turned-round order"
    out = capsys.readouterr().out
    lines = [line for line in out.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [row[0] for row in cells[2:]] == ["ms-swift", "TRL", "TRL", "ms-swift"]
    assert cells[2][1:2] == ["micro_batch_size 4"]
    assert [row[3].split(" ")[0] for row in cells[2:]] == ["2.00", "1.25", "1", "0.50"]
    assert len({len(row) for row in cells}) == 1
    assert "Not the same: workload.passthrough.x: trl -> ms_swift" in out
    assert "2 rounds in turns" in out


def test_a_study_that_is_not_there_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert frameworks.main(tmp_path, ["one", "other"], 1) == 2
    assert capsys.readouterr().err.startswith("error: ")

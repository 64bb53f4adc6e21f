"""The report: deterministic, complete, true to the study, and nothing foreign acts in it."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.charts.chart import file_of
from autotune.charts.history import history
from autotune.domain import FailureReason, StudySpec, Trial, TrialKind
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.recommendation.recommend import recommend
from autotune.report import report
from autotune.report.markdown import LONGEST, block, code, table
from autotune.statistics import retries
from tests.support import factories as f

FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
EVIL = "</code><script>alert(1)</script> | `` ![x](http://evil) \x1b[31m\u202e\n# heading\r\n- item [a](javascript:x)"

SECTIONS = (
    "Answer",
    "Where the time goes",
    "Workload",
    "Machine and versions",
    "How it was measured",
    "Baseline",
    "All trials",
    "Failures",
    "What the knobs did",
    "Reproduce it",
    "Not measured",
)


def _trials() -> list[Trial]:
    found = [f.finished(0, cycle_seconds=[9.9, 10.0, 10.1]), f.finished(1, configuration=FASTER, cycle_seconds=5.0)]
    found.append(f.failed(2, configuration=f.configuration(gradient_checkpointing=False)))
    for pair in (0, 1):
        for configuration, seconds in ((f.configuration(), 10.0), (FASTER, 5.2)):
            number = len(found)
            found.append(
                f.finished(
                    number,
                    kind=TrialKind.CONFIRM,
                    configuration=configuration,
                    pair=pair,
                    source="confirm",
                    cycle_seconds=[seconds, seconds * 1.01, seconds * 0.99],
                )
            )
    return found


def _read(trials: list[Trial] | None = None, spec: StudySpec | None = None, **changes: Any) -> StudyReading:
    trials = _trials() if trials is None else trials
    study = f.study(spec=spec or f.study_spec())
    found = recommend(study.spec, trials, "the time budget is used up", now=f.NOW)
    answer = AnswerSource.RECOMMENDATION, found
    base = StudyReading(study, trials, (587.0, 0.0), fingerprint=f.fingerprint(), known_answer=answer)
    return replace(base, **changes)


def _text(found: StudyReading, legal: int | None = 264) -> str:
    return report(found, legal=legal)


def _headings(text: str) -> list[str]:
    return [line[3:] for line in text.splitlines() if line.startswith("## ")]


def test_every_section_is_there_in_its_order() -> None:
    text = _text(_read())
    assert tuple(_headings(text)) == SECTIONS
    assert text.startswith("# Study `first`\n")
    assert text.endswith("\n")
    assert "\n\n\n" not in text


def test_it_says_what_the_study_says() -> None:
    found = _read()
    assert found.recommendation is not None
    row, text = found.recommendation.rows[0], _text(found)
    assert "Best configuration: +92" in text
    assert "| `micro_batch_size` | `2` | `4` |" in text
    assert f"trials {', '.join(f'#{n}' for n in row.trials)}" in text
    assert "confirmed in fresh processes, 2 A/B rounds" in text
    assert "OOM in update (host memory): the process tree reached 8.1 GiB of 8.0 GiB" in text
    assert "try micro_batch_size 1" in text
    assert "torch`: `2.13.0" in text
    assert "257 of the 264 legal combinations" in text or "261 of the 264 legal combinations" in text
    assert "autotune export first" in text
    assert "seed 0" in text


def test_every_trial_has_its_row() -> None:
    rows = [line for line in _text(_read()).splitlines() if re.match(r"\| #\d+ \| `\w+` \| `(base|sam|con)", line)]
    assert [int(re.match(r"\| #(\d+)", row)[1]) for row in rows] == list(range(7))  # type: ignore[index]


def test_gains_are_over_the_references_figure_not_its_first_run() -> None:
    """A slow first run of the baseline must not flatter every trial of the table."""
    trials = _trials()
    trials[0] = f.finished(0, cycle_seconds=20.0)
    rows = _text(_read(trials)).splitlines()
    assert "| baseline |" in next(line for line in rows if line.startswith("| #0 |"))
    assert not [line for line in rows if line.startswith("| #") and re.search(r"\| \+[3-9]\d\d", line)]


def test_a_disproved_failure_is_marked() -> None:
    trials = _trials()
    mended = f.finished(7, kind=TrialKind.VERIFY, configuration=trials[2].configuration, source=retries.SOURCE)
    assert "disproved by a retry" in _text(_read([*trials, mended]))
    assert "disproved by a retry" not in _text(_read(trials))


def test_the_same_study_gives_the_same_text() -> None:
    found = _read()
    shuffled = replace(found, trials=list(reversed(found.trials)))
    assert _text(found) == _text(found)
    for section in ("All trials", "Failures"):
        assert _section(_text(shuffled), section) == _section(_text(found), section)


def _section(text: str, title: str) -> str:
    return text.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize(
    ("trials", "said"),
    [
        ([], "**Nothing has been measured yet.**\n"),
        ([f.trial(0)], "**Nothing has been measured yet.**\n"),
        (
            [f.broken_off(0)],
            "**Nothing was measured: the budget ended before a trial did.** The failures below say why.",
        ),
        (
            [f.failed(0, kind=TrialKind.BASELINE, configuration=f.configuration())],
            "**No configuration was feasible.** The failures below say why.",
        ),
        ([f.finished(0, cycles=0)], "**No configuration was feasible.**\n"),
    ],
)
def test_a_study_with_little_or_nothing_has_a_report_too(trials: list[Trial], said: str) -> None:
    text = _text(_read(trials, fingerprint=None, spent=(0.0, 0.0)), None)
    assert said in text
    assert "not recorded" in text
    assert "nan" not in text.lower()


def test_nothing_foreign_acts() -> None:
    load = f.workload(model=EVIL, prompts=EVIL, passthrough={EVIL: EVIL}, rewards=(f.reward(name=EVIL),))
    spec = f.study_spec(EVIL, workload=load, sampler=EVIL, python=EVIL)
    trials = [
        f.finished(0, source=EVIL),
        f.failed(1, f.failure(FailureReason.CRASH, message=EVIL, suggestion=EVIL), configuration=FASTER),
    ]
    seen = f.fingerprint(hardware={EVIL: EVIL}, software={EVIL: EVIL})
    text = _text(_read(trials, spec, fingerprint=seen))
    assert not set("\x1b\u202e\r") & set(text)
    assert tuple(h for h in _headings(text) if h in SECTIONS) == tuple(h for h in SECTIONS if h in _headings(text))
    assert len(_headings(text)) == len(set(_headings(text)) & set(SECTIONS))
    outside = re.sub(r"(?s)```+text\n.*?\n```+", "", text)
    for line in outside.splitlines():
        bare = re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", "", line)
        assert "script" not in bare, line
        assert "evil" not in bare, line
        assert "javascript" not in bare, line


@given(st.text())
def test_no_text_leaves_its_code_span(text: str) -> None:
    span = code(text)
    assert "\n" not in span
    assert len(span) <= 3 * LONGEST
    match = re.fullmatch(r"(`+)( ?)(.*?)( ?)\1", span)
    if span == "-":
        return
    assert match is not None
    assert match[1] not in re.findall("`+", match[3])


@given(st.lists(st.text()))
def test_no_line_leaves_its_block(lines: list[str]) -> None:
    made = block(lines).splitlines()
    fence = made[0].removesuffix("text")
    assert made[-1] == fence
    assert not any(line.lstrip(" ").startswith(fence) for line in made[1:-1])


def test_a_bar_in_a_cell_does_not_split_it() -> None:
    assert table(["a"], [["`x|y`"]]).splitlines()[-1] == "| `x\\|y` |"


def test_the_plot_is_a_file_of_its_own_with_a_mark_for_every_trial() -> None:
    trials = [*_trials(), f.trial(7)]
    root = ET.fromstring(file_of(history(trials, f.study_spec())))  # noqa: S314 - our own text
    space = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{space}svg"
    assert "--ink: #" in (root.findtext(f"{space}style") or ""), "no page around it gives the colours"
    marks = [one for one in root.iter(f"{space}title") if (one.text or "").startswith("#")]
    assert len(marks) == len(trials) - 1, "one has not begun"


def test_a_plot_of_nothing_says_so() -> None:
    root = ET.fromstring(file_of(history([], f.study_spec())))  # noqa: S314 - our own text
    assert "No trial has been started." in "".join(root.itertext())


def test_the_report_says_what_the_marks_of_its_plot_are() -> None:
    text = report(_read(), plot="first.svg")
    assert "(first.svg)" in text
    assert "✕ failed" in text
    assert "✕ failed" not in report(_read())

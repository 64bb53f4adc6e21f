"""A trial's way through verl's steps, from what is told and logged: figures that would not be true end it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.verl_trials import COMPLETION, LENGTHS, PROMPT, PROTOCOL, StandIn, assignment
from trainer.child.contract import CycleKind, CycleRecord, NoteRecord, Phase, ProcessUse, WorstCaseRecord
from trainer.child.failures import IllegalSettingError, MeterError, NotFiniteError
from trainer.child.frameworks.verl import MetricsError, course, overrides, run
from trainer.child.frameworks.verl.board import FileTally, Places, append
from trainer.child.frameworks.verl.course import StepSequence
from trainer.child.guard import TreeUse


class Steps:
    """A course whose steps are told and logged by hand."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        given = assignment(folder, PROTOCOL)
        self.places = Places(given.directory)
        self.course = StepSequence(StandIn({}, **settings).render(given), self.places, FileTally(self.places))
        self.course.begin()
        self.step = 0

    def make(self, lengths: Sequence[int], prompt: int = PROMPT, **data: Any) -> list[Any]:
        """The records of the next step, whose completions have these lengths."""
        self.step += 1
        for row, length in enumerate(lengths):
            append(self.places.rows, [self.step, row, prompt, length])
            append(self.places.scores, [2 * (self.step - 1) + row // 4, float(row)])
        figures = {
            "timing_s/step": 2.0,
            "timing_s/gen": 1.0,
            "prompt_length/mean": float(prompt),
            "response_length/mean": sum(lengths) / max(1, len(lengths)),
            "perf/total_num_tokens": prompt * len(lengths) + sum(lengths),
            "actor/loss": 0.1,
            "actor/grad_norm": 1.0,
            **data,
        }
        return self.course.line(json.dumps({"step": self.step, "data": figures}).encode())

    def asked(self) -> tuple[int, ...]:
        return self.course.steps[self.step].lengths or ()


def test_steps_become_records_with_the_lengths_that_were_asked_for(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    warmup, worst = steps.make([COMPLETION] * 8)
    assert isinstance(warmup, CycleRecord)
    assert isinstance(worst, WorstCaseRecord)
    assert (warmup.cycle_kind, warmup.seconds, warmup.groups) == (CycleKind.WARMUP, 2.0, 2)
    (record,) = steps.make(steps.asked(), prompt=9)
    assert sorted(record.lengths) == sorted(LENGTHS)
    assert record.phases[Phase.IDLE.value] == pytest.approx(record.seconds - 1.0)
    assert not steps.course.finished


def test_what_verls_processes_used_is_that_of_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was used before the first line is the start's."""
    uses = iter([TreeUse(50.0, 9.0, 7000), TreeUse(53.0, 9.5, 7100)])
    monkeypatch.setattr(course, "tree_use", lambda: next(uses))
    steps = Steps(tmp_path)
    first, second = steps.make([COMPLETION] * 8)[0], steps.make(steps.asked())[0]
    assert first.process is None
    assert second.cpu_seconds == pytest.approx(3.0)
    assert second.process == ProcessUse(system_seconds=pytest.approx(0.5), minor_faults=100)


def test_a_completion_of_another_length_ends_the_trial(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    steps.make([COMPLETION] * 8)
    with pytest.raises(MeterError, match="asked for completions of"):
        steps.make([length - 1 for length in steps.asked()])


def test_completions_that_verl_left_out_end_the_trial(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match="step 1 has 7 of 8 completions"):
        Steps(tmp_path).make([COMPLETION] * 7)


def test_a_worst_case_that_was_none_is_not_stated(tmp_path: Path) -> None:
    with pytest.raises(MeterError, match=f"the worst case was {PROMPT - 1} [+] {COMPLETION} tokens wide"):
        Steps(tmp_path).make([COMPLETION] * 8, prompt=PROMPT - 1)


@pytest.mark.parametrize("key", ["actor/loss", "actor/grad_norm"])
def test_what_is_not_finite_ends_the_trial(tmp_path: Path, key: str) -> None:
    with pytest.raises(NotFiniteError, match=f"no finite {key} in step 1") as raised:
        Steps(tmp_path).make([COMPLETION] * 8, **{key: None})
    assert raised.value.phase is Phase.UPDATE


def test_a_line_that_is_none_of_verls_ends_the_trial_and_one_of_validation_does_not(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    assert steps.course.line(b'{"step": 0, "data": {"val-core/acc": 0.5}}') == []
    with pytest.raises(MetricsError, match="as verl's file logger writes"):
        steps.course.line(b"[1, 2]")


def test_tokens_that_verl_counts_otherwise_are_noted_once(tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    notes = [
        record
        for records in (
            steps.make([COMPLETION] * 8, **{"response_length/mean": 3.0}),
            steps.make(steps.asked(), **{"response_length/mean": 3.0}),
        )
        for record in records
        if isinstance(record, NoteRecord)
    ]
    assert [(note.name, dict(note.data)) for note in notes] == (
        [("verl_tokens", {"logged": 24, "generated": 8 * COMPLETION})]
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"actor_rollout_ref.rollout.n": 2}, "these settings make 4 rows per update, the trial is of 8"),
        ({"algorithm.filter_groups.enable": True}, "algorithm.filter_groups.enable: verl generates groups anew"),
        ({"actor_rollout_ref.rollout.multi_turn.enable": True}, "a completion of several turns has no one length"),
    ],
)
def test_what_cannot_be_measured_is_refused(tmp_path: Path, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(IllegalSettingError) as refused:
        overrides.check(StandIn({}, **settings).render(assignment(tmp_path)))
    assert said in str(refused.value)


def test_a_status_without_a_reason_is_told_as_that() -> None:
    assert str(run.failure(7, "")) == "verl ended with exit code 7 and told no reason"
    assert "exitcode: -9" in str(run.failure(-9, ""))

"""Real TRL trials: FP8 emulated by request, which passes and is labelled; FP8 that is broken; a compiled model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autotune.running.preloaded import Preloads
from tests.support.trl_trials import (
    LENGTHS,
    PLAIN,
    ROOT,
    START,
    Ran,
    end,
    launch,
    reward_file,
    run_trial,
    tiny_spec,
    write_spec,
)
from trainer.child.contract import CycleKind, FailureReason, NoteRecord, Phase, Protocol, limits

pytestmark = [pytest.mark.trl, pytest.mark.full]

BROKEN = ROOT / "tests" / "support" / "broken_scale_trial.py"
SHORT = Protocol(warmup=1, recorded=1, lengths=(16, 4, 9, 12), outside_cpu_limit=9.0)
FP8 = {"precision": "fp8", "fp8_emulate": True}


def test_emulated_fp8_trains_and_says_that_it_was_emulated(tiny: Path, preloads: Preloads) -> None:
    spec = tiny_spec(tiny, reward_file(tiny / "fp8", PLAIN), SHORT, knobs=FP8)
    assert (spec.settings["bf16"], spec.settings["fp16"]) == (True, False)
    ran = run_trial(tiny / "fp8" / "run", spec, preloads=preloads)
    assert ran.result.ok, ran.result.detail
    assert ran.result.data["float8"] == {"layers": 14, "left_out": 1, "emulated": True}
    assert ran.note("float8").data["emulated"] is True
    seen = ran.note("gradient").data
    assert limits.GRADIENT_COSINE < seen["cosine"] < 1.0
    assert len(ran.of(CycleKind.RECORDED)) == 1
    assert ran.worst_case is not None


def test_a_scale_off_by_four_ends_as_quality_in_the_warm_up(tiny: Path) -> None:
    """The trial would otherwise run through, fast and finite, and its figure would be believed."""
    spec = tiny_spec(tiny, reward_file(tiny / "broken", PLAIN), SHORT, knobs=FP8)
    ran = run_trial(tiny / "broken" / "run", spec, script=BROKEN)
    assert (ran.result.reason, ran.result.phase) == (FailureReason.QUALITY, Phase.UPDATE), ran.result.detail
    assert "that of bf16" in ran.result.message
    assert any(isinstance(r, NoteRecord) and r.name == "gradient" for r in ran.records)
    assert not ran.cycles


def test_a_cycle_in_which_something_was_compiled_is_repeated(tiny: Path) -> None:
    """The first cycle of other shapes than the warm-up's took 200 times as long as those after it."""
    protocol = replace(SHORT, recorded=2, lengths=LENGTHS)
    spec = tiny_spec(tiny, reward_file(tiny / "compiled", PLAIN), protocol, knobs={"torch_compile": True})
    paths = write_spec(tiny / "compiled" / "run", spec)
    end(launch(START, [paths.root], paths.scratch), seconds=800)
    ran = Ran(paths.root)
    assert ran.result.ok, ran.result.detail
    recorded = ran.of(CycleKind.RECORDED)
    compiled = [r.data for r in ran.records if isinstance(r, NoteRecord) and r.name == "compiled"]
    assert compiled[0]["kind"] == "warmup"
    assert {cycle.index for cycle in recorded if not cycle.accepted} == {
        data["cycle"] for data in compiled if data["kind"] == "recorded"
    }, "nothing was compiled, or its cycle was counted"
    assert len(compiled) > 1
    assert len([cycle for cycle in recorded if cycle.accepted]) == 2


def test_fp8_without_the_hardware_is_refused_before_anything_runs(tiny: Path, preloads: Preloads) -> None:
    spec = tiny_spec(tiny, reward_file(tiny / "refused", PLAIN), SHORT, knobs={"precision": "fp8"})
    ran = run_trial(tiny / "refused" / "run", spec, preloads=preloads)
    assert ran.result.reason is FailureReason.ILLEGAL
    assert "8.9 or later, or fp8_emulate" in ran.result.message

"""Runs a trial of the made-up framework: one cycle without a training."""

from __future__ import annotations

from ...contract import CycleKind, CycleRecord  # noqa: TID252
from ...trial import TrialContext  # noqa: TID252


def run_trial(trial: TrialContext) -> None:
    rows = trial.spec.settings["rows"]
    trial.note("ran", {"rows": rows, "own": trial.spec.passthrough["own"]})
    figures = {"completion_tokens": 8, "prompt_tokens": 8, "computed_tokens": 16}
    trial.journal.write(CycleRecord(0, CycleKind.RECORDED, 0.5, {"update": 0.5}, rows=rows, updates=1, **figures))

"""``python -m benchmarks.gpu_peaks FILE.jsonl...``: what recorded studies on a GPU held, against the memory model.

The files are those ``benchmarks.study_table`` writes. Of each trial is printed the most memory its device had in use,
what the formulas alone say of its configuration at the longest prompt and completion, and with which probability it
would fit; a trial that ran out of memory has no peak. Nothing is fitted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.domain import Configuration, FailureReason, Pool, Trial
from autotune.errors import AutotuneError, UsageError
from autotune.proposals.forecasts import Task
from autotune.proposals.memory import MemoryModel
from benchmarks.study_table import recorded
from search_spaces.configuration import ModelFacts, Resources

GIB = 1 << 30
COLUMNS = ("study", "trial", "measured GiB", "predicted GiB", "error", "said to fit")


@dataclass(frozen=True)
class Compared:
    """One trial on one GPU; bytes."""

    study: str
    number: int
    configuration: Configuration
    measured: int | None
    """``None``: it ran out of memory."""
    predicted: float
    fits: float

    @property
    def error(self) -> float | None:
        """Share of the measured peak."""
        return None if self.measured is None else self.predicted / self.measured - 1.0


def task_of(head: Mapping[str, Any]) -> Task:
    """What a file's header tells.

    Raises:
        UsageError: it is not of one GPU.
    """
    gpus = (head["hardware"] or {}).get("gpus") or []
    if not head["measures_a_gpu"] or len(gpus) != 1:
        raise UsageError(f"{head['study']} was not measured on one GPU")
    machine = Resources(
        gpus=1,
        device="cuda",
        device_memory=gpus[0]["memory"],
        host_memory=head["hardware"]["memory"],
        compute_capability=tuple(gpus[0]["compute_capability"]),
        model=ModelFacts(**head["model"]),
    )
    return Task(machine, head["rows_per_update"], head["max_prompt_tokens"], head["max_completion_tokens"])


def compared(head: Mapping[str, Any], trials: Iterable[Trial]) -> list[Compared]:
    """Trials that passed the worst case or ran out of the device's memory."""
    model, found = MemoryModel.before(task_of(head)), []
    for trial in trials:
        said = model.forecast([trial.configuration])
        peak = trial.peak(Pool.DEVICE) if trial.worst_case_passed else None
        if peak is not None or _full(trial):
            one = Compared(
                head["study"], trial.number, trial.configuration, peak, float(said.peak[0]), float(said.fits[0])
            )
            found.append(one)
    return found


def _full(trial: Trial) -> bool:
    outcome = trial.outcome
    return outcome is not None and outcome.reason is FailureReason.OOM and outcome.pool is Pool.DEVICE


def line(one: Compared) -> str:
    """A row of the table."""
    measured = "out of memory" if one.measured is None else f"{one.measured / GIB:.1f}"
    error = "" if one.error is None else f"{100.0 * one.error:+.1f} %"
    cells = (one.study, f"#{one.number}", measured, f"{one.predicted / GIB:.1f}", error, f"{one.fits:.2f}")
    return f"| {' | '.join(cells)} |"


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(__doc__)
        return 0 if arguments else 2
    try:
        found = [one for name in arguments for one in compared(*recorded(Path(name)))]
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    print("\n".join(line(one) for one in found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

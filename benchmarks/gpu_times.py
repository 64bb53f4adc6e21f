"""``python -m benchmarks.gpu_times FILE.jsonl...``: what cycles of recorded studies on a GPU took, against the prior.

The files are those ``benchmarks.study_table`` writes. Of each trial with timed cycles are printed the median seconds of
its phases and what the roofline says of them, from the GPU's data sheet, the model's sizes and the recorded lengths
alone. Nothing is fitted, though the presumed seconds of a launch were chosen after three of these were recorded
(docs/decisions/0030-phase-times.md).
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.domain import Configuration, Phase, Trial
from autotune.errors import AutotuneError, UsageError
from autotune.proposals.times import PhaseTimes, sheet_of
from benchmarks.gpu_peaks import task_of
from benchmarks.study_table import recorded

PHASES = (Phase.GENERATE.value, Phase.LOGPROB.value, Phase.UPDATE.value, Phase.SYNC.value)
COLUMNS = ("study", "trial", *(f"{name}: measured / prior" for name in PHASES), "cycle", "prior / measured")


@dataclass(frozen=True)
class Compared:
    """One trial on one GPU; seconds of a cycle, medians over its timed cycles."""

    study: str
    number: int
    configuration: Configuration
    measured: Mapping[str, float]
    """By phase."""
    expected: Mapping[str, float]
    """The same by the prior."""

    @property
    def ratio(self) -> float:
        """Of the whole cycle: expected over measured."""
        return sum(self.expected.values()) / sum(self.measured.values())


def compared(head: Mapping[str, Any], trials: Iterable[Trial]) -> list[Compared]:
    """Trials with timed cycles, at the lengths of their study's recorded cycles.

    Raises:
        UsageError: not measured on one GPU, or on one there is no data sheet of.
    """
    task = replace(task_of(head), lengths=tuple(head["recorded_lengths_tokens"] or ()))
    name = head["hardware"]["gpus"][0]["name"]
    sheet = sheet_of(name)
    if sheet is None:
        raise UsageError(f"{head['study']}: there is no data sheet of a {name}")
    model, found = PhaseTimes(sheet).fitted(task, ()), []
    for trial in trials:
        cycles = trial.speed_cycles()
        if not trial.feasible or not cycles:
            continue
        said = model.forecast([trial.configuration]).phases
        measured = {phase: statistics.median(c.phases.get(phase, 0.0) for c in cycles) for phase in said}
        expected = {phase: float(column[0]) for phase, column in said.items()}
        found.append(Compared(head["study"], trial.number, trial.configuration, measured, expected))
    return found


def line(one: Compared) -> str:
    """A row of the table."""
    phases = [f"{one.measured[name]:.2f} / {one.expected[name]:.2f}" for name in PHASES]
    whole = f"{sum(one.measured.values()):.2f} / {sum(one.expected.values()):.2f}"
    return f"| {' | '.join((one.study, f'#{one.number}', *phases, whole, f'{one.ratio:.2f}'))} |"


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

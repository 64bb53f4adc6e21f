"""Chooses the workload's size by the budget, where the user chose none; pure.

A study on a slow machine that begins with too large a workload ends with one unfinished trial. So the defaults are
made smaller until the budget holds ``TRIALS`` trials and the confirmation of the best, by the predicted seconds of a
cycle at the machine's present speed. See docs/decisions/0041-workload-that-fits-the-budget.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from autotune.specification.request import Size
from autotune.statistics.early_stopping import LOOKS
from autotune.statistics.lengths import NATURAL_CYCLES
from autotune.wording.numbers import counted, format_duration

TRIALS = 6
"""A budget should hold at least so many: the baseline and five of the search."""
LEAST_ROWS = 4
LEAST_TOKENS = 8
"""Shorter completions leave nothing of a generation to measure."""
CONFIRMATION_EXTRAS = 2
"""Cycles of the leader's confirmation beside the recorded ones: one at natural lengths, one at the maximum."""


@dataclass(frozen=True)
class Workload:
    """A size that can be chosen."""

    rows: int
    """Rows per update."""
    tokens: int
    """Longest completion."""
    layers: int | None = None
    """Of the bundled model, its first so many; ``None``: the whole model."""

    @property
    def size(self) -> Size:
        return Size(self.rows, self.tokens)

    def words(self, of_layers: int = 0) -> str:
        """``4 rows per update, completions of at most 16 tokens``."""
        model = "" if self.layers is None else f", the first {self.layers} of the model's {of_layers} layers"
        return f"{self.rows} rows per update, completions of at most {self.tokens} tokens{model}"


@dataclass(frozen=True)
class Pace:
    """Predicted seconds of the baseline with one workload."""

    start_s: float
    """From a trial's start to its first timed cycle, the warm-up included."""
    cycle_s: float

    def trial_s(self, cycles: int) -> float:
        """Seconds of a trial with so many cycles after the warm-up."""
        return self.start_s + cycles * self.cycle_s

    @property
    def baseline_s(self) -> float:
        """Seconds of the first trial, which also records the lengths."""
        return self.trial_s(NATURAL_CYCLES + LOOKS[0])

    @property
    def confirmation_s(self) -> float:
        """Seconds of one confirmation round: the leader and the baseline."""
        return self.trial_s(LOOKS[0] + CONFIRMATION_EXTRAS) + self.trial_s(LOOKS[0])

    def study_s(self) -> float:
        """Seconds of a study with ``TRIALS`` trials (the baseline included) and one confirmation round."""
        return self.baseline_s + (TRIALS - 1) * self.trial_s(LOOKS[0]) + self.confirmation_s

    def trials(self, budget_s: float) -> int:
        """Number of trials that fit the budget besides the confirmation; 0 if not even the baseline does."""
        left = budget_s - self.baseline_s
        return 0 if left < 0 else 1 + max(0, math.floor((left - self.confirmation_s) / self.trial_s(LOOKS[0])))


@dataclass(frozen=True)
class ChosenWorkload:
    """The workload a study begins with."""

    workload: Workload
    pace: Pace
    usual: Workload
    """The default for such a machine."""
    usual_pace: Pace


def ladder(usual: Size, *, rows: bool, tokens: bool, layers: Sequence[int] = ()) -> Iterator[Workload]:
    """The usual workload and ever smaller ones: shorter completions and fewer rows in turn, then fewer layers.

    Args:
        rows: the rows may be changed, ``tokens``: the completions.
        layers: smaller numbers of layers that the model can be cut to, descending.
    """
    now = Workload(usual.rows_per_update, usual.max_completion_length)
    yield now
    turn = 0
    while True:
        shorter = tokens and now.tokens // 2 >= LEAST_TOKENS
        fewer = rows and now.rows % 2 == 0 and now.rows // 2 >= LEAST_ROWS
        if not (shorter or fewer):
            break
        if shorter and (turn % 2 == 0 or not fewer):
            now = replace(now, tokens=now.tokens // 2)
        else:
            now = replace(now, rows=now.rows // 2)
        turn += 1
        yield now
    for count in layers:
        yield replace(now, layers=count)


def choose(workloads: Iterator[Workload], pace_of: Callable[[Workload], Pace], budget_s: float) -> ChosenWorkload:
    """The first workload of which the budget holds ``TRIALS`` trials; the last one if it holds so many of none.

    Args:
        workloads: as ``ladder`` gives them.
        pace_of: predicts; called for each workload that is looked at.
        budget_s: wall seconds.
    """
    usual = workload = next(workloads)
    usual_pace = pace = pace_of(usual)
    while pace.study_s() > budget_s and (smaller := next(workloads, None)) is not None:
        workload, pace = smaller, pace_of(smaller)
    return ChosenWorkload(workload, pace, usual, usual_pace)


def chosen_words(found: ChosenWorkload, budget_s: float, layers: int = 0) -> str:
    """The chosen size and its reason, in one line; ``layers`` are those of the whole model."""
    usual = "the default" if found.workload == found.usual else "chosen because the default is too large"
    pace, count = found.pace, found.pace.trials(budget_s)
    said = f"{found.workload.words(layers)} ({usual}): a cycle takes about {format_duration(pace.cycle_s)} here now"
    if found.workload != found.usual:
        said += f", of the default about {format_duration(found.usual_pace.cycle_s)}"
    held = f"{said}, so {format_duration(budget_s)} hold about {_trials(count)}"
    return held if pace.study_s() <= budget_s else f"{held}; {_needed(pace)}"


def too_small_words(pace: Pace, budget_s: float) -> str:
    """A warning where a workload that the user chose leaves room for fewer trials; empty where it does not."""
    if pace.study_s() <= budget_s:
        return ""
    return (
        f"a cycle of this workload takes about {format_duration(pace.cycle_s)} here now, so "
        f"{format_duration(budget_s)} hold about {_trials(pace.trials(budget_s))}; {_needed(pace)}"
    )


def _needed(pace: Pace) -> str:
    return f"{TRIALS} trials need a budget of about {format_duration(math.ceil(pace.study_s() / 60.0) * 60.0)}"


def _trials(count: int) -> str:
    return "no whole trial" if count == 0 else counted(count, "trial")

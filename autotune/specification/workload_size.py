"""Chooses an open workload size by the budget, and again if its forecast was wrong. Pure.

On a slow machine a study with too large a workload ends with one unfinished trial. The defaults are therefore reduced
until the budget allows ``TRIALS`` trials and the confirmation of the best, by the predicted seconds of a cycle at the
machine's present speed. See docs/decisions/0041-workload-that-fits-the-budget.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.domain import CycleKind, Protocol, Trial
from autotune.proposals.times.starts import WARM_UP
from autotune.specification.request import Size
from autotune.statistics.early_stopping import LOOKS
from autotune.statistics.lengths import NATURAL_CYCLES
from autotune.wording.numbers import counted, format_duration, percent

TRIALS = 6
"""Least number of trials that a budget should hold: the baseline and five of the search."""
LEAST = Size(rows_per_update=4, max_completion_length=8)
"""Smallest size; shorter completions leave nothing of a generation to measure."""
CONFIRMATION_EXTRAS = 2
"""Cycles of the leader's confirmation besides the recorded ones: one at natural lengths, one at the maximum."""
FEWEST: Mapping[str, Any] = {"natural": 1, "recorded": 2}
"""Cycles of a trial if no smaller workload fits the budget."""
WRONG, LATE = 1.3, 4.0
"""Ratio of a cycle's time to its forecast above which the plan is revised, and of a start's time, above which it is
revised before the first cycle ends."""


@dataclass(frozen=True)
class Workload:
    """A size of the workload."""

    rows: int
    """Rows per update."""
    tokens: int
    """Longest completion in tokens."""
    layers: int | None = None
    """Number of the bundled model's first layers; ``None``: the whole model."""

    def words(self, of_layers: int = 0) -> str:
        """Returns the size in words, such as ``4 rows per update, completions of at most 16 tokens``."""
        model = "" if self.layers is None else f", the first {self.layers} of the model's {of_layers} layers"
        return f"{self.rows} rows per update, completions of at most {self.tokens} tokens{model}"


@dataclass(frozen=True)
class Pace:
    """Predicted seconds of the baseline with one workload, and the cycles of a trial."""

    start_s: float
    """Seconds from a trial's start to its first timed cycle, the warm-up included."""
    cycle_s: float
    natural: int = NATURAL_CYCLES
    """Natural cycles of the first trial, which also records the lengths."""
    recorded: int = LOOKS[0]
    reward_s: float = 0.0
    """Seconds of the reward in a cycle, by its trial run."""

    def trial_s(self, further: int = 0) -> float:
        """Returns the seconds of a trial with ``further`` cycles besides the recorded ones."""
        return self.start_s + (self.recorded + further) * self.cycle_s

    def study_s(self, trials: int = TRIALS) -> float:
        """Returns the seconds of ``trials`` trials with the baseline, and a confirmation of leader and baseline."""
        search_s = (trials - 1) * self.trial_s()
        return self.trial_s(self.natural) + search_s + self.trial_s(CONFIRMATION_EXTRAS) + self.trial_s()

    def trials(self, budget_s: float) -> int:
        """Returns how many trials fit the budget besides the confirmation; 0 if not even the baseline does."""
        further = math.floor((budget_s - self.study_s(1)) / self.trial_s())
        return 0 if budget_s < self.trial_s(self.natural) else 1 + max(0, further)

    def slowed(self, times: float, began_s: float) -> Pace:
        """Returns the pace if a cycle takes ``times`` as long, and a trial ``began_s`` seconds until its warm-up."""
        return replace(self, start_s=began_s + WARM_UP * times * self.cycle_s, cycle_s=times * self.cycle_s)


Step = tuple[Workload, Pace]


@dataclass(frozen=True)
class Plan:
    """The workload and the cycles of a study by a forecast, and the smaller workloads that are possible instead."""

    steps: tuple[Step, ...]
    """The chosen workload, then smaller ones in descending order."""
    usual: Step
    """The default workload for this kind of machine, and its pace."""
    budget_s: float
    layers: int = 0
    """Number of layers of the whole model."""
    protocol: Protocol = field(default_factory=Protocol)
    reason: str = ""
    """Reason why an earlier forecast was wrong; empty without one."""

    @property
    def workload(self) -> Workload:
        return self.steps[0][0]

    @property
    def pace(self) -> Pace:
        return self.steps[0][1]

    @property
    def holds(self) -> bool:
        """True if the budget allows ``TRIALS`` trials."""
        return self.pace.study_s() <= self.budget_s

    def after(self, trial: Trial, elapsed_s: float, left_s: float) -> Plan | None:
        """Returns the plan after the baseline's first cycle, or by the time until now; ``None`` if the forecast holds.

        Arguments as in ``corrected``.
        """
        pace = self.pace
        cycles = [c for c in trial.cycles if c.rank == 0]
        timed = [c.seconds for c in cycles if c.cycle_kind is not CycleKind.WARMUP]
        if cycles:
            times = min(timed) / pace.cycle_s if timed else cycles[-1].seconds / (WARM_UP * pace.cycle_s)
            began_s = elapsed_s - sum(c.seconds for c in cycles)
            is_wrong = times > WRONG and len(timed) in ((0, 1) if _is_plain(trial) else (2,))
            reason = f"the first cycle took {times:.1f} times its forecast"
        else:
            times, began_s = 2.0 * elapsed_s / pace.start_s, pace.start_s - WARM_UP * pace.cycle_s
            is_wrong = times > 2.0 * LATE and len(self.steps) > 1
            reason = f"the first cycle has not ended after {LATE:.0f} times its forecast"
        if not is_wrong:
            return None
        return replace(self.corrected(times, max(0.0, began_s), elapsed_s, left_s), reason=reason)

    def corrected(self, times: float, began_s: float, elapsed_s: float, left_s: float) -> Plan:
        """Returns the plan if cycles take ``times`` as long: this plan at the new pace, or a better plan (``differs``).

        The first smaller workload that allows ``TRIALS`` trials in the remaining time is chosen, without repeats. If
        none does, the smallest is chosen with the fewest cycles, provided that ``TRIALS`` trials then end earlier.

        Args:
            began_s: seconds from the trial's start to its warm-up.
            elapsed_s: seconds of the trial so far, which are lost if another plan is chosen.
            left_s: seconds of the budget from now on.
        """
        steps = tuple((one, pace.slowed(times, began_s)) for one, pace in self.steps)
        same = replace(self, steps=steps, budget_s=elapsed_s + left_s)
        if same.holds:
            return same
        smaller = replace(same, budget_s=left_s, protocol=replace(self.protocol, max_repeats=0))
        first = next((n for n, (_, pace) in enumerate(steps) if n and pace.study_s() <= left_s), 0)
        if first:
            return replace(smaller, steps=steps[first:])
        last = (steps[-1][0], replace(steps[-1][1], **FEWEST))
        fewest = replace(smaller, steps=(last,), protocol=replace(smaller.protocol, **FEWEST))
        return fewest if fewest.pace.study_s() < same.pace.study_s() - elapsed_s else same

    def differs(self, other: Plan) -> bool:
        """Tells whether the baseline must restart if this plan replaces ``other``."""
        return (self.workload, self.protocol) != (other.workload, other.protocol)

    def words(self) -> str:
        """Returns the chosen size and its reason, in one line."""
        chosen, usual = self.steps[0], self.usual
        why = "the default" if chosen == usual else "chosen because the default is too large"
        default = "" if chosen == usual else f", of the default about {format_duration(usual[1].cycle_s)}"
        return f"{self.workload.words(self.layers)} ({why}): a cycle {self._takes} here now{default}, {self._so}"

    def too_small_words(self) -> str:
        """Returns a warning if a workload that the user chose leaves room for fewer trials, else an empty text."""
        return "" if self.holds else f"a cycle of this workload {self._takes} here now, {self._so}"

    def correction_words(self, before: Plan) -> str:
        """Returns a sentence on why ``before`` was wrong and on the new plan; empty if the plan is still valid."""
        if not self.differs(before):
            return "" if self.holds or before.reason else f"{self.reason}: a cycle {self._takes}, {self._so}"
        size = "" if self.workload == before.workload else f"{self.workload.words(self.layers)}, "
        few = f"{self.protocol.recorded} timed cycles a trial, " if self.pace.recorded < before.pace.recorded else ""
        again = f"the baseline begins again with {size}{few}no repeats, and what it measured is dropped"
        return f"{self.reason}: {again}; a cycle {self._takes} now, {self._so}"

    @property
    def _takes(self) -> str:
        share = self.pace.reward_s / self.pace.cycle_s
        reward = f" ({percent(share)} of it the reward)" if share > 1 / 2 else ""
        return f"takes about {format_duration(self.pace.cycle_s)}{reward}"

    @property
    def _so(self) -> str:
        count = self.pace.trials(self.budget_s)
        trials = counted(count, "trial") if count else "no whole trial"
        enough = format_duration(math.ceil(self.pace.study_s() / 60.0) * 60.0)
        more = "" if self.holds else f"; {TRIALS} trials need a budget of about {enough}"
        return f"so {format_duration(self.budget_s)} hold about {trials}{more}"


def _is_plain(trial: Trial) -> bool:
    """Tells whether a first cycle has little one-time work, so that the warm-up shows a cycle's seconds."""
    engine, compiles = trial.configuration.get("rollout_engine"), trial.configuration.get("torch_compile")
    return engine == "transformers" and not compiles and not trial.on_gpu


def ladder(usual: Size, *, rows: bool, tokens: bool, layers: Sequence[int] = ()) -> Iterator[Workload]:
    """Yields the usual workload and smaller ones: shorter completions or fewer rows, finally fewer layers.

    Args:
        rows: true if the rows may change; ``tokens``: the completions.
        layers: smaller numbers of layers that the model can be cut to, descending.
    """
    now = Workload(usual.rows_per_update, usual.max_completion_length)
    while True:
        yield now
        fewer = now.rows // (2 * LEAST.rows_per_update) if rows and now.rows % 2 == 0 else 0
        shorter = now.tokens // (2 * LEAST.max_completion_length) if tokens else 0
        if not (fewer or shorter):
            break
        now = replace(now, tokens=now.tokens // 2) if shorter > fewer else replace(now, rows=now.rows // 2)
    yield from (replace(now, layers=count) for count in layers)


def choose(steps: Sequence[Step], budget_s: float, layers: int = 0) -> Plan:
    """Returns the plan of the first workload for which the budget holds ``TRIALS`` trials, or else of the last one.

    Args:
        steps: workloads in descending size, at least one.
        budget_s: wall seconds.
        layers: number of layers of the whole model.
    """
    places = (place for place, (_, pace) in enumerate(steps) if pace.study_s() <= budget_s)
    return Plan(tuple(steps[next(places, len(steps) - 1) :]), steps[0], budget_s, layers)

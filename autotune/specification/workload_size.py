"""Chooses the workload's size by the budget, where the user chose none, and anew when its forecast was wrong; pure.

A study on a slow machine that begins with too large a workload ends with one unfinished trial. So the defaults are
made smaller until the budget holds ``TRIALS`` trials and the confirmation of the best, by the predicted seconds of a
cycle at the machine's present speed. See docs/decisions/0041-workload-that-fits-the-budget.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from autotune.domain import CycleKind, Protocol, Trial
from autotune.proposals.times.observed import WARM_UP
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
FEWEST = {"natural": 1, "recorded": 2}
"""Cycles of a trial where nothing else makes room."""
WRONG = 2.0
"""Times its forecast that a cycle takes before the plan is made anew ..."""
LATE = 4.0
"""... and that a start takes before its end is not waited for; it is then taken for half done."""


@dataclass(frozen=True)
class Workload:
    """A size that can be chosen."""

    rows: int
    """Rows per update."""
    tokens: int
    """Longest completion."""
    layers: int | None = None
    """Of the bundled model, its first so many; ``None``: the whole model."""

    def words(self, of_layers: int = 0) -> str:
        """``4 rows per update, completions of at most 16 tokens``."""
        model = "" if self.layers is None else f", the first {self.layers} of the model's {of_layers} layers"
        return f"{self.rows} rows per update, completions of at most {self.tokens} tokens{model}"


@dataclass(frozen=True)
class Pace:
    """Predicted seconds of the baseline with one workload, and the cycles of a trial."""

    start_s: float
    """From a trial's start to its first timed cycle, the warm-up included."""
    cycle_s: float
    natural: int = NATURAL_CYCLES
    """Of the first trial, which also records the lengths."""
    recorded: int = LOOKS[0]

    def trial_s(self, beside: int = 0) -> float:
        """Seconds of a trial with so many cycles beside the recorded ones."""
        return self.start_s + (self.recorded + beside) * self.cycle_s

    @property
    def confirmation_s(self) -> float:
        """Seconds of one confirmation round: the leader and the baseline."""
        return self.trial_s(CONFIRMATION_EXTRAS) + self.trial_s()

    def study_s(self) -> float:
        """Seconds of a study with ``TRIALS`` trials (the baseline included) and one confirmation round."""
        return self.trial_s(self.natural) + (TRIALS - 1) * self.trial_s() + self.confirmation_s

    def trials(self, budget_s: float) -> int:
        """Number of trials that fit the budget besides the confirmation; 0 if not even the baseline does."""
        left = budget_s - self.trial_s(self.natural)
        return 0 if left < 0 else 1 + max(0, math.floor((left - self.confirmation_s) / self.trial_s()))

    def slowed(self, times: float, began_s: float) -> Pace:
        """The same where a cycle takes ``times`` as long and a trial takes ``began_s`` to its warm-up."""
        return replace(self, start_s=began_s + WARM_UP * times * self.cycle_s, cycle_s=times * self.cycle_s)


Step = tuple[Workload, Pace]


@dataclass(frozen=True)
class Plan:
    """The workload and the cycles that a forecast has chosen, and what could be chosen instead."""

    steps: tuple[Step, ...]
    """The chosen workload, then ever smaller ones."""
    usual: Step
    """The default for such a machine."""
    budget_s: float
    layers: int = 0
    """Of the whole model."""
    protocol: Protocol = field(default_factory=Protocol)
    shown: str = ""
    """What the first cycle has shown of an earlier forecast; empty: nothing."""

    @property
    def workload(self) -> Workload:
        return self.steps[0][0]

    @property
    def pace(self) -> Pace:
        return self.steps[0][1]

    @property
    def holds(self) -> bool:
        """Whether the budget holds ``TRIALS`` trials."""
        return self.pace.study_s() <= self.budget_s

    def after(self, trial: Trial, elapsed_s: float, left_s: float) -> Plan | None:
        """The plan by the first cycle of the baseline, or by how long it has taken so far.

        Returns:
            ``None`` while it says nothing else than the forecast. Arguments as of ``corrected``.
        """
        pace, plain = self.pace, _is_plain(trial)
        own = [c.seconds for c in trial.cycles if c.rank == 0]
        timed = [c.seconds for c in trial.cycles if c.rank == 0 and c.cycle_kind is not CycleKind.WARMUP]
        if own:
            times = min(timed) / pace.cycle_s if timed else own[-1] / (WARM_UP * pace.cycle_s)
            began_s = elapsed_s - sum(own)
            wrong = times > WRONG and len(timed) in ((0, 1) if plain else (2,))
            shown = f"the first cycle took {times:.1f} times its forecast"
        else:
            times, began_s = 2.0 * elapsed_s / pace.start_s, pace.start_s - WARM_UP * pace.cycle_s
            wrong = times > 2.0 * LATE and len(self.steps) > 1
            shown = f"the first cycle has not ended after {LATE:.0f} times its forecast"
        found = self.corrected(times, max(0.0, began_s), elapsed_s, left_s) if wrong else None
        return None if found is None else replace(found, shown=shown)

    def corrected(self, times: float, began_s: float, elapsed_s: float, left_s: float) -> Plan:
        """The plan where cycles take ``times`` as long; ``begins_anew`` says whether it is another one.

        The first smaller workload of which the time left holds ``TRIALS`` trials is chosen, without repeats. If it
        holds so many of none, the smallest, with the fewest cycles, provided that makes room for more trials.

        Args:
            began_s: seconds from the trial's start to its warm-up.
            elapsed_s: seconds of the trial so far, which are lost where another plan is chosen.
            left_s: seconds of the budget from now on.
        """
        steps = tuple((one, pace.slowed(times, began_s)) for one, pace in self.steps)
        found = replace(self, steps=steps, budget_s=elapsed_s + left_s)
        if found.holds:
            return found
        spare = replace(found, budget_s=left_s, protocol=replace(self.protocol, max_repeats=0))
        holding = next((n for n, (_, pace) in enumerate(steps) if n and pace.study_s() <= left_s), 0)
        if holding:
            return replace(spare, steps=steps[holding:])
        last = (steps[-1][0], replace(steps[-1][1], **FEWEST))
        spare = replace(spare, steps=(last,), protocol=replace(spare.protocol, **FEWEST))
        return spare if last[1].trials(left_s) > found.pace.trials(found.budget_s) else found

    def begins_anew(self, before: Plan) -> bool:
        """Whether it is another plan than ``before``, so that the baseline has to begin again."""
        return (self.workload, self.protocol) != (before.workload, before.protocol)

    def words(self) -> str:
        """The chosen size and its reason, in one line."""
        chosen, usual = self.steps[0], self.usual
        why = "the default" if chosen == usual else "chosen because the default is too large"
        default = "" if chosen == usual else f", of the default about {format_duration(usual[1].cycle_s)}"
        return f"{self.workload.words(self.layers)} ({why}): a cycle {self._takes} here now{default}, {self._so}"

    def too_small_words(self) -> str:
        """A warning where a workload that the user chose leaves room for fewer trials; empty where it does not."""
        return "" if self.holds else f"a cycle of this workload {self._takes} here now, {self._so}"

    def correction_words(self, before: Plan) -> str:
        """What the first cycle says of the plan ``before`` and what follows, in a sentence; empty: nothing new."""
        if not self.begins_anew(before):
            return "" if self.holds or before.shown else f"{self.shown}: a cycle {self._takes}, {self._so}"
        size = "" if self.workload == before.workload else f"{self.workload.words(self.layers)}, "
        few = f"{self.protocol.recorded} timed cycles a trial, " if self.pace.recorded < before.pace.recorded else ""
        again = f"the baseline begins again with {size}{few}no repeats, and what it measured is dropped"
        return f"{self.shown}: {again}; a cycle {self._takes} now, {self._so}"

    @property
    def _takes(self) -> str:
        return f"takes about {format_duration(self.pace.cycle_s)}"

    @property
    def _so(self) -> str:
        count = self.pace.trials(self.budget_s)
        held = f"{format_duration(self.budget_s)} hold about {counted(count, 'trial') if count else 'no whole trial'}"
        needed = format_duration(math.ceil(self.pace.study_s() / 60.0) * 60.0)
        return f"so {held}" if self.holds else f"so {held}; {TRIALS} trials need a budget of about {needed}"


def _is_plain(trial: Trial) -> bool:
    """Whether little is done once and for all by first cycles, so that the warm-up says how long one takes."""
    engine, compiles = trial.configuration.get("rollout_engine"), trial.configuration.get("torch_compile")
    return engine == "transformers" and not compiles and not trial.on_gpu


def ladder(usual: Size, *, rows: bool, tokens: bool, layers: Sequence[int] = ()) -> Iterator[Workload]:
    """The usual workload and ever smaller ones: shorter completions and fewer rows in turn, then fewer layers.

    Args:
        rows: the rows may be changed, ``tokens``: the completions.
        layers: smaller numbers of layers that the model can be cut to, descending.
    """
    now = Workload(usual.rows_per_update, usual.max_completion_length)
    while True:
        yield now
        fewer = now.rows // (2 * LEAST_ROWS) if rows and now.rows % 2 == 0 else 0
        shorter = now.tokens // (2 * LEAST_TOKENS) if tokens else 0
        if not (fewer or shorter):
            break
        now = replace(now, tokens=now.tokens // 2) if shorter > fewer else replace(now, rows=now.rows // 2)
    yield from (replace(now, layers=count) for count in layers)


def choose(steps: Sequence[Step], budget_s: float, layers: int = 0) -> Plan:
    """The first workload of which the budget holds ``TRIALS`` trials; the last one if it holds so many of none.

    Args:
        steps: ever smaller workloads, at least one.
        budget_s: wall seconds.
        layers: of the whole model.
    """
    holding = (place for place, (_, pace) in enumerate(steps) if pace.study_s() <= budget_s)
    return Plan(tuple(steps[next(holding, len(steps) - 1) :]), steps[0], budget_s, layers)

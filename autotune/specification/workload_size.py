"""Chooses the workload's size by the budget, where the user chose none, and anew where its forecast was wrong; pure.

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
WRONG = 2.0
"""Times the forecast that a cycle takes before the plan is made anew."""
FEWEST = Protocol(natural=1, recorded=2, max_repeats=0)
"""Cycles of a trial where nothing else makes room."""


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
    """Predicted seconds of the baseline with one workload, and the number of cycles of a trial."""

    start_s: float
    """From a trial's start to its first timed cycle, the warm-up included."""
    cycle_s: float
    natural: int = NATURAL_CYCLES
    """Of the first trial, which also records the lengths."""
    recorded: int = LOOKS[0]

    def trial_s(self, cycles: int) -> float:
        """Seconds of a trial with so many cycles after the warm-up."""
        return self.start_s + cycles * self.cycle_s

    @property
    def search_s(self) -> float:
        """Seconds of a search trial."""
        return self.trial_s(self.recorded)

    @property
    def baseline_s(self) -> float:
        """Seconds of the first trial."""
        return self.trial_s(self.natural + self.recorded)

    @property
    def confirmation_s(self) -> float:
        """Seconds of one confirmation round: the leader and the baseline."""
        return self.trial_s(self.recorded + CONFIRMATION_EXTRAS) + self.search_s

    def study_s(self) -> float:
        """Seconds of a study with ``TRIALS`` trials (the baseline included) and one confirmation round."""
        return self.baseline_s + (TRIALS - 1) * self.search_s + self.confirmation_s

    def trials(self, budget_s: float) -> int:
        """Number of trials that fit the budget besides the confirmation; 0 if not even the baseline does."""
        left = budget_s - self.baseline_s
        return 0 if left < 0 else 1 + max(0, math.floor((left - self.confirmation_s) / self.search_s))

    def slowed(self, times: float, began_s: float) -> Pace:
        """The same where a cycle takes ``times`` as long and a trial takes ``began_s`` to its warm-up."""
        cycle_s = times * self.cycle_s
        return replace(self, start_s=began_s + WARM_UP * cycle_s, cycle_s=cycle_s)


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
    times: float = 1.0
    """What the first cycle took, as a multiple of the forecast before."""

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
        """The plan by the first cycle of the baseline; ``None`` while it says nothing else than the forecast.

        Arguments as of ``corrected``.
        """
        own = [c for c in trial.cycles if c.rank == 0]
        timed = [c for c in own if c.cycle_kind is not CycleKind.WARMUP]
        if len(timed) > 1 or not (timed or _is_plain(trial)):
            return None
        times = own[-1].seconds / (self.pace.cycle_s * (1.0 if timed else WARM_UP))
        began_s = max(0.0, elapsed_s - sum(c.seconds for c in own))
        return self.corrected(times, began_s, elapsed_s, left_s) if times > WRONG else None

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
        found = replace(self, steps=steps, budget_s=elapsed_s + left_s, times=times)
        if found.holds:
            return found
        spare = replace(found, budget_s=left_s, protocol=replace(self.protocol, max_repeats=0))
        holding = next((n for n, (_, pace) in enumerate(steps) if n and pace.study_s() <= left_s), 0)
        if holding:
            return replace(spare, steps=steps[holding:])
        fewest = {"natural": FEWEST.natural, "recorded": FEWEST.recorded}
        last = (steps[-1][0], replace(steps[-1][1], **fewest))
        spare = replace(spare, steps=(last,), protocol=replace(spare.protocol, **fewest))
        return spare if last[1].trials(left_s) > found.pace.trials(found.budget_s) else found

    def begins_anew(self, before: Plan) -> bool:
        """Whether it is another plan than ``before``, so that the baseline has to begin again."""
        return (self.workload, self.protocol) != (before.workload, before.protocol)

    def words(self) -> str:
        """The chosen size and its reason, in one line."""
        chosen, usual = self.steps[0], self.usual
        why = "the default" if chosen == usual else "chosen because the default is too large"
        default = "" if chosen == usual else f", of the default about {format_duration(usual[1].cycle_s)}"
        return f"{self.workload.words(self.layers)} ({why}): a cycle takes about {self._cycle} here now{default}, {self._so}"

    def too_small_words(self) -> str:
        """A warning where a workload that the user chose leaves room for fewer trials; empty where it does not."""
        return "" if self.holds else f"a cycle of this workload takes about {self._cycle} here now, {self._so}"

    def correction_words(self, before: Plan) -> str:
        """What the first cycle says of the plan ``before`` and what follows, in a sentence; empty: nothing does."""
        wrong = f"the first cycle took {self.times:.1f} times its forecast"
        if not self.begins_anew(before):
            return "" if self.holds else f"{wrong}: a cycle takes about {self._cycle}, {self._so}"
        size = "" if self.workload == before.workload else f"{self.workload.words(self.layers)}, "
        few = f"{self.protocol.recorded} timed cycles a trial, " if self.pace.recorded < before.pace.recorded else ""
        again = f"the baseline begins again with {size}{few}no repeats, and what it measured is dropped"
        return f"{wrong}: {again}; a cycle takes about {self._cycle} now, {self._so}"

    @property
    def _cycle(self) -> str:
        return format_duration(self.pace.cycle_s)

    @property
    def _so(self) -> str:
        count = self.pace.trials(self.budget_s)
        held = f"{format_duration(self.budget_s)} hold about {counted(count, 'trial') if count else 'no whole trial'}"
        needed = format_duration(math.ceil(self.pace.study_s() / 60.0) * 60.0)
        return f"so {held}" if self.holds else f"so {held}; {TRIALS} trials need a budget of about {needed}"


def _is_plain(trial: Trial) -> bool:
    """Whether a warm-up costs little once and for all, so that it says how long a cycle takes."""
    engine, compiles = trial.configuration.get("rollout_engine"), trial.configuration.get("torch_compile")
    return engine == "transformers" and not compiles and not trial.on_gpu


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


def choose(steps: Sequence[Step], budget_s: float, layers: int = 0) -> Plan:
    """The first workload of which the budget holds ``TRIALS`` trials; the last one if it holds so many of none.

    Args:
        steps: ever smaller workloads, at least one.
        budget_s: wall seconds.
        layers: of the whole model.
    """
    holding = (place for place, (_, pace) in enumerate(steps) if pace.study_s() <= budget_s)
    return Plan(tuple(steps[next(holding, len(steps) - 1) :]), steps[0], budget_s, layers)

"""Compares an exported command's tokens/hour, read from the framework's log, with the study's stated figure. Pure.

The observed side uses no measurement of the tuner: times are those at which TRL's log lines arrive, and lengths are
those in the lines.
"""

from __future__ import annotations

import ast
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autotune.domain import Configuration, Phase, Study, Trial
from autotune.domain.measures import phase_seconds
from autotune.statistics.distributions import t95
from search_spaces.batch import data_ranks, training_gpus

TOLERANCE = 0.05
"""Largest difference of observed and expected tokens/hour that agrees, as a share."""
TAKEN = 0.05
"""Share of the machine's CPU, taken by other programs, above which a cycle is disturbed, as in a trial."""

_MEAN, _LONGEST, _TOKENS = "completions/mean_length", "completions/max_length", "num_tokens"


@dataclass(frozen=True)
class LoggedUpdate:
    """An optimizer update as logged by TRL. Lengths are in tokens, ``None`` if it reuses earlier completions."""

    at: float
    """Arrival of the line, in seconds of a monotonic clock."""
    mean_length: float | None
    longest: float | None
    """Longest completion of a generation, averaged over the update's generations."""
    tokens: float | None = None
    """Prompt and completion tokens generated since training began."""
    others_s: float | None = None
    """Seconds of CPU that other programs took, as ``OutputLine.others_s``."""


@dataclass(frozen=True)
class CycleShape:
    """Rows of one cycle, from one generation to the next."""

    rows: int
    """Completions generated in a cycle, over all ranks."""
    trained_rows: int
    """Completions that the cycle's updates train on; more than ``rows`` if each serves several updates."""
    updates: int
    generation_rows: int
    """Completions of one generation, over all ranks."""
    ranks: int = 1


@dataclass(frozen=True)
class ObservedCycle:
    """One measured whole cycle."""

    seconds: float
    tokens: float
    """Completion tokens, each counted once."""
    length: float
    """Mean completion length."""
    longest: float
    taken: float | None = None
    """Share of the machine's CPU that other processes took during the cycle; ``None`` if not known."""

    @property
    def disturbed(self) -> bool:
        return is_disturbed(self.taken)


@dataclass(frozen=True)
class ObservedRun:
    """Measured complete cycles of a run, without the warm-up."""

    cycles: tuple[ObservedCycle, ...]
    prompt: float | None = None
    """Mean prompt length in tokens; ``None`` if TRL did not log its tokens."""

    @property
    def mean_length(self) -> float:
        return statistics.fmean(cycle.length for cycle in self.cycles)

    @property
    def longest(self) -> float:
        return statistics.fmean(cycle.longest for cycle in self.cycles)

    @property
    def disturbed(self) -> int:
        """Number of cycles that other programs disturbed."""
        return sum(cycle.disturbed for cycle in self.cycles)

    @property
    def drowned(self) -> bool:
        """True if most cycles were disturbed."""
        return 2 * self.disturbed > len(self.cycles)

    @property
    def counted(self) -> ObservedRun:
        """Run of the undisturbed cycles; of all cycles if most were disturbed."""
        return self if self.drowned else replace(self, cycles=tuple(c for c in self.cycles if not c.disturbed))

    @property
    def tokens_per_hour(self) -> float:
        return 3600.0 * sum(cycle.tokens for cycle in self.cycles) / sum(cycle.seconds for cycle in self.cycles)

    @property
    def logs(self) -> list[float]:
        """Logarithm of each cycle's tokens/hour."""
        return [math.log(3600.0 * c.tokens / c.seconds) for c in self.cycles if c.tokens > 0 and c.seconds > 0]


def is_disturbed(taken: float | None) -> bool:
    """Tells whether other programs took more than ``TAKEN`` of the CPU; False if not known."""
    return taken is not None and taken > TAKEN


@dataclass(frozen=True)
class StatedFigure:
    """The study's stated figure and the lengths it was measured at."""

    tokens_per_hour: float
    mean_length: float
    """Mean completion length in tokens."""
    longest: float
    """Mean of the longest completion of a generation, in tokens."""
    prompt: float
    """Mean prompt length in tokens."""
    width: float
    """Mean prompt and completion tokens of a row of the update, padding included."""
    shares: dict[str, float]
    """Share of cycle time by phase."""


@dataclass(frozen=True)
class RunVerdict:
    """Result of comparing observed with stated tokens/hour."""

    observed: ObservedRun
    """The counted cycles."""
    stated: StatedFigure
    expected: float
    """Stated tokens/hour, converted to the observed lengths."""
    updates: int
    disturbed: int = 0
    """Number of cycles that other programs disturbed."""
    drowned: bool = False
    """True if most cycles were disturbed; ``observed`` then includes those."""
    half_width: float = 0.0
    """Half the width of the 95 % interval of the logarithm of ``ratio``; 0 if unknown."""

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of the observed tokens/hour, from the spread of its cycles."""
        logs = self.observed.logs
        wide = t95(len(logs) - 1) * statistics.stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else 0.0
        return self.observed.tokens_per_hour * math.exp(-wide), self.observed.tokens_per_hour * math.exp(wide)

    @property
    def ratio(self) -> float:
        """Observed ÷ expected tokens/hour."""
        return self.observed.tokens_per_hour / self.expected

    @property
    def agrees(self) -> bool:
        """True if observed and expected differ by at most ``TOLERANCE``."""
        return abs(self.ratio - 1.0) <= TOLERANCE

    @property
    def ratio_low(self) -> float:
        """Lower end of the 95 % interval of ``ratio``."""
        return self.ratio * math.exp(-self.half_width)

    @property
    def ratio_high(self) -> float:
        """Upper end of the 95 % interval of ``ratio``."""
        return self.ratio * math.exp(self.half_width)

    @property
    def undecided(self) -> bool:
        """True if the difference may be due to chance between processes, or if most cycles were disturbed."""
        by_chance = self.ratio_low <= 1.0 + TOLERANCE and self.ratio_high >= 1.0 - TOLERANCE
        return not self.agrees and (by_chance or self.drowned)

    @property
    def answer(self) -> str:
        """The verdict in words."""
        if self.agrees:
            return "within 5 %"
        if not self.undecided:
            return "not within 5 %"
        if self.drowned:
            return f"not decided: other programs disturbed {self.disturbed} of {len(self.observed.cycles)} cycles"
        return "not decided: processes of one configuration may differ by as much; more rounds decide it"


def read_step(text: str, at: float, others_s: float | None = None) -> LoggedUpdate | None:
    """Parses one line of TRL's log; ``None`` if it is not the line of an update."""
    start, end = text.find("{'"), text.rfind("}")
    if start < 0 or end < start or "'loss'" not in text:
        return None
    try:
        said = ast.literal_eval(text[start : end + 1])
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    if not isinstance(said, dict) or "loss" not in said:
        return None
    mean, longest, tokens = (_number(said.get(name)) for name in (_MEAN, _LONGEST, _TOKENS))
    return LoggedUpdate(at, mean, longest, tokens, others_s)


def _number(value: object) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def shape_of(study: Study, configuration: Configuration) -> CycleShape:
    """Returns the rows of a cycle under ``configuration``; with ``num_iterations`` each row serves several updates."""
    spec = study.spec
    processes, ranks = training_gpus(configuration, spec.resources), data_ranks(configuration, spec.resources)
    micro = int(configuration.get("micro_batch_size", 1))
    accumulation = int(
        configuration.get("gradient_accumulation_steps", max(1, spec.workload.rows_per_update // (micro * ranks)))
    )
    steps = int(configuration.get("steps_per_generation", accumulation))
    iterations = int(spec.workload.passthrough.get("num_iterations") or 1)
    updates = math.lcm(steps * iterations, accumulation) // accumulation
    generations = updates * accumulation // (steps * iterations)
    trained = ranks * micro * accumulation * updates
    return CycleShape(ranks * micro * steps * generations, trained, updates, ranks * micro * steps, processes)


def observe(steps: Sequence[LoggedUpdate], shape: CycleShape, warming: int = 1) -> ObservedRun | None:
    """Returns the complete cycles in the logged updates of a run after the first ``warming``; ``None`` without any."""
    found = []
    for first in range(warming * shape.updates, len(steps) - shape.updates + 1, shape.updates):
        cycle = steps[first : first + shape.updates]
        lengths = [step.mean_length for step in cycle if step.mean_length is not None]
        widest = [step.longest for step in cycle if step.longest is not None]
        if not lengths or not widest:
            continue
        before, after = steps[first - 1], cycle[-1]
        seconds, mean = after.at - before.at, statistics.fmean(lengths)
        others = None if after.others_s is None or before.others_s is None else after.others_s - before.others_s
        taken = None if others is None or seconds <= 0 else max(0.0, others) / seconds
        found.append(ObservedCycle(seconds, shape.rows * mean, mean, statistics.fmean(widest), taken))
    if sum(cycle.seconds for cycle in found) <= 0:
        return None
    tokens = sum(cycle.tokens for cycle in found)
    return ObservedRun(tuple(found), _prompt(steps[(warming - 1) * shape.updates :], shape, tokens, len(found)))


def _prompt(steps: Sequence[LoggedUpdate], shape: CycleShape, completion_tokens: float, cycles: int) -> float | None:
    """Returns the mean prompt length: tokens generated since the first cycle, minus the completions, per row."""
    tokens = [step.tokens for step in steps[:: shape.updates] if step.tokens is not None]
    if len(tokens) <= cycles:
        return None
    return max(0.0, (tokens[cycles] - tokens[0] - completion_tokens) / (shape.rows * cycles))


def together(runs: Sequence[ObservedRun]) -> ObservedRun:
    """Combines several runs into one."""
    prompts = [run.prompt for run in runs for _ in run.cycles]
    known = [prompt for prompt in prompts if prompt is not None]
    cycles = tuple(cycle for run in runs for cycle in run.cycles)
    return ObservedRun(cycles, statistics.fmean(known) if len(known) == len(prompts) else None)


def stated_by(trials: Sequence[Trial], tokens_per_hour: float, shape: CycleShape) -> StatedFigure | None:
    """Returns the stated figure with the lengths of the trials' speed cycles; ``None`` without such cycles."""
    cycles = [c for t in trials for c in t.speed_cycles()]
    lengths = [n for c in cycles for n in c.lengths]
    if not lengths:
        return None
    spent = phase_seconds(cycles)
    total = sum(spent.values())
    return StatedFigure(
        tokens_per_hour,
        statistics.fmean(lengths),
        statistics.fmean([m for c in cycles for m in longest_rows(c.lengths, shape)]),
        sum(c.prompt_tokens for c in cycles) / sum(c.rows for c in cycles),
        sum(c.computed_tokens for c in cycles) / (len(cycles) * shape.trained_rows),
        {phase: seconds / total for phase, seconds in spent.items()},
    )


def longest_rows(lengths: Sequence[int], shape: CycleShape) -> list[int]:
    """Returns the longest completion of each generation; ``lengths`` are by rank, then in order of generation."""
    each, share = len(lengths) // shape.ranks, shape.generation_rows // shape.ranks
    found = []
    for start in range(0, each, max(1, share)):
        rows = [n for r in range(shape.ranks) for n in lengths[r * each + start : r * each + start + share]]
        found.append(max(rows))
    return found


def judge(run: ObservedRun, stated: StatedFigure, shape: CycleShape, half_width: float = 0.0) -> RunVerdict:
    """Compares a run with the stated figure; ``half_width`` is half the 95 % interval of the log ratio.

    Tokens/hour depends on completion lengths, so the stated figure S is converted to the observed lengths. With L the
    mean completion length, M the longest completion of a generation, P the mean prompt length, W the width of a row in
    the update (prompt and completion with padding), ``s`` and ``o`` for stated and observed, and p the stated share of
    cycle time of a phase:

        cycle time grows by    f = p_generate · M_o/M_s
                                   + (p_logprob + p_update) · (W_s + M_o - M_s + P_o - P_s)/W_s
                                   + p of all other phases
        expected tokens/hour   E = S · (L_o/L_s) / f
        ratio                    = observed tokens/hour / E

    because generation runs until its longest completion ends, and the other passes work on rows padded to it.
    """
    observed, shares = run.counted, stated.shares
    generate = shares.get(Phase.GENERATE.value, 0.0)
    passes = shares.get(Phase.LOGPROB.value, 0.0) + shares.get(Phase.UPDATE.value, 0.0)
    prompts = 0.0 if observed.prompt is None else observed.prompt - stated.prompt
    wider = max(0.0, stated.width + observed.longest - stated.longest + prompts) / stated.width
    growth = generate * observed.longest / stated.longest + passes * wider + (1.0 - generate - passes)
    expected = stated.tokens_per_hour * observed.mean_length / stated.mean_length / growth
    updates = len(observed.cycles) * shape.updates
    return RunVerdict(observed, stated, expected, updates, run.disturbed, run.drowned, half_width)

"""Compares two exported configurations by the framework's own log: both run alternately, without the tuner's meter.

The log gives the time of each step and the lengths of completions. The CPU use of other programs is measured from
outside; disturbed steps are ignored, and a run of mostly disturbed steps is repeated.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import Gain
from autotune.verify.compare_run import TAKEN, ObservedRun, is_disturbed
from autotune.verify.exported_run import Rehearsal
from autotune.wording.numbers import percent, rate, signed_percent
from autotune.wording.sentences import gain_words

BASELINE, ANSWER = "baseline", "answer"
ATTEMPTS = 3
"""Most attempts at a turn while most of its steps are disturbed."""
WARMING = 2
"""Cycles at the start of a run that are not counted."""


@dataclass(frozen=True)
class Step:
    """One update of one run; updates that share completions have their mean."""

    run: str
    """``BASELINE`` or ``ANSWER``."""
    round: int
    step_seconds: float
    tokens: float
    """Completion tokens of the update."""
    outside_cpu: float | None = None
    """Share of the machine's CPU that other programs took during the step; ``None`` if not known."""

    @property
    def clean(self) -> bool:
        return not is_disturbed(self.outside_cpu)


@dataclass(frozen=True)
class Side:
    """Figures of one configuration over all its counted steps."""

    tokens_per_hour: float
    seconds: float
    """Median seconds of a step."""


@dataclass(frozen=True)
class TurnsVerdict:
    """Comparison of the recommended configuration with the baseline."""

    baseline: Side
    answer: Side
    rounds: tuple[float, ...]
    """Speed of a step of the answer divided by the baseline's, by the medians of each round."""
    disturbed: bool = False
    """True if other programs disturbed every round, so that all steps are counted and nothing is decided."""

    @property
    def by_tokens(self) -> float:
        """Ratio of tokens/hour, recommended configuration to baseline."""
        return self.answer.tokens_per_hour / self.baseline.tokens_per_hour

    @property
    def by_seconds(self) -> float:
        """Ratio of the speed of a step in the median round; random differences of lengths hardly affect it."""
        return statistics.median(self.rounds)


def order(rounds: int) -> list[tuple[int, str]]:
    """Returns (round, run) in order of execution; every second round is reversed, to cancel a drift of the machine."""
    pair = (BASELINE, ANSWER)
    return [(number, run) for number in range(1, rounds + 1) for run in (pair if number % 2 else pair[::-1])]


def compare(steps: Sequence[Step]) -> TurnsVerdict:
    """Compares the undisturbed steps of both runs. If no round has both, compares all steps and decides nothing."""
    clean = [step for step in steps if step.clean]
    rounds = _rounds(clean)
    baseline, answer = (_side(clean if rounds else steps, run) for run in (BASELINE, ANSWER))
    return TurnsVerdict(baseline, answer, rounds or _rounds(steps), disturbed=not rounds)


def interval_holds(verdict: TurnsVerdict, gain: Gain | None) -> bool | None:
    """Tells whether the stated interval contains the ratio of tokens/hour; ``None`` if undecided."""
    return None if verdict.disturbed or gain is None else gain.low <= verdict.by_tokens - 1.0 <= gain.high


def turns_lines(steps: Sequence[Step], verdict: TurnsVerdict, gain: Gain | None) -> list[str]:
    """Returns the figures of both exports, one line each; the last line states whether the stated gain is confirmed."""
    taken = f"other programs took more than {percent(TAKEN)} of the CPU"
    lines = [f"steps     {len(steps)}; in {sum(not step.clean for step in steps)} of them {taken}"]
    for name, side in ((BASELINE, verdict.baseline), (ANSWER, verdict.answer)):
        lines.append(f"{name:<10}{rate(side.tokens_per_hour)} tokens/hour, {side.seconds:.3g} s a step")
    rounds = ", ".join(f"{one:.2f}" for one in verdict.rounds)
    lines.append(
        f"ratio     {verdict.by_tokens:.2f} times the tokens/hour; a step is {verdict.by_seconds:.2f} times as fast "
        f"(by round {rounds})"
    )
    if verdict.disturbed or gain is None:
        why = "other programs disturbed every round" if verdict.disturbed else "the study states no gain"
        return [*lines, f"not decided: {why}"]
    word = "holds" if interval_holds(verdict, gain) else "does NOT hold"
    shown = signed_percent(verdict.by_tokens - 1.0)
    return [*lines, f"stated {gain_words(gain)}, which {word} the {shown} that the framework itself shows"]


def _rounds(steps: Sequence[Step]) -> tuple[float, ...]:
    turns: dict[tuple[str, int], list[float]] = {}
    for step in steps:
        turns.setdefault((step.run, step.round), []).append(step.step_seconds)
    medians = {turn: statistics.median(seconds) for turn, seconds in turns.items()}
    both = sorted(number for run, number in medians if run == ANSWER and (BASELINE, number) in medians)
    return tuple(medians[BASELINE, number] / medians[ANSWER, number] for number in both)


def _side(steps: Sequence[Step], run: str) -> Side:
    own = [step for step in steps if step.run == run]
    seconds = [step.step_seconds for step in own]
    return Side(3600.0 * sum(step.tokens for step in own) / sum(seconds), statistics.median(seconds))


def take_turns(sides: Mapping[str, Rehearsal], rounds: int, say: Callable[[str], None]) -> list[Step]:
    """Runs both exports alternately; returns all steps except those of the warm-up.

    A round has its own prompts and random state, the same for both. Raises as ``Rehearsal.run`` does.
    """
    steps: list[Step] = []
    for number, run in order(rounds):
        side = sides[run]
        for attempt in range(1, ATTEMPTS + 1):
            say(f"round {number}, {run}{f', attempt {attempt}' if attempt > 1 else ''}")
            observed = side.run(number, warming=WARMING, seed=side.exported.wanted.seed + number - 1)
            turn = steps_of(observed, run, number, side.shape.updates)
            steps += turn
            if not observed.drowned:
                break
            say(f"other programs disturbed {observed.disturbed} of its {len(observed.cycles)} cycles")
    return steps


def steps_of(observed: ObservedRun, run: str, number: int, updates: int) -> list[Step]:
    """Returns the ``updates`` of each cycle of a run, each with the cycle's mean."""
    return [Step(run, number, c.seconds / updates, c.tokens / updates, c.taken) for c in observed.cycles]

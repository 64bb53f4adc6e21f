"""Formats the runs of ``verify`` as sentences, for the commands and the report."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Gain, Pool
from autotune.insights.growth import Growth
from autotune.verify.compare_run import TAKEN
from autotune.verify.in_turns import ANSWER, BASELINE, Step, TurnsVerdict, interval_holds
from autotune.verify.long_run import LongVerdict
from autotune.wording.numbers import format_size, rate, signed_percent
from autotune.wording.sentences import gain_words


def long_sentence(verdict: LongVerdict) -> str:
    """Returns the verdict on a long run in one sentence."""
    sure = "within 5 %" if verdict.agrees else f"NOT within 5 %: {verdict.reason}"
    return (
        f"verified over {verdict.updates} updates at natural lengths: {rate(verdict.measured)} tokens/hour where "
        f"{rate(verdict.predicted)} were predicted ({signed_percent(verdict.ratio - 1.0)}, {sure})"
    )


def long_lines(verdict: LongVerdict) -> list[str]:
    """Returns the verdict on a long run and its figures, one line each."""
    disturbed = f", {verdict.disturbed} of them disturbed" if verdict.disturbed else ""
    raw = signed_percent(verdict.raw / verdict.stated - 1.0)
    lines = [
        f"stated    {rate(verdict.stated)} tokens/hour at completions of {verdict.stated_length:.1f} tokens, the "
        f"longest {verdict.stated_longest:.1f}",
        f"          from {verdict.rests_on}",
        f"measured  {rate(verdict.measured)} tokens/hour at {verdict.observed_length:.1f} tokens, the longest "
        f"{verdict.observed_longest:.1f}",
        f"          {verdict.cycles} cycles, {verdict.updates} updates{disturbed}; {verdict.compared} compared",
        f"raw       {rate(verdict.raw)} tokens/hour over all cycles, {raw} of the stated",
        f"predicted {rate(verdict.predicted)} tokens/hour at the lengths observed",
        "",
        f"{'phase':<10}{'predicted':>11}{'measured':>11}{'difference':>12}",
    ]
    lines += [f"{g.phase:<10}{g.predicted:>9.2f} s{g.measured:>9.2f} s{g.excess:>+10.2f} s" for g in verdict.phases]
    ratio = f"{verdict.ratio:.3f} (95 % interval {verdict.low:.3f} to {verdict.high:.3f})"
    word = "within 5 %" if verdict.agrees else "not within 5 %"
    lines += [
        "",
        f"drift     {verdict.early:.3f} of the prediction in the first third, {verdict.late:.3f} in the last",
        f"verdict   {word}: measured / predicted = {ratio}",
    ]
    return lines if verdict.agrees else [*lines, f"reason    {verdict.reason}"]


def growth_lines(found: Sequence[Growth], updates_a_cycle: float) -> list[str]:
    """Tells whether memory rose over a long run, and after how many updates the limit would be reached."""
    said = []
    for one in found:
        name = "host" if one.pool is Pool.HOST else "device"
        interval = f"{_step(one.low)} to {_step(one.high)}"
        rise = f"{_step(one.slope)} a cycle (95 % interval {interval}) over the last {one.cycles}"
        said += [
            f"memory    {name} peak {format_size(one.early)} in the first third, {format_size(one.late)} in the last",
            f"          it rises by {rise}" if one.rises else f"          no rise beyond chance: {rise}",
        ]
        if one.cycles_left is not None and one.limit is not None:
            end = f"used up after {one.cycles_left * updates_a_cycle:,.0f} more updates"
            said.append(f"          were it to go on, the {format_size(one.limit)} would be {end}")
    return said


def _step(size: float) -> str:
    return ("-" if size < 0 else "+") + format_size(abs(size))


def turns_lines(steps: Sequence[Step], verdict: TurnsVerdict, gain: Gain | None) -> list[str]:
    """Returns the figures of both exports in turns, one line each; the last states whether the stated gain holds."""
    taken = f"other programs took more than {TAKEN:.0%} of the CPU"
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

"""Sentences on long runs and repetitions, used by the commands and by the report."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Configuration, Pool
from autotune.insights.growth import Growth
from autotune.verify.long_run import LongVerdict
from autotune.verify.repeats import Spread
from autotune.wording.numbers import counted, format_size, rate, signed_percent


def long_sentence(verdict: LongVerdict) -> str:
    """The verdict in one sentence."""
    sure = "within 5 %" if verdict.agrees else f"NOT within 5 %: {verdict.reason}"
    return (
        f"verified over {verdict.updates} updates at natural lengths: {rate(verdict.measured)} tokens/hour where "
        f"{rate(verdict.predicted)} were predicted ({signed_percent(verdict.ratio - 1.0)}, {sure})"
    )


def long_lines(verdict: LongVerdict) -> list[str]:
    """The verdict and its figures, one line each."""
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
    """Whether memory rose over a long run, and after how many cycles the limit would be reached."""
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


def spread_lines(one: Spread, baseline: Configuration) -> list[str]:
    """Spread between runs of one configuration, one line each."""
    which = "baseline" if one.configuration == baseline else "configuration"
    runs = f"{counted(one.runs, 'run')} in fresh processes"
    low, high = one.low / one.tokens_per_hour - 1.0, one.high / one.tokens_per_hour - 1.0
    lines = [
        f"{which}: {rate(one.tokens_per_hour)} tokens/hour over {runs} ({rate(one.low)} to {rate(one.high)}, "
        f"{signed_percent(low)} to {signed_percent(high)})",
        f"  standard deviation of a run {_share(one.between)}, of a cycle inside a process {_share(one.within)}",
        f"  what processes differ by beyond their cycles {_share(one.of_processes)}",
    ]
    if one.beside is not None:
        lines.append(f"  of its ratio to the baseline beside it {_share(one.beside)}")
    if one.disturbed:
        lines.append(f"  other programs disturbed {one.disturbed} of the {one.cycles} cycles")
    return lines


def _share(value: float | None) -> str:
    return "unknown" if value is None else f"{100 * value:.1f} %"

"""States findings about a run by its steps, one sentence each, and nothing without evidence: a pure state machine.

``look`` maps the steps so far to findings; ``news`` compares them with those stated before. Neither reads a file, nor
the clock. A finding is a *note* (nothing to do), *soon* (act before the run ends) or *now*.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any, Protocol

from autotune.watch.series import GIB, NAMES, Series, Step
from autotune.watch.trends import FEWEST, WARMING, MemoryLine, Trend, memory_line, trend
from autotune.wording.numbers import format_duration, format_size, percent

RECENT = 20
"""Number of last steps compared with earlier ones; their median tolerates nine slow steps, such as evaluations."""
SLOWER = 0.15
"""Least relative excess over the expected step time that is stated; equal processes differ by up to 10 %."""
ALIKE = 0.1
"""Largest relative difference of two steps' lengths at which equal step times are expected."""
FEWEST_ALIKE = 8
"""Fewest earlier steps of similar lengths; the chance that all eight are below the median of equals is 1 in 256."""
GROWN = 0.1
"""Least relative change of the mean length along its trend that is stated; less does not affect a decision."""
CUT = 0.1
"""Least share of truncated completions that is stated; lengths then say little about untruncated ones."""
FASTER = 0.05
"""Least relative gain of another configuration that is stated; less is within the tolerance of a verified gain."""
NOW_S = 3600.0
"""Time to a limit from which to act now: enough for a person to change a setting and restart from a checkpoint."""
AHEAD = 1.5
"""How far a trend is extrapolated, as a multiple of the run so far; beyond that, it is a guess."""
MOVED = 1.0 / 3.0
"""Relative change from which a predicted step is stated again; about the accuracy of the prediction."""
FEWEST_RISES, LEAK = 4, 0.02
"""Fewest separate rises of memory without a longer completion that count as a leak, and their least sum as a share of
memory: an allocator fills its gaps in one or two rises."""


class Level(IntEnum):
    """How urgent a finding is."""

    NOTE = 0
    SOON = 1
    NOW = 2


@dataclass(frozen=True)
class Finding:
    """One sentence about the run, with its figures."""

    kind: str
    level: Level
    sentence: str
    step: float | None = None
    """Predicted step."""
    earliest: float | None = None
    latest: float | None = None
    """95 % interval of ``step``: ``earliest`` to ``latest``; ``latest`` is ``None`` if the step may never come."""

    @property
    def document(self) -> dict[str, Any]:
        """Finding as JSON-ready data."""
        return {**asdict(self), "level": self.level.name.lower()}


class Tuned(Protocol):
    """A study's predictions for the run's configuration (``watch.tuned``)."""

    @property
    def name(self) -> str:
        """Name of the study."""

    @property
    def mean_length(self) -> float:
        """Mean completion length in tokens that the study measured."""

    @property
    def longest_allowed(self) -> int:
        """Largest completion length in tokens that the study allows for."""

    def seconds(self, mean: float, longest: float) -> float:
        """Predicts the seconds of an optimizer step at these lengths."""

    def fits(self, longest: float) -> float:
        """Returns the probability that the longest micro-batch fits in memory at this length."""

    def setting_for(self, longest: float) -> str:
        """Names the largest setting that is sure to fit at this length."""

    def faster(self, mean: float, longest: float) -> tuple[str, float] | None:
        """Returns the name and gain of the fastest other configuration at these lengths."""


def look(series: Series, limit: float | None = None, tuned: Tuned | None = None) -> tuple[Finding, ...]:
    """States the findings of the steps so far, most urgent first.

    Args:
        limit: memory in bytes, of one GPU or on a CPU of the host; by default, the capacity in the log, if any.
        tuned: the study that the run's configuration comes from.
    """
    steps, last = series.steps, series.last_step
    if not steps:
        return ()
    longest, mean = trend(steps, "longest"), trend(steps, "mean")
    ends = float(last if last is not None else math.inf)
    limit = limit if limit is not None else series.capacity
    found = (
        _ran_out(series),
        _memory(steps, longest, limit, tuned, ends),
        _leak(steps, limit, ends),
        _slower(steps),
        _speed(steps, tuned),
        _another(mean, longest, tuned, ends),
        _lengths(steps, mean),
    )
    return tuple(sorted((f for f in found if f is not None), key=lambda f: -f.level))


def news(before: Sequence[Finding], now: Sequence[Finding]) -> tuple[Finding, ...]:
    """Returns the findings that were not stated before, are more urgent, or predict another step."""
    known = {f.kind: f for f in before}
    return tuple(f for f in now if (old := known.get(f.kind)) is None or f.level > old.level or _is_elsewhere(old, f))


def _is_elsewhere(old: Finding, new: Finding) -> bool:
    return bool(old.step and new.step and abs(new.step - old.step) > MOVED * old.step)


def _ran_out(series: Series) -> Finding | None:
    if (step := series.out_of_memory_at) is None:
        return None
    return Finding("out_of_memory", Level.NOW, f"the run ran out of memory after step {step}")


def _memory(
    steps: Sequence[Step], longest: Trend | None, limit: float | None, tuned: Tuned | None, ends: float
) -> Finding | None:
    """Predicts the step at which the longest micro-batch exceeds the memory, by the study's model, else by the log."""
    if longest is None or not longest.rises:
        return None
    line = None if tuned is not None else memory_line(steps)
    if tuned is not None:
        lengths = _unfitting(tuned, longest)
    else:
        lengths = None if line is None or limit is None else line.lengths_at(limit)
    if lengths is None:
        return None
    middle, low, high = lengths
    step, earliest = longest.step_of(middle, longest.slope), longest.step_of(low, longest.high)
    latest = longest.step_of(high, longest.low)
    if step > ends or earliest > longest.step * (1.0 + AHEAD):
        return None
    at_end = longest.record_at(min(ends, max(step, longest.step) * (1.0 + AHEAD)))
    remedy = tuned.setting_for(at_end) if tuned is not None else _share(line, at_end, limit)
    sentence = (
        f"at this growth ({longest.slope:+.3g} tokens a step) the longest micro-batch meets the memory at step "
        f"{step:,.0f} ({earliest:,.0f} to {_step_words(latest, ends)}), with completions of {middle:,.0f} tokens"
        f"{f'; {remedy}' if remedy else ''}"
    )
    level = Level.NOW if (earliest - longest.step) * _median_s(steps) <= NOW_S else Level.SOON
    return Finding("memory", level, sentence, step, earliest, latest if math.isfinite(latest) else None)


def _unfitting(tuned: Tuned, longest: Trend) -> tuple[float, float, float] | None:
    """Returns the length that fits in memory with probability 0.5, with a 95 % interval; ``None`` if the longest
    allowed completion fits."""
    start, end = longest.level, float(tuned.longest_allowed)
    if longest.level + longest.reach > end:  # the run allows more
        end = longest.record_at(longest.step * (1.0 + AHEAD))
    if tuned.fits(end) >= 0.5:
        return None
    found = []
    for least in (0.5, 0.975, 0.025):
        low, high = start, end
        for _ in range(20):
            middle = (low + high) / 2.0
            low, high = (middle, high) if tuned.fits(middle) >= least else (low, middle)
        found.append(low)
    return found[0], found[1], found[2]


def _share(line: MemoryLine | None, longest: float, limit: float | None) -> str:
    share = 0.0 if line is None or limit is None else line.share_that_fits(longest, limit)
    if not 0.0 < share < 1.0:
        return ""
    return f"{percent(math.floor(share * 20) / 20)} of a micro-batch's rows fit up to {longest:,.0f}"


def _step_words(step: float, ends: float) -> str:
    return "never" if math.isinf(step) else f"{step:,.0f}{' or not in this run' if step > ends else ''}"


def _median_s(steps: Sequence[Step]) -> float:
    known = [s.seconds for s in steps[-RECENT:] if s.seconds is not None]
    return statistics.median(known) if known else 0.0


def _leak(steps: Sequence[Step], limit: float | None, ends: float) -> Finding | None:
    """States that memory grows although completions do not get longer."""
    longest, memory, rises, total = 0.0, 0.0, [], 0.0
    for place, step in enumerate(steps):
        record = step.longest is None or step.longest > longest
        longest = max(longest, step.longest or 0.0)
        if step.memory is None or step.longest is None:
            continue
        if step.memory > memory > 0.0 and place > WARMING and not record:
            rises.append(step.number)
            total += step.memory - memory
        memory = max(memory, step.memory)
    rising = trend(steps, "memory")
    if len(rises) < FEWEST_RISES or total < LEAK * memory or rising is None or not rising.rises:
        return None
    later = [number for number in rises if number > steps[len(steps) // 2].number]
    if 2 * len(later) < FEWEST_RISES:  # it filled up, and stays
        return None
    full = rising.step_of(limit, rising.slope) if limit is not None else math.inf
    meets = full <= min(ends, rising.step * (1.0 + AHEAD))
    sentence = (
        f"memory grows at equal lengths, in {len(rises)} steps since step {rises[0]:,} by {format_size(total)} in all "
        f"(now {format_size(memory)}): a leak, or batches with more tokens"
    )
    sentence += f"; at this growth it meets the limit at step {full:,.0f}" if meets else ""
    return Finding("leak", Level.SOON, sentence, full if meets else None)


def _slower(steps: Sequence[Step]) -> Finding | None:
    """States that steps became slower than earlier ones with completions of the same length."""
    known = [s for s in steps[WARMING:] if s.seconds is not None and s.mean is not None]
    recent, earlier = known[-RECENT:], known[:-RECENT]
    if len(recent) < RECENT:
        return None
    now_s, mean = statistics.median(s.seconds or 0.0 for s in recent), statistics.median(s.mean or 0.0 for s in recent)
    longest = statistics.median(s.longest or 0.0 for s in recent)
    alike = [s for s in earlier if _near(s.mean, mean) and (not longest or (s.longest or 0.0) >= (1 - ALIKE) * longest)]
    if len(alike) < FEWEST_ALIKE:
        return None
    # the first of them, lest slow ones be compared with themselves; shorter ones would have taken longer by as much
    first = alike[: max(FEWEST_ALIKE, len(alike) // 3)]
    seconds = sorted((s.seconds or 0.0) * max(1.0, mean / (s.mean or mean)) for s in first)
    before = statistics.median(seconds)
    if now_s < (1.0 + SLOWER) * before or now_s <= seconds[math.ceil(0.9 * len(seconds)) - 1]:
        return None
    since = next(s.number for i, s in enumerate(known) if _all_slower(known[i : i + FEWEST_ALIKE], before))
    sentence = (
        f"steps became slower without longer completions, since about step {since:,}: {format_duration(now_s)} instead "
        f"of {format_duration(before)} at a mean of {mean:,.0f} tokens; look for another program on the machine, the "
        "GPU's clock and memory that grows"
    )
    return Finding("slower", Level.SOON, sentence)


def _near(value: float | None, mean: float) -> bool:
    return value is not None and abs(value - mean) <= ALIKE * mean


def _all_slower(steps: Sequence[Step], before: float) -> bool:
    return statistics.median(s.seconds or 0.0 for s in steps) >= (1.0 + SLOWER / 2) * before


def _speed(steps: Sequence[Step], tuned: Tuned | None) -> Finding | None:
    """Compares the seconds of recent steps with the study's figure, else with those of the first steps."""
    known = [s for s in steps[WARMING:] if s.seconds is not None and s.mean is not None]
    recent, first = known[-RECENT:], known[:RECENT]
    if len(recent) < RECENT or (tuned is None and len(known) < 2 * RECENT):
        return None
    now_s, mean = _median_s(recent), statistics.fmean(s.mean or 0.0 for s in recent)
    if tuned is None:
        before_s, before = _median_s(first), statistics.fmean(s.mean or 0.0 for s in first)
        sentence = (
            f"{format_duration(now_s)} a step at a mean of {mean:,.0f} tokens; the first {RECENT} steps: "
            f"{format_duration(before_s)} at {before:,.0f}"
        )
        return Finding("speed", Level.NOTE, sentence)
    if any(s.longest is None for s in recent):
        return None
    expected = statistics.median(tuned.seconds(s.mean or 0.0, s.longest or 0.0) for s in recent)
    sentence = (
        f"{format_duration(now_s)} a step at a mean of {mean:,.0f} tokens, {format_duration(expected)} expected by "
        f"study {tuned.name} (measured at {tuned.mean_length:,.0f})"
    )
    return Finding("speed", Level.SOON if now_s > (1.0 + SLOWER) * expected else Level.NOTE, sentence)


def _another(mean: Trend | None, longest: Trend | None, tuned: Tuned | None, ends: float) -> Finding | None:
    """Predicts the step from which another configuration of the study is likely faster."""
    if tuned is None or mean is None or longest is None:
        return None
    horizon = min(ends, mean.step * (1.0 + AHEAD))
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        step = mean.step + share * (horizon - mean.step)
        rows = mean.level + mean.slope * (step - mean.step), longest.level + longest.slope * (step - longest.step)
        found = tuned.faster(*rows) if min(rows) > 0.0 and (share == 0.0 or mean.rises or mean.high < 0.0) else None
        if found is not None and found[1] >= FASTER:
            when = "now" if share == 0.0 else f"from about step {step:,.0f}"
            sentence = (
                f"{when} {found[0]} is likely faster by {percent(found[1])}, at a mean of {rows[0]:,.0f} tokens where "
                f"the study measured {tuned.mean_length:,.0f}: tune again with these lengths"
            )
            return Finding("another", Level.SOON, sentence, step)
    return None


def _lengths(steps: Sequence[Step], mean: Trend | None) -> Finding | None:
    """States the trend of the mean length, the longest completion and the share that the limit cut."""
    if mean is None:
        return None
    recent, over = steps[-FEWEST:], (steps[-1].number - steps[0].number) / 2.0
    now = statistics.fmean(s.mean for s in recent if s.mean is not None) if _has(recent, "mean") else mean.level
    moved = (mean.rises or mean.high < 0.0) and abs(mean.slope) * over >= GROWN * now
    cut = statistics.fmean(c for s in recent if (c := s.clipped) is not None) if _has(recent, "clipped") else 0.0
    if not moved and cut < CUT:
        return None
    words = f"completions: mean {now:,.0f} tokens"
    words += f", {mean.slope:+.3g} a step ({mean.low:+.3g} to {mean.high:+.3g})" if moved else ""
    words += f", the longest {max(s.longest or 0.0 for s in recent):,.0f}" if _has(recent, "longest") else ""
    return Finding("lengths", Level.NOTE, f"{words}, {percent(cut)} cut by the limit" if cut >= CUT / 10 else words)


def _has(steps: Sequence[Step], figure: str) -> bool:
    return any(getattr(s, figure) is not None for s in steps)


def lacking(series: Series) -> tuple[str, ...]:
    """Returns the metrics that findings need and the log lacks, by the frameworks' own keys."""
    steps = series.steps
    return tuple(" or ".join(NAMES[figure][:3]) for figure in NAMES if steps and not _has(steps, figure))


def state_words(series: Series) -> str:
    """Describes the last step: ``step 412 of 1,000: mean 2,140 tokens, longest 7,900, 48 s a step, 61.2 GiB``."""
    last, of = series.steps[-1], series.last_step
    words = [f"mean {last.mean:,.0f} tokens"] if last.mean is not None else []
    words += [f"longest {last.longest:,.0f}"] if last.longest is not None else []
    words += [f"{format_duration(_median_s(series.steps))} a step"] if _has(series.steps[-RECENT:], "seconds") else []
    words += [f"{last.memory / GIB:,.1f} GiB at most"] if last.memory is not None else []
    return f"{'line' if series.counted else 'step'} {last.number:,}{f' of {of:,}' if of else ''}: {', '.join(words)}"

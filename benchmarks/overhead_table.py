"""What ``benchmarks.overhead`` has measured, as Markdown. Pure: rows in, text out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.statistics.distributions import t95
from autotune.statistics.noise import pooled
from trainer.child.contract import FailureReason

Row = Mapping[str, Any]
BARE, COLD, WARM = "bare", "cold", "warm"
MODES = (COLD, WARM)
PREPARING = ("server", "spawn", "import", "restore", "load", "engine", "capture")
"""Parts of a trial before the framework does anything a user's run would do again and again."""
GIB = 1 << 30


def speed(row: Row) -> float | None:
    """Tokens/hour of a trial's recorded cycles; ``None`` without one."""
    cycles = [c for c in row["cycles"] if c["kind"] == "recorded" and c["accepted"]]
    seconds = sum(c["seconds"] for c in cycles)
    return 3600.0 * sum(c["tokens"] for c in cycles) / seconds if seconds > 0 else None


def cycle_noise(rows: Sequence[Row]) -> float | None:
    """Standard deviation of the logarithm of a recorded cycle's tokens/second, pooled within trials."""
    recorded = [[c for c in row["cycles"] if c["kind"] == "recorded"] for row in rows]
    found = pooled([math.log(c["tokens"] / c["seconds"]) for c in cycles] for cycles in recorded)
    return math.sqrt(found.variance) if found.degrees else None


def decided(rows: Sequence[Row]) -> int:
    """Trials that say something of their configuration."""
    return sum(row["reason"] is None or FailureReason(row["reason"]).blames_configuration for row in rows)


def per_hour(rows: Sequence[Row]) -> float:
    """Decided trials an hour of the wall seconds they took."""
    wall = sum(row["seconds"] for row in rows)
    return 3600.0 * decided(rows) / wall if wall > 0 else 0.0


def parts(rows: Sequence[Row]) -> dict[str, float]:
    """Seconds by part of the start-up, of all cycles (``cycles``) and of what is left (``rest``)."""
    found: dict[str, float] = {}
    for row in rows:
        for name, seconds in row["startup"].items():
            found[name] = found.get(name, 0.0) + seconds
    found["cycles"] = sum(c["seconds"] for row in rows for c in row["cycles"])
    found["rest"] = max(0.0, sum(row["seconds"] for row in rows) - sum(found.values()))
    return found


def preparing(rows: Sequence[Row]) -> float:
    """Share of the wall time before a trial's first batch."""
    wall = sum(row["seconds"] for row in rows)
    spent = parts(rows)
    return sum(spent.get(name, 0.0) for name in PREPARING) / wall if wall > 0 else 0.0


def pairs(rows: Sequence[Row], index: int) -> list[tuple[Row, Row]]:
    """(cold, warm) of a configuration, for every block that has both ended OK."""
    by = {(row["block"], row["mode"]): row for row in rows if row["index"] == index and row["reason"] is None}
    blocks = sorted({block for block, _ in by})
    return [(by[b, COLD], by[b, WARM]) for b in blocks if (b, COLD) in by and (b, WARM) in by]


def both(rows: Sequence[Row]) -> list[Row]:
    """Those whose block and configuration the other mode has too: an unfinished run compares like with like."""
    there = {(row["block"], row["index"], row["mode"]) for row in rows}
    modes = modes_of(rows)
    return [row for row in rows if all((row["block"], row["index"], mode) in there for mode in modes)]


def modes_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """Those compared: cold and warm, and bare where there is any such trial."""
    return (BARE, *MODES) if any(row["mode"] == BARE for row in rows) else MODES


def markdown(rows: Sequence[Row], names: Sequence[str], machine: str) -> str:
    """The whole page."""
    paired = both(rows)
    lines = ["# Cold and warm, side by side", "", machine, "", *_rates(paired), "", *_parts(paired), ""]
    lines += [*_paired(paired, names), "", *_noise(paired)]
    return "\n".join(lines) + "\n"


def _rates(rows: Sequence[Row]) -> Iterator[str]:
    yield "| | trials | decided | wall seconds | decided trials per hour | before the first batch |"
    yield "|---|---|---|---|---|---|"
    rate = {}
    for mode in modes_of(rows):
        own = [row for row in rows if row["mode"] == mode]
        rate[mode] = per_hour(own)
        wall = sum(row["seconds"] for row in own)
        yield f"| {mode} | {len(own)} | {decided(own)} | {wall:,.0f} | {rate[mode]:.1f} | {preparing(own):.1%} |"
    for mode, found in rate.items():
        if mode != WARM and found > 0:
            yield ""
            yield f"Warm ÷ {mode} decided trials per hour: **{rate[WARM] / found:.2f}**."


def _parts(rows: Sequence[Row]) -> Iterator[str]:
    """Seconds a trial and share of the wall time."""
    modes = modes_of(rows)
    spent = {mode: parts([row for row in rows if row["mode"] == mode]) for mode in modes}
    count = {mode: max(1, sum(row["mode"] == mode for row in rows)) for mode in modes}
    whole = {mode: sum(spent[mode].values()) or 1.0 for mode in modes}
    yield "| part | " + " | ".join(f"{mode}, s a trial | share" for mode in modes) + " |"
    yield "|---|" + "---|---|" * len(modes)
    known = [name for name in (*PREPARING, "first_batch") if any(name in spent[mode] for mode in modes)]
    more = sorted({name for mode in modes for name in spent[mode]} - {*known, "cycles", "rest"})
    for name in (*known, *more, "cycles", "rest"):
        cells = (f"{spent[m].get(name, 0.0) / count[m]:.2f} | {spent[m].get(name, 0.0) / whole[m]:.1%}" for m in modes)
        yield f"| {name.replace('_', ' ')} | {' | '.join(cells)} |"


def _paired(rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    yield "| configuration | blocks | tokens/hour cold | warm | warm - cold | noise of a pair | peak cold, GiB | warm | warm - cold |"  # noqa: E501
    yield "|---|---|---|---|---|---|---|---|---|"
    speeds, peaks = list[float](), list[float]()
    for index, name in enumerate(names):
        found = pairs(rows, index)
        peaks += [math.log(w["host_peak"] / c["host_peak"]) for c, w in found if c["host_peak"] and w["host_peak"]]
        rates = [(c, w) for cold, warm in found if (c := speed(cold)) is not None and (w := speed(warm)) is not None]
        if not rates:
            yield f"| {name} | 0 | | | | | | | |"
            continue
        speeds += [math.log(w / c) for c, w in rates]
        yield f"| {name} | {len(rates)} | {_speeds(rates, found)} | {_peaks(found)} |"
    yield ""
    yield f"Warm - cold over all pairs: tokens/hour {_mean(speeds)}, peak {_mean(peaks)}."


def _mean(logs: Sequence[float]) -> str:
    """Geometric mean of ratios given by their logarithms, with what a pair scatters by; Student's t over the pairs."""
    if not logs:
        return "?"
    text = f"{math.expm1(statistics.fmean(logs)):+.1%}"
    if len(logs) < 2:
        return text
    spread = statistics.stdev(logs)
    error = t95(len(logs) - 1) * spread / math.sqrt(len(logs))
    low, high = (math.expm1(statistics.fmean(logs) + side) for side in (-error, error))
    return f"{text} (95 % interval {low:+.1%} to {high:+.1%}, {len(logs)} pairs, which scatter by {spread:.1%})"


def _speeds(rates: Sequence[tuple[float, float]], found: Sequence[tuple[Row, Row]]) -> str:
    cold, warm = (statistics.geometric_mean(side) for side in zip(*rates, strict=True))
    noise = cycle_noise([row for pair in found for row in pair])
    # of a ratio of two trials: each is the mean of its cycles
    each = statistics.fmean(sum(c["kind"] == "recorded" for c in row["cycles"]) for pair in found for row in pair)
    text = "?" if noise is None else f"± {noise * math.sqrt(2 / max(1.0, each)):.1%}"
    return f"{cold:,.0f} | {warm:,.0f} | {warm / cold - 1:+.1%} | {text}"


def _peaks(found: Sequence[tuple[Row, Row]]) -> str:
    known = [(c["host_peak"], w["host_peak"]) for c, w in found if c["host_peak"] and w["host_peak"]]
    if not known:
        return " | | "
    cold, warm = (statistics.fmean(side) for side in zip(*known, strict=True))
    return f"{cold / GIB:.2f} | {warm / GIB:.2f} | {warm / cold - 1:+.1%}"


def _noise(rows: Sequence[Row]) -> Iterator[str]:
    cycles = [c for row in rows for c in row["cycles"] if c["kind"] == "recorded"]
    if not cycles:
        yield "No recorded cycle yet."
        return
    for mode in modes_of(rows):
        noise = cycle_noise([row for row in rows if row["mode"] == mode])
        yield f"Standard deviation of a recorded cycle, {mode}: {'?' if noise is None else f'{noise:.2%}'}."
    drift = sorted(abs(c["drift"]) for c in cycles if c["drift"] is not None)
    outside = sorted(c["outside_cpu"] for c in cycles if c["outside_cpu"] is not None)
    if drift:
        middle = drift[len(drift) // 2]
        yield f"Machine: reference kernel before against after a cycle, median {middle:.2%}, most {drift[-1]:.2%}."
    if outside:
        yield f"CPU time of others in a cycle: median {outside[len(outside) // 2]:.2%}, most {outside[-1]:.2%}."
    disturbed = sum(bool(c["noisy"]) for c in cycles)
    yield f"Disturbed cycles that were kept: {disturbed} of {len(cycles)}."
    why = sorted({note for row in rows for note in row.get("notes", ())})
    for note in why:
        yield f"- {note}"

"""Describes figures of compared trials or studies, the same for every reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import Gain
from autotune.recommendation.comparison import ComparedSide
from autotune.wording.numbers import figure, known_size, per_second, percent, rate, signed_percent, tells_nothing
from autotune.wording.sentences import gain_figure
from trainer.child.contract import Phase, StartupPart

SMALLEST = 0.05
"""Seconds below which a change is stated without a percentage."""

Value = Callable[[ComparedSide], float | None]


@dataclass(frozen=True)
class FigureLine:
    """A figure of each side and, for two sides, the ratio of the second to the first."""

    name: str
    """Indented by two spaces if it is a part of the line above."""
    values: tuple[str, ...]
    change: str = ""


def figure_lines(sides: Sequence[ComparedSide], ratio: Gain | None = None) -> list[FigureLine]:
    """Returns the figures of the sides; ``ratio`` is the gain of the second over the first of two."""

    def text_line(name: str, words: Callable[[ComparedSide], str], change: str = "") -> FigureLine:
        return FigureLine(name, tuple(map(words, sides)), change)

    def number_line(name: str, of: Value, words: Callable[[float | None], str]) -> FigureLine:
        values = [of(side) for side in sides]
        return text_line(name, lambda side: words(of(side)), _change(*values) if len(values) == 2 else "")

    lines = [
        text_line("trials", lambda side: " ".join(f"#{n}" for n in side.trials) or "-"),
        text_line("outcome", lambda side: "ok" if side.outcome == "OK" else side.outcome.partition(":")[0]),
        text_line("tokens/hour", _speed, "" if ratio is None else gain_figure(ratio)),
        text_line("  95 % interval", _range),
        text_line("  tokens/s", lambda side: _speed(side, per_second).partition(" ")[0]),
        text_line("cycles", lambda s: f"{s.cycles} and {s.disturbed} disturbed" if s.disturbed else str(s.cycles)),
        number_line("seconds a cycle", lambda side: side.cycle_s, _seconds),
        *(number_line(f"  {name}", _part("phases", name), _seconds) for name in _names(sides, "phases", Phase)),
        number_line("tokens a cycle", lambda side: side.cycle_tokens, lambda value: figure(value, "{:,.0f}")),
        text_line("rows per update", lambda side: str(side.rows_per_update)),
        number_line("host peak", lambda side: side.host_peak, lambda value: known_size(value and int(value))),
        number_line("GPU peak", lambda side: side.device_peak, lambda value: known_size(value and int(value))),
        text_line("GPU busy", lambda side: "-" if side.use is None else percent(side.use.whole.gpu.busy)),
        text_line("GPU power", lambda side: "-" if side.use is None else figure(side.use.whole.watts, "{:.0f} W")),
        text_line("energy of a token", lambda s: "-" if s.use is None else figure(s.use.joules_per_token, "{:.3g} J")),
        text_line("cores used", lambda side: "-" if side.use is None else figure(side.use.whole.cores, "{:.1f}")),
        text_line("start-up", lambda side: _seconds(sum(side.startup.values()) if side.startup else None)),
    ]
    for name in _names(sides, "startup", StartupPart):
        of = _part("startup", name)
        lines.append(text_line(f"  {name.replace('_', ' ')}", lambda side, of=of: _seconds(of(side))))  # type: ignore[misc]
    own = {"GPU peak", "GPU busy", "GPU power", "energy of a token", "cores used"}
    return [line for line in lines if line.name not in own or set(line.values) != {"-"}]


def baselines_words(a: ComparedSide, b: ComparedSide) -> str:
    """States the speed of two studies' baselines, which shows how similar machines and workloads are."""
    if a.speed is None or b.speed is None:
        return "baselines: not both measured"
    return f"baselines: {rate(a.speed.value)} and {rate(b.speed.value)} tokens/hour"


def _part(field: str, name: str) -> Value:
    return lambda side: getattr(side, field).get(name)


def _names(sides: Sequence[ComparedSide], field: str, usual: type[Phase | StartupPart]) -> list[str]:
    """Returns the names in mappings of seconds: ``usual`` ones in their order, then others alphabetically."""
    parts: list[Mapping[str, float]] = [getattr(side, field) for side in sides]
    names, order = {name for part in parts for name in part}, [part.value for part in usual]
    return [*(n for n in order if n in names), *sorted(names - set(order))]


def _speed(side: ComparedSide, show: Callable[..., str] = rate) -> str:
    return "-" if side.speed is None else show(side.speed.value, side.speed.low, side.speed.high)


def _range(side: ComparedSide) -> str:
    if side.speed is None or tells_nothing(side.speed.low, side.speed.high):
        return "-"
    return " to ".join(rate(end, side.speed.low, side.speed.high) for end in (side.speed.low, side.speed.high))


def _seconds(value: float | None) -> str:
    return figure(value, "{:.2f} s")


def _change(first: float | None, second: float | None) -> str:
    if not first or second is None or max(first, second) < SMALLEST:
        return ""
    return signed_percent(second / first - 1.0)

"""A pilot's judgement as lines of text. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.wording.numbers import format_duration
from benchmarks.search import report
from benchmarks.sweeps.pilot import FULL, MIB, Judgement, quantiles, weak

CLEAR = 0.15
"""Forecasts of cycles err by about that (docs/decisions/0030-phase-times.md)."""


def lines(name: str, found: Judgement) -> list[str]:
    """What was measured, what is expected, and the limit."""
    failed = "".join(f", {reason} {count}" for reason, count in found.failed.items())
    rows, repeats = (format_duration(3600.0 * hours) for hours in found.hours)
    peaks = ", ".join(f"{label} {value / MIB:.0f}" for label, value in quantiles(found.peaks).items())
    return [
        f"{name}: {found.measured} rows measured{failed}, of {found.planned}",
        f"peaks, MiB: {peaks}; the baseline's {found.baseline_peak / MIB:.0f}",
        f"memory limit: {_limit(found)}",
        f"all rows would take {rows}, three repeats of the fastest {repeats}",
        f"cycles of one trial scatter by {found.scatter:.1%}; the clock guard objected to {found.disturbed:.0%}",
        f"phases: baseline {_shares(found.baseline_phases)}; median of the rows {_shares(found.typical_phases)}",
        "measured:",
        *report.each((*found.workload, found.row)),
        "expected of all rows, by our models fitted to these, smoother than what will be measured"
        + ("" if found.trusted else " (the model of times does not trust its prior here)")
        + ":",
        *report.each(found.rows),
        _baseline(found.baseline_lacks),
        *_knobs(found.without),
        "nothing speaks against recording it" if found.promises else "AS IT IS THE TABLE WOULD PROBABLY NOT COUNT",
    ]


def limit_text(found: Judgement) -> str:
    """As ``--memory-limit`` takes it."""
    return f"{found.limit // MIB}MiB"


def _limit(found: Judgement) -> str:
    said = (
        f"{limit_text(found)}, which {found.beyond:.0%} of all rows are expected to exceed (meant: {FULL:.0%}) "
        f"and {found.beyond_measured:.0%} of the measured ones do"
    )
    return said if found.fits else said + "; THE BASELINE WOULD NOT FIT, or barely"


def _baseline(lacks: float) -> str:
    said = f"the baseline is expected to lack {lacks:.1%} of the fastest row"
    return (
        said if lacks > CLEAR else said + ": forecasts err by as much; BEGUN NEAR THE BEST A SEARCH HAS NOTHING TO FIND"
    )


def _shares(shares: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items() if share >= 0.005)


def _knobs(without: Mapping[str, float]) -> list[str]:
    if not without:
        return []
    each = ", ".join(f"{name} {lack:.1%}" for name, lack in sorted(without.items(), key=lambda item: item[1]))
    found = [f"what the fastest expected row lacks with another value of a knob: {each}"]
    if few := weak(without):
        found.append(
            f"weak knobs: {', '.join(few)}; each may double the rows near the best, so leave it out or widen it"
        )
    return found

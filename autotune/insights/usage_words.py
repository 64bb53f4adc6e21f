"""Formats a trial's resource use as tables and JSON, and its limiting resource as a sentence, for all screens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.documents.study import Document, gpu_json, plain
from autotune.domain import CycleRecord, Fingerprint, RecommendationRow, Study, Trial
from autotune.insights.blame import blame
from autotune.insights.roofline import Roof, roof_of
from autotune.insights.usage import PhaseUse, TrialUse, per_second, trial_use
from autotune.machine.gpu_samples import WHOLE
from autotune.wording.numbers import figure, known_size, percent
from autotune.wording.text import CYCLE_WORDS, clean

LEAST_SHARE = 0.01
"""Least share of a cycle for a phase to have a row."""


@dataclass(frozen=True)
class Cells:
    """A table as text; the first cell of a row is its name. Omits columns without any known value."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def speed_sentence(trial: Trial, roof: Roof | None) -> str:
    """Describes the limiting resource and the share of the roofline; empty if neither is known."""
    found, share = blame(trial), None if roof is None else roof.share(trial)
    said = [] if found is None else [found.sentence]
    if share is not None:
        said.append(f"{percent(share, 1)} of what this GPU could do at most, if nothing ever waited")
    return "; ".join(said)


def roof_words(study: Study, fingerprint: Fingerprint | None, trials: Sequence[Trial], row: RecommendationRow) -> str:
    """Compares the speed of a row with the roofline of its GPU; empty if that is not known."""
    measured = (t for t in trials if t.number in row.trials and t.speed_cycles())
    roof, trial = roof_of(study, fingerprint), next(measured, None)
    share = None if roof is None or trial is None else roof.share(trial)
    normal = "of the hardware's limit; published runs of this class reach 35 to 40 %"
    return "" if share is None else f"{percent(share, 1)} {normal}"


def energy_words(use: TrialUse | None) -> str:
    """Describes energy and power: ``0.301 J for a completion token, 320 W``; empty if not known."""
    if use is None or use.joules_per_token is None:
        return ""
    power = "" if use.whole.watts is None else f", {use.whole.watts:.0f} W"
    return f"{use.joules_per_token:.3g} J for a completion token{power}"


_BY_PHASE: Mapping[str, Callable[[PhaseUse], str]] = {
    "GPU busy": lambda p: percent(p.gpu.busy),
    "GPU memory busy": lambda p: percent(p.gpu.memory_busy),
    "MHz": lambda p: figure(p.gpu.sm_mhz, "{:.0f}"),
    "watts": lambda p: figure(p.watts, "{:.0f}"),
    "main thread": lambda p: percent(p.main_thread),
    "cores used": lambda p: figure(p.cores, "{:.1f}"),
    "PCIe": lambda p: known_size(_sum(p.gpu.pcie_sent, p.gpu.pcie_received)),
    "NVLink": lambda p: known_size(_sum(p.gpu.nvlink_sent, p.gpu.nvlink_received)),
}


def by_phase(use: TrialUse | None) -> Cells | None:
    """Builds a table with a row for each phase with figures and one for the whole cycle; ``None`` without figures."""
    if use is None:
        return None
    rows = [p for p in use.phases if p.seconds >= LEAST_SHARE * use.whole.seconds and (p.gpu.samples or p.cores)]
    return _table(
        "phase", [("whole cycle" if p.phase == WHOLE else clean(p.phase), p) for p in (*rows, use.whole)], _BY_PHASE
    )


_BY_CYCLE: Mapping[str, Callable[[CycleRecord], str]] = {
    "GPU busy": lambda c: percent(_of_gpu(c, "busy")),
    "cores used": lambda c: figure(per_second(c.cpu_seconds, c.seconds), "{:.1f}"),
    "system time": lambda c: figure(_of_process(c, "system_seconds"), "{:.2f} s"),
    "page faults": lambda c: _thousands(_of_process(c, "minor_faults")),
    "Python gc": lambda c: figure(_of_process(c, "gc_seconds"), "{:.2f} s"),
    "new shapes": lambda c: figure(_of_process(c, "new_shapes"), "{:,.0f}"),
    "GPU allocs": lambda c: figure(_of_process(c, "device_allocations"), "{:,.0f}"),
    "alloc retries": lambda c: figure(c.alloc_retries, "{:,.0f}"),
    "gradient sync": lambda c: figure(_of_process(c, "gradient_sync_seconds"), "{:.2f} s"),
    "sync hidden": lambda c: percent(_of_process(c, "gradient_sync_hidden")),
}
USAGE_LEGEND = (
    "busy: share of the time; new shapes: met for the first time; GPU allocs: times the allocator asked the "
    "driver; sync hidden: share behind the backward pass"
)
"""Explanation of the columns of both tables."""


def by_cycle(cycles: Sequence[CycleRecord]) -> Cells | None:
    """Builds a table with a row for each cycle of rank 0, to compare slow cycles; ``None`` without figures."""
    own = [c for c in cycles if c.rank == 0]
    if not any(c.gpu or c.process is not None for c in own):
        return None
    return _table("cycle", [(f"{c.index} {CYCLE_WORDS[c.cycle_kind]}", c) for c in own], _BY_CYCLE)


def usage_of(trial: Trial) -> tuple[Cells | None, Cells | None]:
    """Returns the tables (by phase, by cycle) of a trial."""
    return by_phase(trial_use(trial)), by_cycle(trial.cycles)


def _table(name: str, rows: Sequence[tuple[str, Any]], columns: Mapping[str, Callable[[Any], str]]) -> Cells:
    cells = [[words(value) for words in columns.values()] for _, value in rows]
    known = [place for place in range(len(columns)) if any(row[place] != "-" for row in cells)]
    heads = tuple(columns)
    return Cells(
        (name, *(heads[place] for place in known)),
        tuple((label, *(row[place] for place in known)) for (label, _), row in zip(rows, cells, strict=True)),
    )


def _of_gpu(cycle: CycleRecord, name: str) -> float | None:
    return getattr(cycle.gpu.get(WHOLE), name, None)


def _of_process(cycle: CycleRecord, name: str) -> float | None:
    return getattr(cycle.process, name, None)


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other


def _thousands(value: float | None) -> str:
    return "-" if value is None else "0" if value < 500 else f"{value / 1000:,.0f}k"


def usage_json(trial: Trial, roof: Roof | None) -> Document | None:
    """Converts a trial's resource use by phase to JSON; ``null`` if nothing was recorded."""
    use, found = trial_use(trial), blame(trial)
    if use is None:
        return None
    blamed = None if found is None else {"resource": found.resource.value, "phase": plain(found.phase)}
    return {
        **use_json(use),
        "blame": None if found is None or blamed is None else {**blamed, "sentence": found.sentence},
        "roofline_share": None if roof is None else plain(roof.share(trial)),
    }


def use_json(use: TrialUse) -> Document:
    """Converts mean resource use per timed cycle to JSON; unknown values are ``null``."""
    return {
        "cycles": use.cycles,
        "phases": {plain(phase.phase): _phase(phase) for phase in (*use.phases, use.whole)},
        "joules_per_token": plain(use.joules_per_token),
        "device_allocations_per_cycle": plain(use.device_allocations),
        "alloc_retries_per_cycle": plain(use.alloc_retries),
        "gradient_sync_exposed_seconds": plain(use.gradient_sync_exposed_s),
    }


def _phase(use: PhaseUse) -> Document:
    return {
        "seconds": plain(use.seconds),
        "main_thread_share": plain(use.main_thread),
        "cores": plain(use.cores),
        "watts": plain(use.watts),
        "gpu": gpu_json(use.gpu),
    }

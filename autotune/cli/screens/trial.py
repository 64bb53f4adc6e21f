"""Screen of one trial: its configuration, outcome, time and memory; pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.cli.screens.tables import plain_table
from autotune.cli.screens.text import LEGEND, LabelGrid, stacked
from autotune.documents.memory_timeline import MemoryTimeline, moment_words, peak
from autotune.documents.study import cycle_rate
from autotune.domain import Configuration, CycleKind, CycleRecord, Peaks, Protocol, Study, Trial
from autotune.domain.places import place_of
from autotune.insights.limits import lower_limits
from autotune.insights.roofline import Roof
from autotune.insights.standings import outcome_word, source_words
from autotune.insights.usage import trial_use
from autotune.insights.usage_words import USAGE_LEGEND, energy_words, speed_sentence, usage_of
from autotune.statistics.lengths import spread_words
from autotune.wording.numbers import counted, format_duration, format_size, known_size, per_second, percent, rate
from autotune.wording.text import CYCLE_WORDS, clean, in_order, knob_value
from search_spaces import legality
from search_spaces.batch import serving_gpus, training_gpus
from trainer.child.contract import NoteRecord, StartupPart

BAR_WIDTH = 20
EMULATED = "FP8 was emulated: that it runs is known, its speed is nobody's; never recommended"
NUMERICS = ("float8", "gradient", "gradient_not_compared")
"""Keys of the facts that a trial records about its numerics."""
GUARD_LEGEND = "guard: ✗ discarded and repeated, ~ disturbed, counts as a bound"


def trial_screen(
    trial: Trial,
    study: Study,
    *,
    log: Sequence[str] = (),
    log_path: str = "",
    notes: Sequence[NoteRecord] = (),
    timeline: MemoryTimeline | None = None,
    roof: Roof | None = None,
) -> RenderableType:
    """Draws all information on a trial, at most 80 columns wide. ``log``: the last lines, if the trial failed;
    ``notes``: facts that it recorded, ``timeline``: memory over time, ``roof``: the highest speed its GPU allows."""
    facts, more = LabelGrid(), LabelGrid()
    _add_outcome(facts, trial)
    if speed := speed_sentence(trial, roof):
        facts.add("speed", speed)
    for note in legality.notes(trial.configuration, study.spec.resources):
        facts.add("rows", note)
    _add_figures(more, trial)
    _add_details(more, trial, study, notes, {"memory": timeline_words(timeline), "log": log_path})
    parts: list[RenderableType] = [_head(trial, study), Text(), facts.table, Text()]
    parts.append(configuration_table(trial.configuration, study.spec.baseline))
    if trial.cycles:
        warming = {(c.index, c.rank) for c in trial.warming_cycles()}
        shown = [replace(c, accepted=c.accepted and (c.index, c.rank) not in warming) for c in trial.cycles]
        parts += [Text(), cycles_table(shown), Text(LEGEND, "dim")]
        if any(c.noisy or not c.accepted for c in shown):
            parts.append(Text(GUARD_LEGEND, "dim"))
    if (peaks := peaks_table(trial)) is not None:
        parts += [Text(), peaks]
    parts += _used(trial)
    if more.table.row_count:
        parts += [Text(), more.table]
    if log:
        parts += [Text(), Text(f"last {len(log)} lines of the log", "dim"), Text("\n".join(log), overflow="fold")]
    return Group(*parts)


def _add_details(
    grid: LabelGrid, trial: Trial, study: Study, notes: Sequence[NoteRecord], more: Mapping[str, str]
) -> None:
    """Adds the details that take one line each; ``more`` are the lines on memory and log."""
    details = {
        "memory": more["memory"],
        "energy": energy_words(trial_use(trial)),
        "GPUs": gpu_words(trial, study, notes),
        "numerics": numerics_words(notes),
        "beware": beware_words(notes),
        "place": clean(place_of(notes).whole),
        "log": more["log"],
    }
    for name, words in details.items():
        if words:
            grid.add(name, words)


def _used(trial: Trial) -> list[RenderableType]:
    """Draws tables of GPU and host utilization; empty if they were not recorded."""
    parts: list[RenderableType] = []
    for cells in usage_of(trial):
        if cells is not None:
            name, *heads = (head.replace(" ", "\n") for head in cells.heads)
            table = plain_table([(name, "left"), *((head, "right") for head in heads)])
            for row in cells.rows:
                table.add_row(*row)
            parts += [Text(), table]
    return [*parts, Text(USAGE_LEGEND, "dim", overflow="fold")] if parts else []


def _head(trial: Trial, study: Study) -> Text:
    words = [f"trial #{trial.number} of {clean(study.spec.name)}", trial.kind.value, outcome_word(trial)]
    if trial.source and trial.source != trial.kind.value:
        words.append(f"by {source_words(trial.source)}")
    if trial.attempt > 1:
        words.append(f"attempt {trial.attempt}")
    if trial.pair is not None:
        words.append(f"round {trial.pair}")
    if trial.seconds is not None:
        words.append(f"took {format_duration(trial.seconds)}")
    return Text(" · ".join(words), "bold")


def _add_outcome(grid: LabelGrid, trial: Trial) -> None:
    outcome = trial.outcome
    if outcome is None:
        grid.add("outcome", trial.state.value.lower())
    elif outcome.ceiling is not None:
        grid.add("outcome", f"{outcome.sentence()} (trial #{outcome.ceiling.rival})")
        grid.add("", "it cannot win, so it was not measured further; never recommended")
    elif outcome.ok:
        worst = "passed" if trial.worst_case_passed else "NOT passed: not feasible"
        seconds = per_second(trial.tokens_per_hour or 0.0, gpus=trial.gpus)
        grid.add("outcome", f"ok, {rate(trial.tokens_per_hour)} tokens/hour ({seconds}); longest batch {worst}")
        if trial.emulated:
            grid.add("emulated", EMULATED, "yellow")
    else:
        grid.add("outcome", outcome.sentence(), "red")
        if outcome.suggestion:
            grid.add("hint", outcome.suggestion, "bold")
    if trial.startup:
        grid.add("start-up", startup_words(trial))


def configuration_table(configuration: Configuration, baseline: Configuration) -> Table:
    """Draws every knob, and marks those with another value than the baseline's."""
    table = plain_table([("knob", "left"), ("value", "left"), ("baseline", "left")])
    differs = configuration.difference(baseline)
    for name in in_order({*configuration, *baseline}):
        changed = name in differs
        before = knob_value(baseline.get(name), name) if changed else ""
        row = clean(name), knob_value(configuration.get(name), name), before
        table.add_row(*(Text(cell, "bold" if changed else "") for cell in row))
    return table


def startup_words(trial: Trial) -> str:
    """Returns ``6.5 s: import 2.0 s, load 1.5 s, first batch 3.0 s``."""
    known = [part.value for part in StartupPart if part.value in trial.startup]
    names = [*known, *sorted(set(trial.startup) - set(known))]
    parts = [f"{clean(name).replace('_', ' ')} {format_duration(trial.startup[name])}" for name in names]
    return f"{format_duration(sum(trial.startup.values()))}: {', '.join(parts)}"


def cycles_table(cycles: Sequence[CycleRecord]) -> Table:
    """Draws a row for each cycle and rank: time, speed, useful share, phases as a bar, marks of the clock guard."""
    ranks = len({cycle.rank for cycle in cycles}) > 1
    table = plain_table(
        [("cycle", "right"), ("lengths", "left"), ("time", "right"), ("tokens/h", "right"), ("useful", "right")]
    )
    table.add_column(Text("phases", "dim"), no_wrap=True, min_width=BAR_WIDTH)
    table.add_column(Text("guard", "dim"), no_wrap=True, overflow="ellipsis")
    for cycle in cycles:
        table.add_row(
            f"{cycle.index}/r{cycle.rank}" if ranks else str(cycle.index),
            CYCLE_WORDS[cycle.cycle_kind],
            f"{cycle.seconds:.1f} s",
            rate(cycle_rate(cycle)),
            percent(cycle.useful_share),
            stacked(cycle.phases, BAR_WIDTH),
            Text(guard_words(cycle), "yellow" if cycle.noisy or not cycle.accepted else "dim"),
            style="" if cycle.accepted else "dim",
        )
    return table


def guard_words(cycle: CycleRecord) -> str:
    """Returns ``ok``, or why the cycle gives no speed: ``✗`` discarded, ``~`` only a lower bound."""
    if cycle.accepted and not cycle.noisy:
        return "ok"
    share = cycle.outside_cpu
    if share is None or not Protocol().objects(share):  # compiled, or much slower than the next
        why = "not warm yet"
    else:
        why = f"others {percent(share)}" if share >= 0.1 else f"others {percent(share, 1)}"
    return f"{'~' if cycle.accepted else '✗'} {why}"


def _add_figures(grid: LabelGrid, trial: Trial) -> None:
    """Adds completion lengths and rewards by kind of cycle, from rank 0, whose records contain those of all ranks."""
    own = [c for c in trial.cycles if c.rank == 0]
    for kind in (CycleKind.NATURAL, CycleKind.RECORDED):
        cycles = [c for c in own if c.cycle_kind is kind]
        lengths = [n for c in cycles for n in c.lengths]
        if lengths:
            clipped = [c.clipped_share for c in cycles if c.clipped_share is not None]
            cut = f", {percent(statistics.fmean(clipped))} clipped" if clipped else ""
            text = f"{spread_words(lengths)}, longest {max(lengths)} tokens{cut}"
            grid.add("lengths", f"{CYCLE_WORDS[kind]}: {text}")
    natural = [c for c in own if c.cycle_kind is CycleKind.NATURAL]
    if limits := limit_words([n for c in natural for n in c.lengths]):
        grid.add("limits", limits)
    stale, rows = sum(c.stale_rows for c in own), sum(c.rows for c in own)
    if stale:
        grid.add("dropped", f"{percent(stale / (stale + rows))} of completions as stale; they count in no figure")
    if words := engine_words(trial.cycles):
        grid.add("engine", words)
    rewards = [c.reward_mean for c in natural if c.reward_mean is not None]
    groups = sum(c.groups for c in natural)
    if rewards:
        flat = sum(c.zero_std_groups for c in natural)
        teaching = f"; {groups - flat} of {groups} groups have differing rewards" if groups else ""
        grid.add("rewards", f"mean {statistics.fmean(rewards):.3f} at sampled lengths{teaching}")


def limit_words(lengths: Sequence[int]) -> str:
    """Returns ``max_completion_length 512 would cut 10% of rows and save 31% of tokens, 768 5% and 12%; ...``."""
    found = lower_limits(lengths)
    parts = [
        f"{n.tokens} would cut {percent(n.rows_cut)} of rows and save {percent(n.tokens_saved)} of tokens"
        for n in found[:1]
    ]
    parts += [f"{one.tokens} {percent(one.rows_cut)} and {percent(one.tokens_saved)}" for one in found[1:]]
    tried = "another algorithm, which a study of its own tries (`start --max-completion-length`)"
    return f"max_completion_length {', '.join(parts)}; by {len(lengths)} rows; {tried}" if parts else ""


def engine_words(cycles: Sequence[CycleRecord]) -> str:
    """Describes the rollout engine: its memory, cache use, and log-prob mismatch with the trainer."""
    held = [c.engine_bytes for c in cycles if c.engine_bytes is not None]
    usage = [c.cache_usage for c in cycles if c.cache_usage is not None]
    mismatch = [c.logp_mismatch for c in cycles if c.logp_mismatch is not None]
    parts = [f"took {format_size(max(held))}"] if held else []
    if usage:
        preemptions = sum(c.preemptions or 0 for c in cycles)
        parts.append(f"cache {percent(max(usage))} full at most, {counted(preemptions, 'preemption')}")
    if mismatch:
        parts.append(f"log-prob mismatch {max(mismatch):.4f}")
    return "; ".join(parts)


def numerics_words(notes: Sequence[NoteRecord]) -> str:
    """Returns ``14 layers in FP8, 1 left out; gradient of fp8 against bf16's: cosine 0.992, norm 0.95 times``."""
    found = {note.name: note.data for note in notes if note.name in NUMERICS}
    parts = []
    if made := found.get("float8"):
        parts.append(f"{made.get('layers')} layers in FP8, {made.get('left_out')} left out")
    if seen := found.get("gradient"):
        cosine, ratio = seen.get("cosine"), seen.get("ratio")
        figures = f"cosine {cosine:.3f}, norm {ratio:.2f} times" if None not in (cosine, ratio) else "not finite"
        parts.append(f"gradient of {seen.get('change')} against bf16's: {figures}")
    if why := found.get("gradient_not_compared"):
        parts.append(f"gradient not compared with bf16's: {why.get('why')}")
    return "; ".join(parts)


def beware_words(notes: Sequence[NoteRecord]) -> str:
    """Describes caveats of this trial: values that the engine did not take, a warm-up without optimizer state."""
    found = {note.name: note.data for note in notes}
    has = [f"{knob} {knob_value(value)}" for knob, value in found.get("engine_has", {}).items()]
    parts = [f"the engine has another value than asked for: {', '.join(has)}"] if has else []
    if "optimizer_not_primed" in found:
        parts.append("the warm-up's longest rows met an optimizer without its state")
    return "; ".join(parts)


def gpu_words(trial: Trial, study: Study, notes: Sequence[NoteRecord]) -> str:
    """Returns ``3 train, 1 generates; most in use 60.1, 60.0, 60.1, 71.2 GiB``; empty for one GPU or none."""
    resources = study.spec.resources
    if resources.total_gpus < 2:
        return ""
    training, served = training_gpus(trial.configuration, resources), serving_gpus(trial.configuration, resources)
    left = resources.total_gpus - training - served
    idle = f", {left} idle" if left > 0 else ""
    split = f", {served} generate{'s' if served == 1 else ''}" if served else ""
    peaks: Mapping[str, int] = next((note.data.get("bytes", {}) for note in notes if note.name == "gpu_peaks"), {})
    seen = f"; most in use {', '.join(f'{size / 2**30:.1f}' for size in peaks.values())} GiB" if peaks else ""
    each = "" if trial.tokens_per_hour is None else f"; {rate(trial.tokens_per_hour / (training + served))} for each"
    return f"{training} train{'s' if training == 1 else ''}{split}{idle}{each}{seen}"


def timeline_words(timeline: MemoryTimeline | None) -> str:
    """Returns ``host: most after 41 s, in update of cycle 3 (3.20 GiB); GPU: ...``; empty without records."""
    series = [] if timeline is None else [("host", timeline.host), ("GPU", timeline.device)]
    tops = [(name, top) for name, points in series if (top := peak(points)) is not None]
    return "; ".join(f"{name}: most {moment_words(top)} ({format_size(top.used)})" for name, top in tops)


def peaks_table(trial: Trial) -> Table | None:
    """Draws the highest memory by phase over all cycles, and of the process tree; ``None`` if nothing was measured."""
    phases: dict[str, list[Peaks]] = {}
    for cycle in trial.cycles:
        for name, peaks in cycle.peaks.items():
            phases.setdefault(name, []).append(peaks)
    if not phases and trial.host_peak is None:
        return None
    table = plain_table(
        [("peak memory", "left"), ("host", "right"), ("GPU, held (driver)", "right"), ("allocated", "right")]
    )
    for name, found in phases.items():
        table.add_row(
            "whole cycle" if name == "cycle" else clean(name),
            _highest([p.host for p in found]),
            _highest([p.device_used for p in found]),
            _highest([p.device_allocated or p.device_reserved for p in found]),
        )
    if trial.host_peak is not None:
        table.add_row("whole trial", format_size(trial.host_peak), "", "")
    return table


def _highest(values: Sequence[int | None]) -> str:
    return known_size(max((value for value in values if value is not None), default=None))

"""View of one trial: its configuration, its outcome, its time and memory, and text to copy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from api.dashboard import links
from api.dashboard.copies import archive_name, copies, export_command
from api.dashboard.why_view import capacity_of
from api.logs import LogTail
from autotune.charts.memory_time import over_time
from autotune.charts.phase_bars import by_cycle
from autotune.documents.memory_timeline import MemoryTimeline
from autotune.documents.study import timestamp
from autotune.domain import Configuration, Trial
from autotune.domain.places import TrialPlace, place_of
from autotune.insights.phases import limit_sentence, tightest
from autotune.insights.roofline import roof_of
from autotune.insights.standings import source_words
from autotune.insights.usage import trial_use
from autotune.insights.usage_words import USAGE_LEGEND, energy_words, speed_sentence, usage_of
from autotune.recommendation.current import Life
from autotune.recommendation.export import Exported
from autotune.recommendation.reading import StudyReading
from autotune.wording.numbers import format_duration, format_size
from autotune.wording.text import clean, in_order
from trainer.child.contract import NoteRecord, RunPaths, StartupPart


def trial_view(
    reading: StudyReading,
    trial: Trial,
    life: Life | None,
    logs: Sequence[LogTail],
    notes: Sequence[NoteRecord],
    exported: Exported | str,
    folder: Path,
    timeline: MemoryTimeline | None = None,
) -> SimpleNamespace:
    """Returns the content of a trial's page; ``exported`` is its configuration's, the rest from its last attempt."""
    spec, outcome = reading.study.spec, trial.outcome
    capacity = capacity_of(spec)
    others = {0, trial.number, *([best.number] if (best := best_of(reading)) is not None else [])}
    failed = outcome is not None and not outcome.ok
    export, name = export_command(reading.study, trial=trial.number), archive_name(reading.study, trial=trial.number)
    return SimpleNamespace(
        life=life,
        facts=_facts(reading, trial, place_of(notes)),
        cause=clean(outcome.sentence()) if outcome is not None and failed else "",
        knobs=_knobs(trial.configuration, spec.baseline),
        cycles=by_cycle(trial),
        timeline=over_time(timeline, capacity),
        usage_legend=USAGE_LEGEND,
        usage=tuple(cells for cells in usage_of(trial) if cells is not None),
        startup=_startup(trial),
        logs=tuple(logs),
        files=_files(folder) if trial.attempt else (),
        exported=exported,
        copies=copies(reading.study, trial.configuration, exported, export, name),
        compare=links.compare_page(reading.study.id, sorted(others & {t.number for t in reading.trials})),
    )


def best_of(reading: StudyReading) -> Trial | None:
    """Returns the first trial with the configuration of the first recommended row."""
    wanted = None if reading.first_row is None else reading.first_row.configuration
    return next((t for t in reading.trials if t.configuration == wanted and t.feasible), None)


def _knobs(configuration: Configuration, baseline: Configuration) -> tuple[str, ...]:
    """Returns every knob of both configurations; knobs that differ from the baseline come first."""
    names = in_order({*configuration, *baseline})
    return tuple(sorted(names, key=lambda n: configuration.get(n) == baseline.get(n)))


def _facts(reading: StudyReading, trial: Trial, place: TrialPlace) -> tuple[tuple[str, str], ...]:
    spec = reading.study.spec
    host, device = trial.host_peak, trial.device_peak
    facts = [
        ("state", trial.state.value.lower()),
        ("proposed by", source_words(trial.source)),
        ("attempt", str(trial.attempt) if trial.attempt > 1 else ""),
        ("round", str(trial.pair) if trial.pair is not None else ""),
        ("took", format_duration(trial.seconds) if trial.seconds is not None else ""),
        ("began", _moment(trial.started_at)),
        ("place", clean(place.whole)),
        ("longest batch", "passed" if trial.worst_case_passed else "not reached"),
        ("speed cycles", str(len(trial.speed_cycles()))),
        ("bound by", clean(limit_sentence(trial, tightest([trial], spec.memory_limit, spec.resources.device_memory)))),
        ("speed", clean(speed_sentence(trial, roof_of(reading.study, reading.fingerprint)))),
        ("energy", energy_words(trial_use(trial))),
        ("host peak", format_size(host) if host is not None else ""),
        ("GPU peak", format_size(device) if device is not None else ""),
        ("stopped", clean(trial.outcome.sentence()) if trial.outcome is not None and trial.at_most is not None else ""),
    ]
    return tuple((name, value) for name, value in facts if value)


def _moment(at: float | None) -> str:
    """Returns ``2026-11-21 12:00 UTC``, for example; empty if unknown."""
    found = timestamp(at)
    return f"{found[:16].replace('T', ' ')} UTC" if found else ""


def _startup(trial: Trial) -> tuple[tuple[str, str], ...]:
    names = dict.fromkeys([*(part.value for part in StartupPart), *sorted(trial.startup)])
    return tuple((clean(n).replace("_", " "), format_duration(trial.startup[n])) for n in names if n in trial.startup)


def _files(folder: Path) -> tuple[tuple[str, str], ...]:
    paths = RunPaths(folder)
    named = [
        ("what it was given", paths.config),
        ("what it measured", paths.metrics),
        ("its result", paths.result),
        ("its memory over time", paths.memory),
        ("its log", paths.log),
        ("the rollout server's log", paths.server_log),
    ]
    return tuple((name, clean(path)) for name, path in named if path.is_file())

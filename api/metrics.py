"""Metrics for Prometheus, in its text format (version 0.0.4). Pure.

Labels are few and bounded: studies by id, states, reasons, slots, GPUs. No trial, no configuration, no free text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from api.guard.security import CUT_OFF
from autotune.domain import StudyStatus
from autotune.insights.standings import count
from autotune.insights.usage import TrialUse, use_of
from autotune.recommendation.places import PlaceState
from autotune.recommendation.reading import StudyReading

CONTENT_TYPE = "text/plain; version=0.0.4"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Sample = tuple[Mapping[str, str], float]
Item = TypeVar("Item")


@dataclass(frozen=True)
class Metric:
    """A metric family: name, help text and samples."""

    name: str
    """Name; that of a counter ends in ``_total``, others are gauges."""
    help: str
    samples: Sequence[Sample]

    @property
    def kind(self) -> str:
        return "counter" if self.name.endswith("_total") else "gauge"


def exposition(metrics: Iterable[Metric]) -> bytes:
    """Returns the metrics as text; omits families without samples."""
    lines: list[str] = []
    for metric in metrics:
        if metric.samples:
            text = metric.help.replace("\\", "\\\\").replace("\n", "\\n")
            lines += [f"# HELP {metric.name} {text}", f"# TYPE {metric.name} {metric.kind}"]
            lines += [f"{metric.name}{_labels(labels)} {_number(value)}" for labels, value in metric.samples]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace") if lines else b""


def of_server(version: str, tally: Mapping[str, int], listeners: int) -> tuple[Metric, ...]:
    """Returns metrics of the server itself; ``tally`` counts responses by status, and disconnected readers."""
    seen = dict(tally)
    cut_off = seen.pop(CUT_OFF, 0)
    answers = [({"status": status}, number) for status, number in sorted(seen.items())]
    return (
        Metric("autotune_build_info", "The program's version.", [({"version": version}, 1)]),
        Metric("autotune_http_answers_total", "Answers since the server began, by status.", answers),
        Metric("autotune_listeners", "Readers of event streams.", [({}, listeners)]),
        Metric("autotune_readers_cut_off_total", "Readers of anything that took nothing of it.", [({}, cut_off)]),
    )


def _gauge(
    name: str, text: str, labelled: Iterable[tuple[Mapping[str, str], Item]], of: Callable[[Item], float | None]
) -> Metric:
    """Returns a gauge with a sample for each item for which ``of`` returns a number."""
    return Metric(name, text, [(labels, value) for labels, one in labelled if (value := of(one)) is not None])


def of_studies(snapshots: Sequence[StudyReading]) -> tuple[Metric, ...]:
    """Returns metrics of the studies' state."""
    named = [({"study": str(s.study.id)}, s) for s in snapshots]
    counted = [(labels, count(s.trials)) for labels, s in named]
    states = [({**labels, "state": k}, n) for labels, c in counted for k, n in c.states.items()]
    failures = [({**labels, "reason": k}, n) for labels, c in counted for k, n in c.failures.items()]
    rows = [(labels, s.first_row) for labels, s in named if s.first_row is not None]
    uses = [(labels, use) for labels, s in named if (use := _best_use(s)) is not None]
    phases = [({**labels, "phase": p.phase}, p.gpu) for labels, use in uses for p in (*use.phases, use.whole)]
    spent, busy = "Over all runs of the tuner.", "Of it, by phase: share of the time a kernel ran."
    return (
        _gauge("autotune_study_open", "1 while open, else 0.", named, lambda s: s.study.status is StudyStatus.OPEN),
        _gauge("autotune_tuner_up", "1 while a tuner runs the study, else 0.", named, lambda s: float(s.alive)),
        Metric("autotune_trials", "Trials by state.", states),
        Metric("autotune_trial_failures", "Failed trials by reason.", failures),
        _gauge("autotune_spent_wall_seconds_total", spent, named, lambda s: s.spent[0]),
        _gauge("autotune_spent_gpu_seconds_total", spent, named, lambda s: s.spent[1]),
        _gauge("autotune_best_tokens_per_hour", "Of the answer.", rows, lambda row: row.tokens_per_hour),
        _gauge(
            "autotune_best_gain_ratio", "Over the baseline, minus 1.", rows, lambda r: r.gain.value if r.gain else None
        ),
        _gauge("autotune_best_gpu_busy_ratio", busy, phases, lambda gpu: gpu.busy),
        _gauge("autotune_best_gpu_watts", "Of it, over all GPUs.", uses, lambda use: use.whole.watts),
        _gauge("autotune_best_joules_per_token", "Of it, all GPUs.", uses, lambda use: use.joules_per_token),
        _gauge("autotune_best_cores", "Of it, cores the process of a rank used.", uses, lambda use: use.whole.cores),
    )


def of_places(snapshots: Sequence[StudyReading]) -> tuple[Metric, ...]:
    """Returns metrics of the slots in which trials run; their label is ``place``."""
    named = {(str(s.study.id), p.at.short or "machine"): p for s in snapshots for p in s.places}
    at = [({"study": study, "place": place}, p) for (study, place), p in named.items()]
    held = [({**labels, "gpu": str(g.index), "uuid": g.uuid}, p) for labels, p in at for g in p.at.gpus]
    busy = "Of the last cycle there: share with a kernel running."
    return (
        _gauge("autotune_place_running", "1 while a trial runs, else 0.", at, lambda p: float(p.trial is not None)),
        _gauge("autotune_place_left", "1 if it gets no more trials.", at, lambda p: float(p.state is PlaceState.LEFT)),
        _gauge("autotune_place_trial", "Number of the trial that runs there.", at, lambda p: p.trial),
        _gauge("autotune_place_gpu_busy_ratio", busy, at, lambda p: p.busy),
        _gauge("autotune_gpu_trial", "Number of the trial that runs on the GPU.", held, lambda p: p.trial),
    )


def _best_use(reading: StudyReading) -> TrialUse | None:
    """Returns the resource use of the trials that measured the recommended configuration."""
    numbers = () if reading.first_row is None else reading.first_row.trials
    return use_of([c for t in reading.trials if t.number in numbers for c in t.speed_cycles()])


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))

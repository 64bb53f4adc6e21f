"""Figures for Prometheus, in its text format (version 0.0.4). Pure but for the tally.

Labels are few and bounded: studies by id, states, reasons, places, GPUs. No trial, no configuration, no free text.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from api.cache.snapshot import Snapshot
from autotune.insights.standings import count
from autotune.insights.usage import TrialUse, use_of
from autotune.recommendation.places import PlaceState

CONTENT_TYPE = "text/plain; version=0.0.4"
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})

Sample = tuple[Mapping[str, str], float]


@dataclass(frozen=True)
class Metric:
    """One family: a name, what it is, and its samples."""

    name: str
    kind: str
    """``gauge`` or ``counter``; the name of a counter ends in ``_total``."""
    help: str
    samples: Sequence[Sample]


class AnswerCounts:
    """Answers by status, and readers that did not read them, since the server began. For several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._statuses: Counter[int] = Counter()
        self._cut_off = 0
        self._shared = 0

    def cut_off(self) -> None:
        """One more reader that took nothing of its answer for so long that it was disconnected."""
        with self._lock:
            self._cut_off += 1

    @property
    def readers_cut_off(self) -> int:
        """So far."""
        return self._cut_off

    def share(self) -> None:
        """One more answer that was another reader's too."""
        with self._lock:
            self._shared += 1

    @property
    def shared(self) -> int:
        """So far."""
        return self._shared

    def count(self, status: int) -> None:
        """One more answer."""
        with self._lock:
            self._statuses[status] += 1

    def statuses(self) -> Mapping[int, int]:
        """So far."""
        with self._lock:
            return dict(sorted(self._statuses.items()))


def exposition(metrics: Iterable[Metric]) -> bytes:
    """The text; families without samples are left out."""
    lines: list[str] = []
    for metric in metrics:
        if metric.samples:
            lines += [f"# HELP {metric.name} {_escaped_help(metric.help)}", f"# TYPE {metric.name} {metric.kind}"]
            lines += [f"{metric.name}{_labels(labels)} {_number(value)}" for labels, value in metric.samples]
    return ("\n".join(lines) + "\n").encode("utf-8", "replace") if lines else b""


def of_server(version: str, tally: AnswerCounts, listeners: int, dropped: int) -> tuple[Metric, ...]:
    """What the server itself does."""
    answers = [({"status": str(status)}, number) for status, number in tally.statuses().items()]
    return (
        Metric("autotune_build_info", "gauge", "The program's version.", [({"version": version}, 1)]),
        Metric("autotune_http_answers_total", "counter", "Answers since the server began, by status.", answers),
        Metric("autotune_http_answers_shared_total", "counter", "Of them, those several asked for at once.", [
            ({}, tally.shared)
        ]),
        Metric("autotune_listeners", "gauge", "Readers of event streams.", [({}, listeners)]),
        Metric("autotune_listeners_dropped_total", "counter", "Of them, those too far behind.", [({}, dropped)]),
        Metric("autotune_readers_cut_off_total", "counter", "Readers of anything that took nothing of it.", [
            ({}, tally.readers_cut_off)
        ]),
    )  # fmt: skip


def of_studies(snapshots: Sequence[Snapshot]) -> tuple[Metric, ...]:
    """How the studies stand."""
    named = [({"study": str(s.study.id)}, s) for s in snapshots]
    counted = [(labels, count(s.trials)) for labels, s in named]
    states = [({**labels, "state": k}, n) for labels, c in counted for k, n in c.states.items()]
    failures = [({**labels, "reason": k}, n) for labels, c in counted for k, n in c.failures.items()]
    rows = [(labels, s.recommendation.rows[0]) for labels, s in named if s.recommendation and s.recommendation.rows]
    gains = [(labels, row.gain.value) for labels, row in rows if row.gain is not None]
    uses = [(labels, use) for labels, s in named if (use := _best_use(s)) is not None]
    busy = [
        ({**labels, "phase": phase.phase}, phase.gpu.busy)
        for labels, use in uses
        for phase in (*use.phases, use.whole)
        if phase.gpu.busy is not None
    ]
    return (
        Metric("autotune_study_open", "gauge", "1 while it can gain trials, else 0.", [
            (labels, float(s.study.status.value == "open")) for labels, s in named
        ]),
        Metric("autotune_trials", "gauge", "Trials by state.", states),
        Metric("autotune_trial_failures", "gauge", "Failed trials by reason.", failures),
        Metric("autotune_spent_wall_seconds_total", "counter", "Over all runs of the tuner.", [
            (labels, s.spent[0]) for labels, s in named
        ]),
        Metric("autotune_spent_gpu_seconds_total", "counter", "Over all runs of the tuner.", [
            (labels, s.spent[1]) for labels, s in named
        ]),
        Metric("autotune_best_tokens_per_hour", "gauge", "Of the configuration recommended now.", [
            (labels, row.tokens_per_hour) for labels, row in rows
        ]),
        Metric("autotune_best_gain_ratio", "gauge", "Of it over the baseline, minus 1.", gains),
        Metric("autotune_best_gpu_busy_ratio", "gauge", "Of it, by phase: share of the time a kernel ran.", busy),
        Metric("autotune_best_gpu_watts", "gauge", "Of it, over all GPUs.", [
            (labels, use.whole.watts) for labels, use in uses if use.whole.watts is not None
        ]),
        Metric("autotune_best_joules_per_token", "gauge", "Of it, energy of all GPUs for a completion token.", [
            (labels, use.joules_per_token) for labels, use in uses if use.joules_per_token is not None
        ]),
        Metric("autotune_best_cores", "gauge", "Of it, cores the process of a rank used.", [
            (labels, use.whole.cores) for labels, use in uses if use.whole.cores is not None
        ]),
    )  # fmt: skip


def of_places(snapshots: Sequence[Snapshot]) -> tuple[Metric, ...]:
    """What runs where."""
    named = {(str(s.study.id), p.at.short or "machine"): p for s in snapshots for p in s.places}
    at = [({"study": study, "place": place}, p) for (study, place), p in named.items()]
    held = [({**labels, "gpu": str(g.index), "uuid": g.uuid}, p.trial) for labels, p in at for g in p.at.gpus]
    return (
        Metric("autotune_place_running", "gauge", "1 while a trial runs in the place, else 0.", [
            (labels, float(place.trial is not None)) for labels, place in at
        ]),
        Metric("autotune_place_left", "gauge", "1 of a place that gets no more trials.", [
            (labels, float(place.state is PlaceState.LEFT)) for labels, place in at
        ]),
        Metric("autotune_place_trial", "gauge", "Number of the trial that runs in the place.", [
            (labels, place.trial) for labels, place in at if place.trial is not None
        ]),
        Metric("autotune_place_gpu_busy_ratio", "gauge", "Of the last cycle there: share with a kernel running.", [
            (labels, place.busy) for labels, place in at if place.busy is not None
        ]),
        Metric("autotune_gpu_trial", "gauge", "Number of the trial that runs on the GPU.", [
            (labels, number) for labels, number in held if number is not None
        ]),
    )  # fmt: skip


def _best_use(found: Snapshot) -> TrialUse | None:
    """Of all trials that measured the configuration recommended now."""
    if found.recommendation is None or not found.recommendation.rows:
        return None
    numbers = found.recommendation.rows[0].trials
    return use_of([c for t in found.trials if t.number in numbers for c in t.speed_cycles()])


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items()) + "}"


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 2**53 else repr(float(value))

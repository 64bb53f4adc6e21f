"""A recorded table: measured trials over a search space with a common header, made from a study. Pure.

A table is self-contained: a row holds everything that a search could know of its configuration, the header everything
about machine and workload. So searches can be replayed on it, elsewhere and without a training framework.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from autotune.domain import (
    Configuration,
    Fingerprint,
    Protocol,
    Resources,
    Study,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.errors import UsageError
from autotune.statistics import evidence, retries
from autotune.tables import repeats
from search_spaces.knobs import moving_lengths
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import RestartKey, restart_key
from search_spaces.space import SearchSpace
from trainer.child.contract import WorstCaseRecord

VERSION = 1
"""Version of the file format; a reader refuses other versions."""


@dataclass(frozen=True)
class Header:
    """Properties common to all rows: machine, workload, space."""

    study: str
    framework: str
    model: str
    """Name of the model's folder, or its hub id; its facts are in ``resources.model``."""
    resources: Resources
    space: Mapping[str, Any]
    """Search space as plain data (``SearchSpace.as_json``)."""
    baseline: Configuration
    """Baseline with the knobs that rows have; it is one of the rows."""
    rows_per_update: int
    max_prompt_length: int
    """Longest prompt, in tokens."""
    max_completion_length: int
    """Longest completion, in tokens."""
    protocol: Protocol
    """Protocol of every row, with the recorded completion lengths."""
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    memory_limit: int | None = None
    """Most bytes that a trial's process tree may hold; ``None``: no limit."""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    software: Mapping[str, str] = field(default_factory=dict)
    probe: Mapping[str, Any] = field(default_factory=dict)
    """Measured speeds of the device (``PriorKnowledge.probe``) for time models; empty: not measured."""
    fingerprint: str = ""
    """Digest of hardware, software and workload; empty if the study has none."""
    seed: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> number of the study's trials that are no rows."""
    synthetic: bool = False
    """True if a function computed the rows, for tests, so that nothing was measured."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """The recorded completion lengths, in tokens."""
        return self.protocol.lengths


@dataclass(frozen=True)
class TableRow:
    """A configuration with its measurements."""

    trial: Trial
    """Trial that is COMPLETE or FAIL; its configuration has the knobs of ``Header.baseline``."""
    same_learning: bool
    """True if the configuration learns exactly as the baseline does."""
    worst_case: WorstCaseRecord | None = None
    repeats: tuple[Trial, ...] = ()
    """Further runs of the configuration in fresh processes, by number, confirmations of a search included."""

    @property
    def configuration(self) -> Configuration:
        return self.trial.configuration

    def key(self, framework: str) -> RestartKey:
        """Returns the restart key: one process can run rows of the same key, one after the other."""
        return restart_key(self.configuration, Restart.NONE, framework)


@dataclass(frozen=True)
class RecordedTable:
    """Rows in the order in which they were run, the baseline among them."""

    header: Header
    rows: tuple[TableRow, ...]
    name: str = ""
    """Name of the file without its suffix; empty for a table that is not in a file."""


def table_of(
    study: Study,
    trials: Sequence[Trial],
    worst_cases: Mapping[int, WorstCaseRecord],
    fingerprint: Fingerprint | None,
) -> RecordedTable:
    """Builds the table of a stored study, whichever sampler proposed its trials.

    Args:
        worst_cases: records by trial number.

    Raises:
        UsageError: no trial of the study can be a row.
    """
    spec = study.spec
    baseline = SearchSpace.from_json(spec.space).complete(spec.baseline, spec.resources)
    runs = [t.with_(configuration=baseline) if t.configuration == spec.baseline else t for t in trials]
    chosen, left_out = _chosen(runs, baseline)
    if not chosen:
        raise UsageError(f"study {spec.name!r} has no finished trial that could be a row of a table")
    again = [t for t in runs if _repeats(t) and t.state in (TrialState.COMPLETE, TrialState.FAIL)]
    rows = tuple(
        TableRow(
            trial=trial,
            same_learning=evidence.same_learning(trial.configuration, baseline, spec.framework),
            worst_case=worst_cases.get(trial.number),
            repeats=tuple(t for t in again if t.configuration == trial.configuration and not t.inconclusive),
        )
        for trial in chosen
    )
    return RecordedTable(_header(study, baseline, fingerprint, left_out), rows)


def _header(
    study: Study, baseline: Configuration, fingerprint: Fingerprint | None, left_out: Mapping[str, int]
) -> Header:
    spec, work = study.spec, study.spec.workload
    protocol = Protocol(**{**vars(spec.protocol), "natural": 0, "lengths": study.lengths})
    return Header(
        study=spec.name,
        framework=spec.framework,
        model=PurePath(work.model).name if work.model.startswith("/") else work.model,
        resources=spec.resources,
        space=spec.space,
        baseline=baseline,
        rows_per_update=work.rows_per_update,
        max_prompt_length=work.max_prompt_length,
        max_completion_length=work.max_completion_length,
        protocol=protocol,
        passthrough=work.passthrough,
        memory_limit=spec.memory_limit,
        hardware={} if fingerprint is None else fingerprint.hardware,
        software={} if fingerprint is None else fingerprint.software,
        probe={} if study.beforehand is None else study.beforehand.probe,
        fingerprint="" if fingerprint is None else fingerprint.digest,
        seed=spec.seed,
        left_out=left_out,
    )


def _chosen(trials: Sequence[Trial], baseline: Configuration) -> tuple[tuple[Trial, ...], dict[str, int]]:
    """Returns one trial for each configuration, by number, and reason -> number of the trials that are no rows."""
    found: dict[Configuration, Trial] = {}
    reasons: Counter[str] = Counter()
    for trial in sorted(retries.corrected(trials), key=lambda t: t.number):
        if not trial.kind.is_searched or not trial.state.is_finished:
            continue
        because = _no_row(trial, baseline)
        if because:
            reasons[because] += 1
        else:
            found.setdefault(trial.configuration, trial)
    return tuple(found.values()), dict(sorted(reasons.items()))


def _no_row(trial: Trial, baseline: Configuration) -> str:
    """Explains why a finished trial cannot be a row; empty if it can."""
    if moving_lengths(trial.configuration) != moving_lengths(baseline):
        return "at lengths of its own"
    if trial.state is TrialState.PRUNED:
        return "stopped early"
    if trial.inconclusive:
        return "broken by the machine or cancelled"
    if trial.emulated:
        return "FP8 in emulation"
    if trial.state is TrialState.COMPLETE and not (trial.feasible and trial.tokens_per_hour):
        return "nothing measured"
    return ""


def _repeats(trial: Trial) -> bool:
    """Tells whether a trial repeats a row in a fresh process: a repeat of a sweep, or a confirmation of a search."""
    return trial.kind is TrialKind.CONFIRM or trial.source == repeats.SOURCE

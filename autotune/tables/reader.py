"""Parses the lines of a table file; a malformed line raises ``ValueError`` naming the expected value."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from autotune.documents import codec
from autotune.domain import CycleRecord, Trial, TrialState
from autotune.tables.table import VERSION, Header, TableRow
from search_spaces.space import SearchSpace
from trainer.child.contract import WorstCaseRecord, decode, encode

FORMAT = "autotune-table"
PLAIN = ("study", "framework", "model", "rows_per_update", "max_prompt_length", "max_completion_length",
         "memory_limit", "fingerprint", "seed", "synthetic")  # fmt: skip
MAPPINGS = ("space", "passthrough", "hardware", "software", "probe", "left_out")
"""Fields of ``Header`` that are encoded as mappings in the first line."""
RUN = ("number", "kind", "state", "attempt", "source", "rows_per_update", "natural_cycles", "outcome", "cycles",
       "startup", "worst_case_passed", "host_peak", "started_at", "finished_at", "seconds")  # fmt: skip
"""Fields of a trial in its line."""


def object_of(line: str) -> dict[str, Any]:
    """Parses the JSON object of a line. Raises ``ValueError``."""

    def refuse(word: str) -> Any:
        raise ValueError(f"{word} is no number of a table")

    try:
        value = json.loads(line, parse_constant=refuse)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError("expected a line of JSON") from None
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    return value


def header_of(data: Mapping[str, Any]) -> Header:
    """Parses the header from the JSON of the first line. Raises ``KeyError`` or ``ValueError``."""
    if data.get("row") != "header" or data.get("format") != FORMAT:
        raise ValueError(f'expected a header with "format": "{FORMAT}"')
    if data["version"] != VERSION:
        raise ValueError(f"version {data['version']!r} of the format, expected {VERSION}")
    _check_there(data, (*PLAIN, *MAPPINGS))
    header: Header = codec.decode(Header, data)
    for name in ("rows_per_update", "max_prompt_length", "max_completion_length", "memory_limit"):
        _check_least(name, getattr(header, name), 1)
    _check_probe(header.probe)
    SearchSpace.from_json(header.space)
    return header


def _check_probe(data: Mapping[str, Any]) -> None:
    rates = data.get("flops", {})
    if not isinstance(rates, dict) or not all(type(rate) in (int, float) for rate in rates.values()):
        raise ValueError(f"probe: expected FLOP/s by type, got {rates!r}")


def row_of(data: Mapping[str, Any], header: Header) -> TableRow:
    """Parses a row from the JSON of any other line. Raises ``KeyError`` or ``ValueError``."""
    if data.get("row") != "trial":
        raise ValueError('expected "row": "trial"')
    worst = data["worst_case"]
    repeated = data["repeats"]
    if not isinstance(repeated, list):
        raise ValueError("repeats: expected a list")
    return TableRow(
        trial=_run_of(data, data["configuration"], header),
        same_learning=bool(data["same_learning"]),
        worst_case=None if worst is None else decode(WorstCaseRecord, worst, "worst_case"),
        repeats=tuple(_run_of(run, data["configuration"], header) for run in repeated),
    )


def _run_of(data: Mapping[str, Any], configuration: Any, header: Header) -> Trial:
    _check_there(data, RUN)
    for name in ("number", "attempt", "natural_cycles", "host_peak", "started_at", "finished_at", "seconds"):
        _check_least(name, data[name], 0)
    for part, seconds in data["startup"].items():
        _check_least(part, seconds, 0)
    _check_least("rows_per_update", data["rows_per_update"], 1)
    own = {"study_id": 0, "configuration": configuration, "watchdog_peak": data["host_peak"], "cycles": []}
    protocol = {**encode(header.protocol), "natural": data["natural_cycles"]}
    trial: Trial = codec.decode(Trial, {**data, **own, "protocol": protocol})
    return _checked(trial.with_(cycles=tuple(_cycle_of(cycle, header) for cycle in data["cycles"])))


def _checked(trial: Trial) -> Trial:
    if trial.state not in (TrialState.COMPLETE, TrialState.FAIL):
        raise ValueError(f"state: expected COMPLETE or FAIL, got {trial.state.value}")
    if trial.seconds is None or trial.outcome is None:
        raise ValueError("seconds and outcome: expected those of a trial that has ended")
    if (trial.state is TrialState.COMPLETE) != trial.outcome.ok:
        raise ValueError(f"state {trial.state.value} and the outcome's reason contradict each other")
    if trial.state is TrialState.COMPLETE and not trial.tokens_per_hour:
        raise ValueError("a COMPLETE row without a recorded cycle")
    return trial


def _cycle_of(data: Any, header: Header) -> CycleRecord:
    if isinstance(data, dict) and data.get("lengths") is None:
        data = {**data, "lengths": list(header.lengths)}
    cycle: CycleRecord = decode(CycleRecord, data, "cycle")
    figures = (cycle.seconds, *cycle.phases.values())
    if cycle.seconds <= 0 or not all(math.isfinite(figure) for figure in figures):
        raise ValueError(f"cycle {cycle.index}: expected positive finite seconds")
    return cycle


def _check_there(data: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raises ``KeyError`` with the first of ``names`` that is missing in ``data``."""
    for name in names:
        data[name]


def _check_least(name: str, value: Any, least: int) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is not None and not (number and least <= value < math.inf):
        raise ValueError(f"{name}: expected a number of at least {least}, got {value!r}")

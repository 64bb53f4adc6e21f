"""Parses the lines of a table file; a malformed line raises ``ValueError`` with what was expected."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from autotune.domain import (
    Configuration,
    CycleRecord,
    FailureReason,
    Outcome,
    Pool,
    Protocol,
    Resources,
    Trial,
    TrialKind,
    TrialState,
)
from autotune.tables.table import VERSION, Header, TableRow
from search_spaces.configuration import ModelFacts
from search_spaces.space import SearchSpace
from trainer.child.contract import WorstCaseRecord, decode

FORMAT = "autotune-table"
PLAIN = ("study", "framework", "model", "rows_per_update", "max_prompt_length", "max_completion_length",
         "memory_limit", "fingerprint", "seed", "synthetic")  # fmt: skip
MAPPINGS = ("space", "passthrough", "hardware", "software", "probe", "left_out")
"""Fields of ``Header`` that stand in the first line as they are."""
EARLIER: Mapping[str, Any] = {"probe": {}}
"""What stands for fields that tables of earlier versions lack."""


def object_of(line: str) -> dict[str, Any]:
    """The JSON object of a line."""

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
    """The header, from the first line."""
    if data.get("row") != "header" or data.get("format") != FORMAT:
        raise ValueError(f'expected a header with "format": "{FORMAT}"')
    if data["version"] != VERSION:
        raise ValueError(f"version {data['version']!r} of the format, expected {VERSION}")
    data = {**EARLIER, **data}
    for name in MAPPINGS:
        if not isinstance(data[name], dict):
            raise ValueError(f"{name}: expected an object")
    _check_probe(data["probe"])
    for name in ("study", "framework", "model", "fingerprint"):
        if not isinstance(data[name], str):
            raise ValueError(f"{name}: expected text, got {data[name]!r}")
    if not isinstance(data["synthetic"], bool):
        raise ValueError(f"synthetic: expected true or false, got {data['synthetic']!r}")
    if data["memory_limit"] is not None:
        _whole(data, "memory_limit")
    SearchSpace.from_json(data["space"])
    for name in ("rows_per_update", "max_prompt_length", "max_completion_length"):
        _whole(data, name)
    return Header(
        **{name: data[name] for name in PLAIN},
        **{name: data[name] for name in MAPPINGS},
        resources=_resources_of(data["resources"]),
        baseline=_configuration_of(data["baseline"]),
        protocol=decode(Protocol, data["protocol"], "protocol"),
    )


def _check_probe(data: Mapping[str, Any]) -> None:
    rates = data.get("flops", {})
    if not isinstance(rates, dict) or not all(type(rate) in (int, float) for rate in rates.values()):
        raise ValueError(f"probe: expected FLOP/s by type, got {rates!r}")


def _resources_of(data: Any) -> Resources:
    if not isinstance(data, dict):
        raise ValueError("resources: expected an object")
    known = {f.name for f in fields(Resources)}
    given = {name: value for name, value in data.items() if name in known}
    given["model"] = ModelFacts(**{n: v for n, v in data["model"].items() if n in ModelFacts.__dataclass_fields__})
    capability = given.get("compute_capability")
    if capability is not None:
        if not isinstance(capability, list) or [type(n) for n in capability] != [int, int]:
            raise ValueError(f"resources.compute_capability: expected two whole numbers, got {capability!r}")
        given["compute_capability"] = tuple(capability)
    return Resources(**given)


def _configuration_of(data: Any) -> Configuration:
    if not isinstance(data, dict) or not all(isinstance(v, bool | int | float | str) for v in data.values()):
        raise ValueError("configuration: expected an object of knobs and their values")
    return Configuration(data)


def row_of(data: Mapping[str, Any], header: Header) -> TableRow:
    """A row, from any other line."""
    if data.get("row") != "trial":
        raise ValueError('expected "row": "trial"')
    configuration = _configuration_of(data["configuration"])
    worst = data["worst_case"]
    repeated = data["repeats"]
    if not isinstance(repeated, list):
        raise ValueError("repeats: expected a list")
    return TableRow(
        trial=_run_of(data, configuration, header),
        same_learning=bool(data["same_learning"]),
        worst_case=None if worst is None else decode(WorstCaseRecord, worst, "worst_case"),
        repeats=tuple(_run_of(run, configuration, header) for run in repeated),
    )


def _run_of(data: Mapping[str, Any], configuration: Configuration, header: Header) -> Trial:
    said = data["outcome"]
    outcome = Outcome(
        reason=None if said["reason"] is None else FailureReason(said["reason"]),
        phase=said["phase"],
        pool=None if said["pool"] is None else Pool(said["pool"]),
        message=said["message"],
        fresh=bool(said["fresh"]),
    )
    trial = Trial(
        study_id=0,
        number=_whole(data, "number", least=0),
        kind=TrialKind(data["kind"]),
        configuration=configuration,
        protocol=replace(header.protocol, natural=_whole(data, "natural_cycles", least=0)),
        rows_per_update=_whole(data, "rows_per_update"),
        state=TrialState(data["state"]),
        attempt=_whole(data, "attempt", least=0),
        source=str(data["source"]),
        outcome=outcome,
        cycles=tuple(_cycle_of(cycle, header) for cycle in data["cycles"]),
        startup={str(part): _number(data["startup"], part) for part in data["startup"]},
        worst_case_passed=bool(data["worst_case_passed"]),
        watchdog_peak=None if data["host_peak"] is None else _whole(data, "host_peak", least=0),
        started_at=_time(data, "started_at"),
        finished_at=_time(data, "finished_at"),
        seconds=_number(data, "seconds"),
    )
    return _checked(trial)


def _checked(trial: Trial) -> Trial:
    if trial.state not in (TrialState.COMPLETE, TrialState.FAIL):
        raise ValueError(f"state: expected COMPLETE or FAIL, got {trial.state.value}")
    if (trial.state is TrialState.COMPLETE) != (trial.outcome is not None and trial.outcome.ok):
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


def _whole(data: Mapping[str, Any], name: str, *, least: int = 1) -> int:
    value = data[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name}: expected a whole number of at least {least}, got {value!r}")
    return value


def _number(data: Mapping[str, Any], name: str) -> float:
    value = data[name]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{name}: expected a number of at least 0, got {value!r}")
    return float(value)


def _time(data: Mapping[str, Any], name: str) -> float | None:
    return None if data[name] is None else _number(data, name)

"""A recorded study and a recorded check of its answer: what the product states today, and what the check shows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.domain import Configuration, CycleKind, CycleRecord, Protocol, Trial, TrialKind, TrialState
from autotune.errors import UsageError
from autotune.statistics import evidence
from autotune.verify.in_turns import ANSWER, BASELINE, WARMING, Step, compare

OTHERS = 0.05
"""Share of the CPU from which on a recorded cycle was disturbed; one that was discarded below it had only drifted."""
ROWS = 8
"""Completions of a cycle, which the recordings leave out."""
CONFIGURATIONS = {BASELINE: Configuration({"micro_batch_size": 1}), ANSWER: Configuration({"micro_batch_size": 2})}
"""Made up: the recordings tell which of two configurations a trial ran, and not what it was."""
SIDES = {"base": BASELINE, "tuned": ANSWER}
"""As the recordings name them."""
PROTOCOL = Protocol()


def files_of(place: Path, *, quiet: bool = False) -> tuple[Path, Path]:
    """Returns the study's cycles and the check's steps: of a folder, or beside the named file of a study."""
    study = place if place.is_file() else place / ("study-quiet.jsonl" if quiet else "study.jsonl")
    return study, study.with_name(study.name.replace("study", "plain_trl", 1))


def rows_of(path: Path, *needed: str) -> list[dict[str, Any]]:
    """Returns the rows of a JSON Lines file.

    Raises:
        UsageError: it cannot be read, or a line lacks a key.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        missing = [key for key in needed if not isinstance(row, dict) or key not in row]
        if missing or not isinstance(row, dict):
            raise UsageError(f"{path}, line {number}: expected a JSON object with {', '.join(missing or needed)}")
        rows.append(row)
    return rows


def trials_of(rows: Sequence[Mapping[str, Any]]) -> list[Trial]:
    """Returns the recorded trials as the product's own, each with one of the two ``CONFIGURATIONS``.

    Of a confirmation's trials, the answer's has cycles at the maximum length, and the baseline's has none.
    """
    grouped: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        grouped.setdefault(row["trial"], []).append(row)
    return [_trial(number, grouped[number]) for number in sorted(grouped)]


def _trial(number: int, rows: Sequence[Mapping[str, Any]]) -> Trial:
    kind = TrialKind(rows[0]["kind"])
    longest = any(row["lengths"] == "maximum" for row in rows)
    answers = kind is TrialKind.SEARCH or (kind is TrialKind.CONFIRM and longest)
    return Trial(
        1,
        number,
        kind,
        CONFIGURATIONS[ANSWER if answers else BASELINE],
        PROTOCOL,
        ROWS,
        TrialState.COMPLETE,
        attempt=1,
        pair=rows[0]["pair"],
        cycles=tuple(_cycle(row) for row in rows),
        worst_case_passed=True,
    )


def _cycle(row: Mapping[str, Any]) -> CycleRecord:
    disturbed = (row["outside_cpu"] or 0.0) > OTHERS
    tokens = row["tokens"]
    return CycleRecord(
        index=row["cycle"],
        cycle_kind=CycleKind(row["lengths"]),
        seconds=row["seconds"],
        phases={},
        completion_tokens=tokens,
        prompt_tokens=0,
        rows=ROWS,
        updates=1,
        computed_tokens=tokens,
        lengths=tuple((tokens + place) // ROWS for place in range(ROWS)),
        drift=row["drift"],
        outside_cpu=row["outside_cpu"],
        accepted=row["accepted"] or not disturbed,
        noisy=row["noisy"] and disturbed,
    )


def steps_of(rows: Sequence[Mapping[str, Any]]) -> list[Step]:
    """Returns the steps that count: without the first ones of a turn, and without turns that were broken off."""
    turns: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for row in rows:
        turns.setdefault((row["run"], row["round"]), []).append(row)
    whole = max(map(len, turns.values()), default=0)
    return [
        Step(SIDES.get(run, run), number, row["step_seconds"], row["tokens"], row.get("outside_cpu"))
        for (run, number), turn in turns.items()
        if len(turn) == whole
        for row in turn
        if row["step"] >= WARMING
    ]


def judge_recording(place: Path, *, quiet: bool = False) -> dict[str, Any]:
    """Returns the gain that the product states from the recorded cycles, beside what the recorded check shows.

    Raises:
        UsageError: a file cannot be read, or holds something else.
    """
    study, plain = files_of(place, quiet=quiet)
    cycles = ("trial", "kind", "pair", "cycle", "lengths", "seconds", "tokens", "accepted", "noisy", "drift")
    trials = trials_of(rows_of(study, *cycles, "outside_cpu"))
    steps = steps_of(rows_of(plain, "run", "round", "step", "step_seconds", "tokens"))
    if {step.run for step in steps} != {BASELINE, ANSWER}:
        raise UsageError(f"{plain}: expected more than {WARMING} steps of each of two runs, {' and '.join(SIDES)}")
    verdict = compare(steps)
    gain = evidence.gain(trials, CONFIGURATIONS[ANSWER], CONFIGURATIONS[BASELINE])
    return {
        "gain": None if gain is None else round(gain.value, 4),
        "low": None if gain is None else round(gain.low, 4),
        "high": None if gain is None else round(gain.high, 4),
        "decided": gain is not None and gain.decided,
        "referee": [round(verdict.by_tokens - 1.0, 2), round(verdict.by_seconds - 1.0, 2)],
    }

"""The recorded table of every knob on two ranks (``tables/every-knob-cpu.md``), read back as the study it was.

Of each trial the table has the configuration, the peak of the whole tree and the seconds of rank 0's phases, to three
digits; phases' peaks of a rank are left aside.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

from autotune.domain import Configuration, Outcome, Phase, Protocol, Trial, TrialKind, TrialState
from autotune.proposals.forecasts import Task
from search_spaces.configuration import KnobValue, ModelFacts, Resources
from search_spaces.knobs import KNOBS, Kind

TABLE = Path(__file__).parent / "tables" / "every-knob-cpu.md"
RANKS, ROWS, PROMPT, COMPLETION = 2, 8, 96, 24
GIB = 1 << 30
MODEL = ModelFacts(134_515_008, 30, 576, 9, 3, 49_152, 8192)
"""SmolLM2-135M-Instruct."""
TASK = Task(Resources(cpu_cores=2, cpu_ranks=RANKS, host_memory=int(23.5 * GIB), model=MODEL), ROWS, PROMPT, COMPLETION)
_PHASES = (Phase.GENERATE.value, Phase.SYNC.value, Phase.LOGPROB.value, Phase.UPDATE.value)
FIXED: Mapping[str, KnobValue] = {"master_weights": "fp32"}


def trials(path: Path = TABLE) -> tuple[Trial, ...]:
    """As they came. Raises ``ValueError``: the file has no such table."""
    return tuple(_trial(row) for row in rows(path))


def seconds(path: Path = TABLE) -> tuple[dict[str, float], ...]:
    """Of the same trials, a cycle's seconds by ``Phase`` value; 0 where it did not occur. Raises as ``trials``."""
    return tuple({phase: float(row[f"{phase} s"]) for phase in _PHASES} for row in rows(path))


def rows(path: Path = TABLE) -> list[dict[str, str]]:
    """Of the file's first table of trials, cells by the names of its columns; later ones are of other machines. Raises
    ``ValueError``: the file has no such table."""
    lines = path.read_text(encoding="utf-8").splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("| # |")), None)
    if start is None:
        raise ValueError(f"{path}: no table of trials, which begins with '| # |'")
    names = _cells(lines[start])
    found = itertools.takewhile(lambda line: line.startswith("|"), lines[start + 2 :])
    return [dict(zip(names, _cells(row), strict=True)) for row in found]


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")]


def _trial(row: Mapping[str, str]) -> Trial:
    knobs = {name: _value(name, text) for name, text in row.items() if name in KNOBS}
    steps = ROWS // (RANKS * int(knobs["micro_batch_size"]))
    number = int(row["#"])
    return Trial(
        study_id=0,
        number=number,
        kind=TrialKind.SEARCH if number else TrialKind.BASELINE,
        configuration=Configuration({**FIXED, **knobs, "gradient_accumulation_steps": steps}),
        protocol=Protocol(),
        rows_per_update=ROWS,
        state=TrialState.COMPLETE,
        outcome=Outcome(),
        worst_case_passed=True,
        watchdog_peak=int(float(row["tree GiB"]) * GIB),
    )


def _value(name: str, text: str) -> KnobValue:
    if KNOBS[name].kind is Kind.BOOL:
        return text == "True"
    return int(text) if KNOBS[name].kind is Kind.INT else text

"""Studies in a file, one a line, so that a long comparison can be stopped and gone on with, and be read again.

A line is a ``Verdict`` with its machine and arm; ``found`` (the trials in words) is left out.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from benchmarks.decisions.studies import Arm, Place, Verdict, run

Key = tuple[str, str, float, int]
"""Machine, arm, budget in seconds, seed."""
TIMES = ("near_s", "close_s")
"""Infinite where never reached: ``null`` in a line, as JSON has no infinity."""


def studies(
    place: Place, arm: str, propose: Arm, budget: float, seeds: range, file: Path | None = None, *,
    name: str = "", show: bool = False, at_once: int = 1, nodes: int = 1,
) -> list[Verdict]:  # fmt: skip
    """Runs the studies that ``file`` does not hold, appends them to it, and returns all.

    Args:
        name: of the machine in the file and on standard error, the place's if empty.
        show: every trial of every study, on standard error.
    """
    found: list[Verdict] = []
    name, began = name or place.name, time.monotonic()
    known = read(file) if file is not None else {}
    for seed in seeds:
        key = name, arm, budget, seed
        found.append(known[key] if key in known else run(place, propose, budget, seed, at_once, nodes=nodes))
        if file is not None and key not in known:
            append(file, name, arm, found[-1])
        say(f"\r{name} {arm} {budget:.0f} s: {len(found)} of {len(seeds)} studies", end="")
        if show:
            say("\n" + "\n".join((*found[-1].found, f"{found[-1].unused_s:.0f} s unused: {found[-1].ended_by}")))
    say(f", {time.monotonic() - began:.0f} s")
    return found


def say(text: str, end: str = "\n") -> None:
    """On standard error."""
    print(text, file=sys.stderr, end=end, flush=True)


def append(path: Path, machine: str, arm: str, verdict: Verdict) -> None:
    """Adds one study."""
    line = asdict(verdict) | {"machine": machine, "arm": arm}
    del line["found"]
    line |= {name: None for name in TIMES if math.isinf(line[name])}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line, sort_keys=True) + "\n")


def read(path: Path) -> Mapping[Key, Verdict]:
    """The studies in the file; none if there is no file. Raises ``UsageError``: a line is no study."""
    if not path.exists():
        return {}
    found: dict[Key, Verdict] = {}
    for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            line: dict[str, Any] = json.loads(text)
            machine, arm = line.pop("machine"), line.pop("arm")
            verdict = Verdict(**line | {name: math.inf for name in TIMES if line[name] is None})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}, line {number}: expected a study that --record wrote ({error})") from error
        found[machine, arm, verdict.budget_s, verdict.seed] = verdict
    return found

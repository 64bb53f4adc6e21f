"""Studies in a file, one a line, so that a long comparison can be stopped and gone on with, and be read again.

A line is a ``Verdict`` with its machine and arm; ``found`` (the trials in words) is left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from autotune.errors import UsageError
from benchmarks.decisions.studies import Verdict

Key = tuple[str, str, float, int]
"""Machine, arm, budget in seconds, seed."""


def append(path: Path, machine: str, arm: str, verdict: Verdict) -> None:
    """Adds one study. What was never reached is ``null``: JSON has no infinity."""
    line = asdict(verdict) | {"machine": machine, "arm": arm}
    del line["found"]
    line["close_s"] = None if math.isinf(verdict.close_s) else verdict.close_s
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
            verdict = Verdict(**line | {"close_s": math.inf if line["close_s"] is None else line["close_s"]})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}, line {number}: expected a study that --record wrote ({error})") from error
        found[machine, arm, verdict.budget_s, verdict.seed] = verdict
    return found

"""``python -m benchmarks.study_table HOME STUDY [FILE.jsonl]``: the trials of a stored study as a table.

Prints Markdown: each trial's role, how it differs from the baseline, how it ended, tokens/hour, mean seconds of a
cycle by phase, the device's highest memory and the start-up. With a file, every trial is also written whole, a line
of JSON each after a header with the machine's fingerprint, as ``benchmarks.gpu`` writes them.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autotune.domain import Fingerprint, Study, Trial, TrialState
from autotune.errors import AutotuneError
from autotune.insights import phases
from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.gpu.journal import row_of
from search_spaces.knobs.model import show
from trainer.child.contract import encode

FOLLOWING = ("gradient_accumulation_steps", "steps_per_generation")
GIB = 1 << 30
MOST_WORDS = 70


def header(study: Study, fingerprint: Fingerprint | None) -> dict[str, Any]:
    """What all trials have in common; no path of the machine is in it."""
    workload = study.spec.workload
    return {
        "row": "header",
        "study": study.spec.name,
        "measures_a_gpu": study.spec.resources.device == "cuda",
        "model": encode(study.spec.resources.model),
        "hardware": encode(fingerprint.hardware) if fingerprint else None,
        "software": encode(fingerprint.software) if fingerprint else None,
        "fingerprint": fingerprint.digest if fingerprint else None,
        "rows_per_update": workload.rows_per_update,
        "max_prompt_tokens": workload.max_prompt_length,
        "max_completion_tokens": workload.max_completion_length,
        "recorded_lengths_tokens": list(study.lengths),
        "space": encode(study.spec.space),
        "baseline": dict(study.spec.baseline),
        "seed": study.spec.seed,
    }


def seconds(trial: Trial) -> dict[str, float]:
    """Mean seconds of the timed cycles by phase; empty where none was timed."""
    cycles = trial.speed_cycles() if trial.tokens_per_hour else ()
    names = {name for cycle in cycles for name in cycle.phases}
    return {name: statistics.fmean(c.phases.get(name, 0.0) for c in cycles) for name in names}


def line(trial: Trial, baseline: Trial) -> list[str]:
    """The cells of a trial."""
    changed = trial.configuration.difference(baseline.configuration)
    own = {n: here for n, (here, _) in changed.items() if n not in FOLLOWING and here is not None}
    words = ", ".join(f"{n} {show(v)}" for n, v in own.items()) or "the baseline"
    spent, used = seconds(trial), phases.device_peak(trial)
    ended = "ok" if trial.outcome is not None and trial.outcome.ok else "did not end"
    if trial.outcome is not None and not trial.outcome.ok:
        ended = trial.outcome.sentence()[:MOST_WORDS]
    return [
        str(trial.number),
        trial.source,
        words,
        ended if trial.state is not TrialState.RUNNING else "did not end",
        f"{trial.tokens_per_hour / 1e6:.3f}M" if trial.tokens_per_hour else "",
        *(f"{spent.get(name, 0.0):.2f}" if spent else "" for name in ("generate", "logprob", "update", "sync")),
        f"{used / GIB:.1f}" if used else "",
        f"{sum(trial.startup.values()):.0f}",
    ]


def table(trials: Sequence[Trial]) -> list[str]:
    """Markdown."""
    head = ["#", "source", "differs from the baseline", "ended", "tokens/hour", "generate s", "logprob s", "update s",
            "sync s", "device GiB", "start-up s"]  # fmt: skip
    rows = [line(trial, trials[0]) for trial in trials]  # the first is the baseline
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *rows)]


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 2 for bad input, with a sentence."""
    if len(arguments) not in (2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        store = open_store(read_settings(environ={}, home=Path(arguments[0])).database)
        study = store.study(arguments[1])
        trials, fingerprint = store.trials(study.id), store.fingerprint(study.id)
        store.close()
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("\n".join(table(trials)))
    if len(arguments) == 3:
        rows = [header(study, fingerprint), *({"row": "trial", **row_of(t, t.source)} for t in trials)]
        text = "".join(json.dumps(row, allow_nan=False, separators=(",", ":")) + "\n" for row in rows)
        Path(arguments[2]).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

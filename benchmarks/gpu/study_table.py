"""``python -m benchmarks.gpu.study_table HOME STUDY [FILE.jsonl]``: the trials of a stored study as a table.

Prints Markdown: each trial's role, how it differs from the baseline, how it ended, tokens/hour and, on one GPU that is
known, which share of its roofline they are, mean seconds of a cycle by phase, the device's highest memory and the
start-up. With a file, every trial is also written whole, a line of JSON each after a header with the machine's
fingerprint and with the notes of its process. With such a file alone the same is printed of what stands in it.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from autotune.domain import Fingerprint, Study, Trial
from autotune.errors import AutotuneError, UsageError
from autotune.insights.roofline import Roof, roof_for
from autotune.machine.data_sheets import Hardware
from autotune.settings import read_settings
from autotune.store import open_store
from benchmarks.gpu.journal import row_of, rows, trial_of
from search_spaces.configuration import ModelFacts
from search_spaces.knobs.model import show
from trainer.child.contract import encode

FOLLOWING = ("gradient_accumulation_steps", "steps_per_generation")
GIB = 1 << 30
MOST_WORDS = 70


def roof_of(head: Mapping[str, Any]) -> Roof | None:
    """By a ``header``; ``None`` where no GPU, several or an unknown one was used, or the model's shape is not known."""
    gpus = (head["hardware"] or {}).get("gpus") or []
    if not head["measures_a_gpu"] or len(gpus) != 1:
        return None
    known = {field.name for field in fields(ModelFacts)}
    model = ModelFacts(**{name: value for name, value in head["model"].items() if name in known})
    return roof_for(model, gpus[0]["name"], head["recorded_lengths_tokens"])


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


def line(trial: Trial, baseline: Trial, roof: Roof | None) -> list[str]:
    """The cells of a trial."""
    changed = trial.configuration.difference(baseline.configuration)
    own = {n: here for n, (here, _) in changed.items() if n not in FOLLOWING and here is not None}
    words = ", ".join(f"{n} {show(v)}" for n, v in own.items()) or "the baseline"
    spent, used = seconds(trial), trial.device_peak
    share = None if roof is None else roof.share(trial)
    ended = "ok" if trial.outcome is not None and trial.outcome.ok else "did not end"
    if trial.outcome is not None and not trial.outcome.ok:
        said = trial.outcome.sentence()
        ended = (said.partition(":")[0] if trial.outcome.pool else said)[:MOST_WORDS]  # what ran out says it all
    return [
        str(trial.number),
        trial.source,
        words,
        ended if trial.state.is_finished else "did not end",
        f"{trial.tokens_per_hour / 1e6:.3f}M" if trial.tokens_per_hour else "",
        *([] if roof is None else [f"{share:.1%}" if share else ""]),
        *(f"{spent.get(name, 0.0):.2f}" if spent else "" for name in ("generate", "logprob", "update", "sync")),
        f"{used / GIB:.1f}" if used else "",
        f"{sum(trial.startup.values()):.0f}",
    ]


def table(trials: Sequence[Trial], roof: Roof | None = None) -> list[str]:
    """Markdown; a share of the roofline only where there is one."""
    head = ["#", "source", "differs from the baseline", "ended", "tokens/hour",
            *([] if roof is None else ["of the roofline"]),
            "generate s", "logprob s", "update s", "sync s", "device GiB", "start-up s"]  # fmt: skip
    lines = [line(trial, trials[0], roof) for trial in trials]  # the first is the baseline
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *lines)]


def share_sentence(peak: Hardware) -> str:
    """One sentence that defines the roofline a share refers to."""
    flops, bandwidth = f"{peak.rate('bf16') / 1e12:.0f} TFLOP/s in bf16", f"{peak.bandwidth / 1e12:.2f} TB/s"
    return (
        "a roofline (`autotune/insights/roofline.py`: Williams et al. 2009, with the FLOP counts of Kaplan et "
        f"al. 2020) at {flops} and {bandwidth}, all rows decoded together and nothing ever waiting."
    )


def stored(home: Path, name: str) -> tuple[dict[str, Any], list[Trial], list[list[Any]]]:
    """(Header, trials, notes of each) of a study. Raises ``AutotuneError``."""
    store = open_store(read_settings(environ={}, home=home).database)
    study = store.study(name)
    trials, fingerprint = store.trials(study.id), store.fingerprint(study.id)
    notes = [encode(store.notes(study.id, trial.number)) for trial in trials]
    store.close()
    return header(study, fingerprint), list(trials), notes


def recorded(path: Path) -> tuple[dict[str, Any], list[Trial]]:
    """(Header, trials) of a file this command wrote. Raises ``UsageError``."""
    head, *others = (list(rows(path)) if path.is_file() else []) or [{}]
    if head.get("row") != "header" or "recorded_lengths_tokens" not in head or not others:
        raise UsageError(f"{path}: no file of trials that this command wrote")
    return head, [trial_of(row, str(path)).with_(source=row["role"]) for row in others]


def main(arguments: Sequence[str]) -> int:
    """Returns the exit status: 2 for bad input, with a sentence."""
    if len(arguments) not in (1, 2, 3):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        alone = len(arguments) == 1
        head, trials, notes = (*recorded(Path(arguments[0])), []) if alone else stored(Path(arguments[0]), arguments[1])
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    roof = roof_of(head)
    print("\n".join(table(trials, roof)))
    if roof is not None:
        print(f"\nThe most the GPU could give is {share_sentence(roof.peak)}")
    if len(arguments) == 3:
        both = zip(trials, notes, strict=True)
        whole = [head, *({"row": "trial", **row_of(trial, trial.source), "notes": own} for trial, own in both)]
        text = "".join(json.dumps(row, allow_nan=False, separators=(",", ":")) + "\n" for row in whole)
        Path(arguments[2]).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

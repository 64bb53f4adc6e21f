"""Do stated figures last? Three studies, then each answer ten times longer at natural lengths, in one table.

``python -m benchmarks.three_studies --out DIR`` runs three short studies of different models, lengths and rollouts, and
after them ``autotune verify --steps 10x`` of each recommendation. One call takes ``--slice-s`` (540) seconds at most,
says what is left, and the same command goes on: a step that still runs when a call ends goes on by itself, and the
next call waits for it. Ctrl-C ends the running step too; a study that was broken off continues, a long run begins
anew. What each step gave is in DIR, and when all have ended the table is printed, and printed again by every later
call. About 40 minutes on two quiet cores.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from autotune.wording.numbers import format_duration, rate, signed_percent
from benchmarks.background import Running
from benchmarks.gpu.architectures import Architecture
from trainer.child.contract import write_atomic

ROOT = Path(__file__).resolve().parents[1]
MODEL_SCRIPT = ROOT / "benchmarks" / "gpu" / "random_model.py"
RANDOM = Architecture("random-15m", 6, 384, 1536, 6, 2, 4096, 4096, 1e4, "made up: 15M random parameters", 20)
EXIT_MORE = 75
"""More is left to do (EX_TEMPFAIL)."""
EXIT_FAILED = 1
PAUSE_S = 0.5
# `verify` ends with 3 where the difference is over 5 %: that is a result.
GOOD = {"model": (0,), "study": (0,), "verify": (0, 3)}

KNOBS = {
    "micro_batch_size": [2, 4, 8],
    "gradient_checkpointing": [True, False],
    "optimizer": ["adamw_torch_fused", "adamw_torch"],
    "host_allocator": ["default", "keep"],
}
VLLM = {"rollout_engine": ["vllm"], "kv_cache_memory_bytes": [67_108_864]}
REWARD = '''"""Rewards that differ within a group, whatever a random model says: how much of it is vowels."""


def score(prompts, completions, **columns):
    """One number for each completion."""
    return [sum(letter in "aeiou" for letter in text) / max(1, len(text)) for text in completions]
'''


@dataclass(frozen=True)
class Case:
    """One study."""

    name: str
    what: str
    longest: int
    """Completion tokens."""
    rows: int
    """Completions per update."""
    vllm: bool
    random: bool
    """A random model instead of the bundled one."""


CASES = (
    Case("short-vllm", "SmolLM2-135M, at most 32 tokens, vLLM", 32, 8, vllm=True, random=False),
    Case(
        "tail-transformers", "15M random, at most 64 tokens (long tail), transformers", 64, 16, vllm=False, random=True
    ),
    Case("long-vllm", "15M random, at most 128 tokens (long tail), vLLM", 128, 8, vllm=True, random=True),
)


@dataclass(frozen=True)
class Place:
    """Where it runs, and with what."""

    out: Path
    python: str
    bundled: str
    budget: str = "330s"
    steps: str = "10x"
    tool: tuple[str, ...] = (sys.executable, "-m", "autotune.cli")

    @property
    def home(self) -> Path:
        return self.out / "home"


@dataclass(frozen=True)
class Step:
    """A command whose output is kept; ``kind`` says which exit codes are results."""

    name: str
    kind: str
    argv: tuple[str, ...]


def steps(place: Place, cases: Sequence[Case] = CASES) -> list[Step]:
    """All there is to do, in order."""
    found = []
    if any(case.random for case in cases):
        recipe, folder = str(place.out / "recipe.json"), str(place.out / RANDOM.name)
        found.append(Step("model", "model", (place.python, str(MODEL_SCRIPT), recipe, folder)))
    for case in cases:
        found.append(Step(f"{case.name}.study", "study", study_words(place, case)))
    for case in cases:
        words = ("verify", case.name, "--steps", place.steps, "--json", "--home", str(place.home))
        found.append(Step(f"{case.name}.verify", "verify", (*place.tool, *words)))
    return found


def study_words(place: Place, case: Case) -> tuple[str, ...]:
    """The command that runs (or continues) a study."""
    model = str(place.out / RANDOM.name) if case.random else place.bundled
    own = ("--data", str(place.out / "prompts.jsonl"), "--reward", f"{place.out / 'vowels.py'}:score")
    return (
        *place.tool, "start", "--name", case.name, "--budget", place.budget, "--model", model,
        "--python", place.python, "--space", str(place.out / f"{case.name}.yaml"),
        "--max-completion-length", str(case.longest), "--effective-batch", str(case.rows),
        *(("--set", "rollout_engine=vllm") if case.vllm else ()), *(own if case.random else ()),
        "--no-live", "--no-serve", "--quiet", "--home", str(place.home),
    )  # fmt: skip


def write_inputs(place: Place, cases: Sequence[Case] = CASES) -> None:
    """Spaces, the random model's recipe, its prompts and reward; the same every time."""
    place.out.mkdir(parents=True, exist_ok=True)
    for case in cases:
        knobs = {**KNOBS, **(VLLM if case.vllm else {"rollout_engine": ["transformers"]})}
        space = {"description": case.what, "require": {"device": "cpu"}, "knobs": knobs}
        write_atomic(place.out / f"{case.name}.yaml", yaml.safe_dump(space, sort_keys=False))
    write_atomic(place.out / "recipe.json", json.dumps(RANDOM.recipe()))
    write_atomic(place.out / "vowels.py", REWARD)
    lines = [json.dumps({"prompt": f"{n} and {n * 7 % 31}: " + "la " * (2 + n % 9)}) for n in range(128)]
    write_atomic(place.out / "prompts.jsonl", "\n".join(lines) + "\n")


def running_of(place: Place, step: Step) -> Running:
    """Its process, running or not."""
    return Running(place.out / "steps" / step.name, step.argv, ROOT)


def go_on(place: Place, until: float, cases: Sequence[Case] = CASES) -> int:
    """Run what is left until then (``time.monotonic``); the exit code of the call."""
    everything = steps(place, cases)
    for step in everything:
        running = running_of(place, step)
        code = running.ended()
        if code is None:
            code = _wait(running, step, until)
        if code is None:
            left = [s.name for s in everything if running_of(place, s).ended() is None]
            print(f"this call's time is over; {left[0]} goes on by itself, then {', '.join(left[1:]) or 'the table'}: "
                  "call again")  # fmt: skip
            return EXIT_MORE
        if code not in GOOD[step.kind]:
            print(f"{step.name} ended with {code}; see {running.log}; the next call tries it again")
            running.forget()
            return EXIT_FAILED
    print(table(place, cases))
    return 0


def _wait(running: Running, step: Step, until: float) -> int | None:
    """The exit code, or ``None`` when the time is over."""
    began = time.monotonic()
    if running.alive() is None:
        if began >= until:
            return None
        print(f"{step.name} begins", flush=True)
        running.start()
    while (code := running.ended()) is None and time.monotonic() < until:
        if running.alive() is None and running.ended() is None:
            print(f"{step.name} was killed; it begins again", flush=True)
            running.start()
        time.sleep(PAUSE_S)
    if code is not None:
        print(f"{step.name} ended after {format_duration(time.monotonic() - began)} of this call", flush=True)
    return code


def table(place: Place, cases: Sequence[Case] = CASES) -> str:
    """One row for each study, and the reason under it where it is over 5 %."""
    heads = ("study", "stated", "predicted", "measured", "difference", "raw", "lengths", "cycles", "within 5 %")
    rows, reasons = [], []
    for case in cases:
        found = json.loads(running_of(place, Step(f"{case.name}.verify", "verify", ())).output.read_text())
        rows.append(_row(case, found))
        if not found["within_5_percent"]:
            reasons.append(f"{case.name}: {found['reason']}")
    lines = ["| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * len(heads), *rows)]
    legend = (
        "Tokens/hour. stated: the recommendation, at the recorded lengths; predicted: that at the lengths observed; "
        "measured: a run of ten times the cycles, in a fresh process at natural lengths, disturbed cycles left out; "
        "raw: all its cycles over stated; lengths: mean completion tokens, stated and observed."
    )
    return "\n".join([*lines, "", *(f"- {case.name}: {case.what}" for case in cases), "", legend, *reasons])


def _row(case: Case, found: dict[str, Any]) -> list[str]:
    interval = f"{signed_percent(found['ratio_low'] - 1)} to {signed_percent(found['ratio_high'] - 1)}"
    stated, observed = found["stated_mean_completion_tokens"], found["observed_mean_completion_tokens"]
    return [
        case.name,
        rate(found["stated_tokens_per_hour"]),
        rate(found["predicted_tokens_per_hour"]),
        rate(found["measured_tokens_per_hour"]),
        f"{signed_percent(found['ratio'] - 1)} ({interval})",
        signed_percent(found["raw_tokens_per_hour"] / found["stated_tokens_per_hour"] - 1),
        f"{stated:.1f}, {observed:.1f}",
        f"{found['cycles']} ({found['disturbed_cycles']} disturbed)",
        "yes" if found["within_5_percent"] else "no",
    ]


def main(arguments: Sequence[str]) -> int:
    """The command."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.three_studies", description=(__doc__ or "").split("\n")[0]
    )
    made.add_argument("--out", required=True, type=Path, help="folder of this run; the same one goes on with it")
    made.add_argument("--slice-s", type=float, default=540.0, help="seconds of this call (540)")
    made.add_argument("--budget", default="330s", help="of each study (330s)")
    made.add_argument("--steps", default="10x", help="of each long run (10x)")
    made.add_argument("--python", default=os.environ.get("AUTOTUNE_TEST_PYTHON", str(ROOT / ".venv-train/bin/python")))
    bundled = str(ROOT / ".models" / "SmolLM2-135M-Instruct")
    made.add_argument("--model", default=os.environ.get("AUTOTUNE_BUNDLED_MODEL", bundled), help="the bundled model")
    made.add_argument("--stop", action="store_true", help="end the step that runs, and stop")
    given = made.parse_args(arguments)
    place = Place(given.out.absolute(), given.python, given.model, given.budget, given.steps)
    if given.stop:
        for step in steps(place):
            running_of(place, step).stop()
        return 0
    write_inputs(place)
    try:
        return go_on(place, time.monotonic() + given.slice_s)
    except KeyboardInterrupt:
        for step in steps(place):
            running_of(place, step).stop()
        print("stopped; the same command goes on", file=sys.stderr)
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

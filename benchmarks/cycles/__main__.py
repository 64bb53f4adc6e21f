"""``python -m benchmarks.cycles --out DIR``: does a trial's cycle take as long as plain TRL's, from the second one on?

A model that keeps the host busy (24 layers, 64 wide) is trained three times at once: by TRL alone (``plain``), in a
trial whose process was started (``cold``), and in one whose process was forked from a preloaded one (``forked``). They
take turns cycle by cycle: each waits in its reward until the other two have made theirs, so what the machine does in
these minutes meets all three alike. The reward's seconds are taken off all three. While another has its turn, a
trial's tuner is stopped, so it slows its own trial only. A round is three new processes; the order changes from round
to round. All completions have the most tokens.

Printed: seconds of each cycle, and the ratio of a trial's cycles to plain TRL's of the same number, from the second on,
with a 95 % interval (Student's t over the rounds' logarithms). A plain step is from one step's end to the next, all a
user waits for; a trial's cycle is the figure it reports.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune import wiring
from autotune.errors import AutotuneError
from autotune.machine import hardware
from autotune.settings import read_settings
from autotune.specification.request import Request
from benchmarks.cycles.processes import COLD, FORKED, MODES, PLAIN, Bench, Round
from benchmarks.gpu import inputs
from benchmarks.gpu.architectures import Architecture
from benchmarks.gpu.run import Asked
from benchmarks.gpu.visit import ROOT
from benchmarks.ratios import interval

NEVER = 10**6
"""Tokens until a completion ends by itself."""
MODEL = Architecture("host-bound", 24, 64, 256, 4, 2, 1024, 4096, 1e4, "made up, to keep the host busy", NEVER)
PROMPT = 64
WITHIN = 0.05
"""By how much a trial's cycles may differ from plain TRL's."""


def prepared(wanted: argparse.Namespace) -> Bench:
    """Raises ``AutotuneError``: the interpreter cannot be used."""
    out = wanted.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    settings = read_settings(environ={}, home=out / "home")
    request = Request(
        model=str(inputs.model(MODEL, wanted.python, out, "autotune:cycles", Asked())),
        data=str(inputs.prompts(out, PROMPT, 0, shortest=PROMPT)),
        rewards=(inputs.reward(out),),
        python=wanted.python,
        space="cpu",
        gpus=0,
        rows_per_update=wanted.rows,
        max_completion_length=wanted.completion,
        name="cycles",
    )
    spec = wiring.prepare(request, settings, lambda line: print(line, file=sys.stderr, flush=True)).spec
    return Bench(out, spec, settings, wanted.cycles)


def measured(bench: Bench, rounds: int, limit_s: float) -> list[dict[str, list[float]]]:
    """As many of the rounds as there is time for; the next one is taken to be as long as the longest."""
    found: list[dict[str, list[float]]] = []
    longest, began = 0.0, time.monotonic()
    for number in range(rounds):
        if found and time.monotonic() - began + longest > limit_s:
            break
        at = time.monotonic()
        turned = (*MODES[number % len(MODES) :], *MODES[: number % len(MODES)])
        found.append(Round(bench, bench.out / "round", turned).run())
        longest = max(longest, time.monotonic() - at)
        medians = ", ".join(f"{mode} {statistics.median(found[-1][mode][1:]):.2f} s" for mode in MODES)
        print(f"round {number + 1}: {medians}", file=sys.stderr, flush=True)
    return found


def judged(rounds: Sequence[Mapping[str, Sequence[float]]]) -> dict[str, Any]:
    """By kind of trial: its cycles over plain TRL's from the second on, with a 95 % interval over the rounds."""
    found: dict[str, Any] = {}
    for mode in (COLD, FORKED):
        logs = [
            statistics.fmean(math.log(a / b) for a, b in zip(one[mode][1:], one[PLAIN][1:], strict=True))
            for one in rounds
        ]
        found[mode] = dict(zip(("ratio", "low", "high"), interval(logs), strict=True))
    return found


def words(rounds: Sequence[Mapping[str, Sequence[float]]], found: Mapping[str, Any]) -> list[str]:
    """For people."""
    numbers = range(1, len(rounds[0][PLAIN]) + 1)
    lines = [f"| median seconds of cycle | {' | '.join(map(str, numbers))} |", "|---" * (len(numbers) + 1) + "|"]
    for mode in MODES:
        cells = (f"{statistics.median(one[mode][n - 1] for one in rounds):.2f}" for n in numbers)
        lines.append(f"| {mode} | {' | '.join(cells)} |")
    lines.append("")
    for mode, one in found.items():
        lines.append(
            f"{mode} / plain, from the second cycle on: {one['ratio']:.3f} (95 % interval {one['low']:.3f} to "
            f"{one['high']:.3f}, {len(rounds)} rounds)"
        )
    return lines


def machine() -> str:
    """Describes this machine in one line."""
    found = hardware.describe()
    return f"{found['cpu']}, {found['cores']} cores, {found['memory'] / 2**30:.0f} GiB of memory."


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.cycles", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--out", required=True, type=Path, help="folder of this run; the model is kept in it")
    made.add_argument("--rounds", type=int, default=6, help="of three new processes (6)")
    made.add_argument("--cycles", type=int, default=7, help="of each process, the first among them (7)")
    made.add_argument("--rows", type=int, default=16, help="completions of an update (16)")
    made.add_argument("--completion", type=int, default=24, help="tokens of each completion (24)")
    made.add_argument(
        "--threads", type=int, default=1, help="of torch; of so small a model more wait for each other (1)"
    )
    made.add_argument("--limit-s", type=float, default=540.0, help="seconds after which no round is begun (540)")
    made.add_argument("--json", action="store_true", help="print one JSON object")
    made.add_argument(
        "--python",
        type=os.path.abspath,  # trials run in folders of their own
        default=os.environ.get("AUTOTUNE_TEST_PYTHON", str(ROOT / ".venv-train" / "bin" / "python")),
        help="path of the training interpreter",
    )
    return made


def main(arguments: Sequence[str]) -> int:
    """0: both kinds of trial are within ``WITHIN`` of plain TRL; 1: one is not; 2: refused."""
    reader = parser()
    wanted = reader.parse_args(arguments)
    if wanted.rounds < 1 or wanted.cycles < 2:
        reader.error("expected at least one round of two cycles")
    os.environ["OMP_NUM_THREADS"] = str(wanted.threads)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # what was started is ended before
    try:
        rounds = measured(prepared(wanted), wanted.rounds, wanted.limit_s)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    found = judged(rounds)
    within = all(abs(one["ratio"] - 1.0) <= WITHIN for one in found.values())
    if wanted.json:
        known = {mode: {name: None if math.isnan(v) else v for name, v in one.items()} for mode, one in found.items()}
        print(json.dumps({**known, "within": within, "machine": machine(), "rounds": rounds}))
    else:
        print("\n".join([machine(), "", *words(rounds, found)]))
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

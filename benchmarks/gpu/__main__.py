"""``python -m benchmarks.gpu --arch qwen2.5-0.5b --out DIR``: GPU tests, then real trials all over the space.

One call does as much as fits into a slice and says what is left; the same command goes on. When all is done,
or with ``--finish``, the table and its summary are written.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from autotune.errors import AutotuneError, MachineError, UsageError
from autotune.machine import hardware
from autotune.machine.clock import SystemClock
from benchmarks.gpu import checks, design, journal, run, table
from benchmarks.gpu.architectures import ARCHITECTURES, TINY
from benchmarks.gpu.beginning import begin
from benchmarks.gpu.slices import Slice, may_start, predicted, whole
from benchmarks.gpu.summary import summary

DEFAULT_PYTHON = checks.ROOT / ".venv-train" / "bin" / "python"
SHORTEST_SLICE_S = 60.0
MOST_ROUNDS = 10
MOST_SAID = 160


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu", description=__doc__.split("\n\n")[0] if __doc__ else ""
    )
    made.add_argument("--arch", required=True, choices=sorted(ARCHITECTURES), help="whose shapes the random model has")
    made.add_argument("--out", required=True, type=Path, help="folder of this run; the same one goes on with it")
    made.add_argument("--slice-s", type=float, default=540.0, help="seconds of this call (540)")
    made.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="cpu only tries the command")
    made.add_argument("--python", default=os.environ.get("AUTOTUNE_TEST_PYTHON", str(DEFAULT_PYTHON)),
                      help="the training interpreter")  # fmt: skip
    made.add_argument(
        "--trials", type=int, default=72, help=f"{design.FEWEST} to {design.MOST}, confirmation aside (72)"
    )
    made.add_argument("--rows", type=int, default=64, help="completions of an update (64)")
    made.add_argument("--completion", type=int, default=512, help="most tokens of a completion (512)")
    made.add_argument("--prompt", type=int, default=256, help="most tokens of a prompt (256)")
    made.add_argument("--rounds", type=int, default=design.ROUNDS, help="of the confirmation (3); 0 for none")
    made.add_argument("--alike", type=int, default=1, help="trials in a row that share a process and its engine (1)")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--no-tests", action="store_true", help="leave the GPU tests out; the summary says so")
    made.add_argument("--allow-busy", action="store_true", help="accept a GPU that others use; marked in the logs")
    made.add_argument("--cold", action="store_true", help="a process for each trial, not forked from a loaded one")
    made.add_argument("--finish", action="store_true", help="write the table of what is there, run nothing")
    return made


def wanted_of(given: argparse.Namespace) -> run.RunRequest:
    """What was asked for, checked.

    Raises:
        UsageError, MachineError: naming the option, and what was expected.
    """
    trying = given.arch == TINY or given.device == "cpu"
    low = 2 if trying else design.FEWEST
    if not low <= given.trials <= design.MOST:
        raise UsageError(f"--trials {given.trials}: expected {low} to {design.MOST}")
    for name in ("rows", "completion", "prompt", "alike"):
        if getattr(given, name) < 1:
            raise UsageError(f"--{name} {getattr(given, name)}: expected a whole number above 0")
    if not 0 <= given.rounds <= MOST_ROUNDS:
        raise UsageError(f"--rounds {given.rounds}: expected 0 to {MOST_ROUNDS}")
    if given.slice_s < SHORTEST_SLICE_S:
        raise UsageError(f"--slice-s {given.slice_s:g}: expected at least {SHORTEST_SLICE_S:g} seconds")
    if given.device == "cpu" and given.arch != TINY:
        raise UsageError(f"--device cpu only tries the command, with --arch {TINY}; it measures no architecture")
    if given.device == "cuda" and not hardware.visible_gpus():
        raise MachineError(f"no CUDA GPU is visible here; --arch {TINY} --device cpu tries the command without one")
    if not os.access(given.python, os.X_OK):
        raise UsageError(f"--python {given.python} is not an interpreter that can be run")
    return run.RunRequest(
        ARCHITECTURES[given.arch], given.device, os.path.abspath(given.python), given.out.resolve(), given.trials,
        given.rows, given.completion, given.prompt, given.rounds, given.seed, given.allow_busy, given.cold, given.alike,
    )  # fmt: skip


def do_checks(wanted: run.RunRequest, part: Slice, stop: run.Asked) -> int:
    """Run the GPU tests that are not done, as far as they fit; returns how many files are left."""
    kept = wanted.out / "checks.jsonl"
    done = {row["file"]: row for row in journal.rows(kept)}
    left = [path for path in checks.files() if path.name not in done]
    clock = SystemClock()
    for path in list(left):
        room = part.left(clock.monotonic())
        if stop.level or not may_start(checks.FIRST_S, room, part.room):
            break
        print(f"GPU tests: {path.name}", flush=True)
        row, cut = checks.run(path, wanted.python, wanted.out / "checks", wanted.tag, room, stop)
        if stop.level or (cut and not whole(room, part.room)):
            break
        journal.append(kept, row)
        left.remove(path)
        print(f"  {row['passed']} passed, {len(row['failed'])} failed, {len(row['skipped'])} skipped", flush=True)
    return len(left)


def do_trials(here: run.Run, part: Slice, stop: run.Asked) -> None:
    """Run the next trials, as long as they fit."""
    clock = SystemClock()
    while not stop.level and (step := here.next()) is not None:
        number, entry = step
        left = part.left(clock.monotonic())
        cost = predicted(here.trials(), entry.configuration, here.protocol())
        if not may_start(cost, left, part.room):
            return
        trial = here.execute(number, entry, left, part.room, stop)
        if trial is None:
            return
        said = f"{trial.tokens_per_hour:,.0f} tokens/hour" if trial.tokens_per_hour else ""
        if trial.outcome is not None and not trial.outcome.ok:
            said = trial.outcome.sentence()[:MOST_SAID]
        print(
            f"trial {number} of {len(here.planned())} ({entry.role}), {trial.seconds or 0.0:.0f} s: {said}", flush=True
        )


def go(arguments: Sequence[str], stop: run.Asked) -> int:
    """One slice. Returns the exit status.

    Raises:
        AutotuneError: bad input, or something this machine lacks.
    """
    given = parser().parse_args(arguments)
    part = Slice(SystemClock().monotonic(), given.slice_s)
    wanted = wanted_of(given)
    if wanted.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    here = begin(wanted, stop)
    why = "left out by --no-tests" if given.no_tests else "no GPU" if given.device == "cpu" else checks.lacking() or ""
    files_left = 0
    if not given.finish:
        files_left = 0 if why else do_checks(wanted, part, stop)
        if not files_left:
            try:
                do_trials(here, part, stop)
            finally:
                here.runner.close()
        left = left_of(here, files_left)
        if left:
            print(f"left: {left}; go on with:\n  python -m benchmarks.gpu {shlex.join(arguments)}")
            return 0
    return finish(here, why)


def left_of(here: run.Run, files_left: int) -> str:
    """What is still to be run, in words; empty if nothing."""
    done, planned = {int(row["number"]) for row in here.rows()}, here.planned()
    trials = sum(number not in done for number in range(len(planned)))
    parts = [f"{files_left} files of GPU tests"] if files_left else []
    parts += [f"{trials} of {len(planned)} trials"] if trials else []
    parts += ["the confirmation"] if trials and len(planned) == len(here.settled()) else []
    return ", ".join(parts)


def finish(here: run.Run, why: str) -> int:
    """Write the table. Returns 1 if a GPU test failed.

    Raises:
        UsageError: there is nothing to write.
    """
    rows, done = here.rows(), tuple(journal.rows(here.wanted.out / "checks.jsonl"))
    if not rows:
        raise UsageError(f"{here.wanted.out} holds no finished trial yet; run without --finish first")
    roles = tuple(str(row["role"]) for row in rows)
    finished = table.Finished(here, here.trials(), roles, done, "" if done else why)
    for path in table.write(finished, rows, list(summary(finished))):
        print(f"written: {path}")
    print(f"written: {table.write_for_searches(finished)}")
    return 1 if any(row["failed"] for row in done) else 0


def main(arguments: Sequence[str] | None = None, stop: run.Asked | None = None) -> int:
    """Returns the exit status: 2 for bad input, 1 at the end if a GPU test failed."""
    if stop is None:
        stop = run.Asked()
        stop.listen()
    try:
        return go(sys.argv[1:] if arguments is None else arguments, stop)
    except AutotuneError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

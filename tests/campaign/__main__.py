"""Random faults at random points of random studies, and what must hold after each.

    python -m tests.campaign --minutes 10 --seed 1
    python -m tests.campaign --seed 1 --study 7        (repeats one study)
    python -m tests.campaign --mutant lock             (a guard is taken out: exit code 0 if that is noticed)

A study is run, disturbed and run again until it is done, then compared with one that nothing happened to. The seed
decides the studies, the faults and after how many records of the tuner each comes. Studies are of made-up GPUs and
a scripted trainer; with AUTOTUNE_TEST_PYTHON some are of real trials of a tiny model. Exit code 1: something did not
hold; the folder of that study is kept.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

from autotune.domain import StudyStatus, Trial
from autotune.errors import AutotuneError
from tests.campaign import invariants, mutants
from tests.campaign.faults import FAULTS, Fault
from tests.campaign.plans import Plan, drawn, is_real
from tests.campaign.study import Study, mount
from tests.support.postgresql import server
from tests.support.trl_trials import TRAINING_VARIABLE

RUNS = 5
"""A study that was disturbed so often is left in peace."""
RECORDS = 25
"""A fault comes after at most so many."""
PLANS = 40
"""Studies drawn, of which the first is taken that the fault due can come to."""


class Campaign:
    """All studies of one seed."""

    def __init__(self, seed: int, folder: Path, stack: ExitStack, *, until_wrong: bool) -> None:
        self.seed, self.folder, self.until_wrong = seed, folder, until_wrong
        self.real = bool(os.environ.get(TRAINING_VARIABLE))
        self.disk = _can_mount(folder)
        self.server = cache(lambda: stack.enter_context(server()))
        self.whole = cache(self._whole)

    def study(self, number: int) -> dict[str, Any]:
        """One study from its beginning to its end, disturbed; what was met and what did not hold."""
        rng = random.Random(f"{self.seed}/{number}")
        plan, due = study_of(self.seed, number, rng, real=self.real, disk=self.disk)
        began = time.monotonic()
        study = Study(self._new(f"{number}"), plan, self.server)
        runs: list[dict[str, Any]] = []
        try:
            for turn in range(RUNS + 1):
                faults = faults_of(rng, plan, None if turn else due) if turn < RUNS else []
                runs.append(_run(study, faults, rng))
                if is_over(study) or (self.until_wrong and runs[-1]["wrong"]):
                    break
            runs.append({"code": 0, "met": [], "wrong": self._end(study, runs)})
        finally:
            study.close()
        if not any(run["wrong"] for run in runs):
            shutil.rmtree(study.folder)
        return {"study": number, "plan": asdict(plan), "runs": runs, "seconds": round(time.monotonic() - began, 1)}

    def _end(self, study: Study, runs: list[dict[str, Any]]) -> list[str]:
        if self.until_wrong and runs[-1]["wrong"]:
            return []
        if not is_over(study):
            return ["it did not end"]
        return list(invariants.at_the_end(study, self.whole(study.plan.undisturbed)))

    def _whole(self, plan: Plan) -> tuple[Trial, ...]:
        """The trials where nothing happens; none where they depend on what ends first, or on what was measured."""
        if plan.real or plan.at_once > 1:
            return ()
        study = Study(self._new("undisturbed"), plan, self.server)
        run = study.run_with(())
        assert run.code == 0, run.screen
        store = study.store()
        try:
            return store.trials(1)
        finally:
            store.close()
            shutil.rmtree(study.folder)

    def _new(self, name: str) -> Path:
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder))


def study_of(seed: int, number: int, rng: random.Random, *, real: bool, disk: bool) -> tuple[Plan, Fault]:
    """The ``number``-th study, and the fault that it meets in any case.

    Each kind has its turn, in an order of the seed's; those that one guard alone stands against have theirs first.
    """
    order = random.Random(seed).sample(FAULTS, len(FAULTS))
    order.sort(key=lambda fault: not fault.alone)
    turn = sum(not is_real(earlier, real=real) for earlier in range(number))  # a real one takes nobody's
    turns = [order[(turn + more) % len(order)] for more in range(len(order))]
    plans = [drawn(rng, number, real=real, disk=disk) for _ in range(PLANS)]
    return next((plan, fault) for fault in turns for plan in plans if fault.suits(plan))


def faults_of(rng: random.Random, plan: Plan, due: Fault | None) -> list[tuple[int, Fault]]:
    """Of one run of the tuner, in the order in which they come; those that end it last. ``due`` comes in any case."""
    count = rng.randint(1, 4)
    found = rng.sample([fault for fault in FAULTS if fault.suits(plan)], count)
    if due is not None:  # beside it only what does not end the tuner before
        mild = [fault for fault in found if 0 in fault.codes and not fault.before and fault is not due]
        found = [due, *mild][:count]
    if any(fault.before for fault in found):
        return [(0, next(fault for fault in found if fault.before))]
    found.sort(key=lambda fault: 0 not in fault.codes)
    return list(zip(sorted(rng.randint(1, RECORDS) for _ in found), found, strict=True))


def _run(study: Study, faults: list[tuple[int, Fault]], rng: random.Random) -> dict[str, Any]:
    own = random.Random(rng.random())
    acts = [
        (records, fault.name, lambda process, fault=fault: fault.act(study, process, own) or ())
        for records, fault in faults
        if not fault.before
    ]
    for fault in (fault for _, fault in faults if fault.before):
        study.close_follower()
        fault.act(study, None, own)  # type: ignore[arg-type]  # nothing runs yet
    run = study.run_with(acts)
    study.calm()
    met = run.met + [fault.name for _, fault in faults if fault.before]
    wrong = list(invariants.after(study, run, [fault for _, fault in faults]))
    drawn_at = [[records, fault.name] for records, fault in faults]
    return {"code": run.code, "drawn": drawn_at, "met": met, "wrong": wrong, "seconds": round(run.seconds, 1)}


def is_over(study: Study) -> bool:
    try:
        store = study.store()
    except AutotuneError:
        return False
    try:
        return [found.status for found in store.studies()] == [StudyStatus.DONE]
    finally:
        store.close()


def _can_mount(folder: Path) -> bool:
    place = Path(tempfile.mkdtemp(dir=folder))
    if can := mount("-t", "tmpfs", "tmpfs", str(place)):
        subprocess.run(["umount", str(place)], check=True)
    place.rmdir()
    return can


def campaign(given: argparse.Namespace) -> int:
    """The exit code."""
    until, done = time.monotonic() + 60.0 * given.minutes, []
    folder = Path(tempfile.mkdtemp(prefix="campaign-"))
    numbers = range(given.first, 10**9) if given.study is None else [given.study]
    with ExitStack() as stack:
        all_of_them = Campaign(given.seed, folder, stack, until_wrong=given.until_wrong)
        for number in numbers:
            found = all_of_them.study(number)
            done.append(found)
            wrong = [sentence for run in found["runs"] for sentence in run["wrong"]]
            met = ", ".join(name for run in found["runs"] for name in run["met"]) or "nothing"
            print(f"study {number} ({found['seconds']:.0f} s; {met}): {'; '.join(wrong) or 'all holds'}", flush=True)
            write(given, done)
            if time.monotonic() > until or (wrong and given.until_wrong):
                break
    violated = sum(len(run["wrong"]) for found in done for run in found["runs"])
    if not violated:
        shutil.rmtree(folder)
    print(table(given, done, violated))
    return int(violated > 0)


def write(given: argparse.Namespace, done: list[dict[str, Any]]) -> Path:
    """The record of the campaign so far."""
    path = Path(given.record or Path(tempfile.gettempdir()) / f"campaign-{given.seed}.json")
    path.write_text(json.dumps({"seed": given.seed, "studies": done}, indent=1) + "\n")
    return path


def table(given: argparse.Namespace, done: list[dict[str, Any]], violated: int) -> str:
    """What was met, by kind."""
    met = Counter(name for found in done for run in found["runs"] for name in run["met"])
    runs, real = sum(len(found["runs"]) - 1 for found in done), sum(f["plan"]["space"] == "real" for f in done)
    lines = [f"  {name:<30}{count:>5}" for name, count in sorted(met.items())]
    head = f"seed {given.seed}: {len(done)} studies ({real} of real trials), {runs} runs of the tuner"
    seconds = sum(found["seconds"] for found in done)
    tail = f"{met.total()} faults, {violated} violated invariants, {seconds:.0f} s; record: {write(given, done)}"
    return "\n".join([head, *lines, tail])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--study", type=int, help="only this one")
    parser.add_argument("--first", type=int, default=0, help="begin with this one")
    parser.add_argument(
        "--until-wrong", action="store_true", help="end with the first study where something did not hold"
    )
    parser.add_argument("--mutant", choices=mutants.MUTANTS)
    parser.add_argument("--record", help="file of the JSON record")
    given = parser.parse_args()
    return mutants.run(given.mutant, given.minutes, given.seed) if given.mutant else campaign(given)


if __name__ == "__main__":
    sys.exit(main())

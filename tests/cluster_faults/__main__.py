"""Faults by script over a Ray cluster of four nodes with made-up GPUs.

    python -m tests.cluster_faults --faults 60 --seed 1

Studies run one after the other through ``autotune start --ray``, each disturbed a few times, begun again where the
tuner has ended, and looked at after each run and at its end. The seed decides which faults come, in which order and
after how many records of the tuner. One node has a network of its own, which is cut; without root there is none, and
that fault is left out. The database is PostgreSQL. Exit code 1: something did not hold.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from tests.campaign import invariants
from tests.campaign.__main__ import is_over
from tests.campaign.faults import Fault
from tests.campaign.study import Run
from tests.cluster_faults.faults import CUT, ENDED_BY_RAY, FAULTS, HEAD, Deck
from tests.cluster_faults.machines import SOONER, Machines
from tests.cluster_faults.network import Network, network
from tests.cluster_faults.study import ClusterStudy, right
from tests.support.postgresql import server
from tests.support.ray_nodes import end, ray_folder

RUNS = 4
"""A study that was disturbed so often is left in peace."""


@dataclass
class Faults:
    """The whole of it."""

    given: argparse.Namespace
    folder: Path
    ray: Path
    network: Network | None
    server: Any
    done: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        named = [fault for fault in FAULTS if not self.given.only or fault.name in self.given.only]
        kinds = [fault for fault in named if fault.name != CUT or self.network is not None]
        self.deck = Deck(kinds, self.given.seed)
        self.machines = Machines(self.ray, self.network)

    @property
    def met(self) -> Counter[str]:
        """How often each kind came."""
        return Counter(name for study in self.done for run in study["runs"] for name in run["met"])

    def study(self, number: int) -> dict[str, Any]:
        """One study from its beginning to its end."""
        began = time.monotonic()
        study = ClusterStudy(Path(tempfile.mkdtemp(prefix=f"{number}-", dir=self.folder)), self.server, self.machines)
        outcome: dict[str, Any] = {"study": number, "runs": []}
        self.done.append(outcome)
        try:
            for turn in range(RUNS + 1):
                left = self.given.faults - self.met.total()
                outcome["runs"].append(self.run(study, self.deck.drawn(left) if turn < RUNS else []))
                print(f"  {outcome['runs'][-1]}", flush=True)
                if is_over(study):
                    break
            wrong = [*invariants.at_the_end(study, ()), *right(study)] if is_over(study) else ["it did not end"]
            outcome["runs"].append({"code": 0, "met": [], "wrong": wrong})
        finally:
            study.close()
        outcome["seconds"] = round(time.monotonic() - began, 1)
        if not any(run["wrong"] for run in outcome["runs"]):
            shutil.rmtree(study.folder)
        return outcome

    def run(self, study: ClusterStudy, faults: list[tuple[int, Fault]]) -> dict[str, Any]:
        """One run of the tuner; those that did not come are drawn again."""
        acts = [(n, f.name, lambda process, f=f: f.act(study, process, self.deck.rng) or ()) for n, f in faults]
        run = study.run_with(acts)
        study.calm()
        self.deck.back([fault for _, fault in faults if fault.name not in run.met])
        wrong = list(self.wrong(study, run, [fault for _, fault in faults]))
        if not self.machines.whole():
            end(self.ray)
            self.machines = study.machines = Machines(self.ray, self.network)
        at = [[records, fault.name] for records, fault in faults]
        return {"code": run.code, "drawn": at, "met": run.met, "wrong": wrong, "seconds": round(run.seconds, 1)}

    @staticmethod
    def wrong(study: ClusterStudy, run: Run, faults: list[Fault]) -> Iterator[str]:
        if HEAD in run.met and run.code == ENDED_BY_RAY:
            run = replace(run, code=-signal.SIGKILL)  # as if it were killed
        yield from invariants.after(study, run, faults)
        if run.code < 0:
            yield from (f"process {pid} is left: {words}" for pid, words in study.processes())

    def record(self) -> str:
        """What there is so far, written down; its table."""
        path = Path(self.given.record or Path(tempfile.gettempdir()) / f"cluster-faults-{self.given.seed}.json")
        cut = "a network namespace whose link is taken down" if self.network else "left out: no root, no namespace"
        path.write_text(json.dumps({"seed": self.given.seed, CUT: cut, "studies": self.done}, indent=1) + "\n")
        lines = [f"  {fault.name:<20}{self.met[fault.name]:>5}" for fault in FAULTS]
        violated = sum(len(run["wrong"]) for study in self.done for run in study["runs"])
        head = f"seed {self.given.seed}: {len(self.done)} studies, network cut: {cut}"
        return "\n".join([head, *lines, f"{self.met.total()} faults, {violated} violated invariants; record: {path}"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=600.0, help="no study is begun after so many")
    parser.add_argument("--only", action="append", help="a kind of fault; may be said again")
    parser.add_argument("--record", help="file of the JSON record")
    given = parser.parse_args()
    until, number = time.monotonic() + 60.0 * given.minutes, 0
    with ExitStack() as stack:
        postgresql = cache(lambda: stack.enter_context(server()))
        folder, cable = Path(tempfile.mkdtemp(prefix="cluster-faults-")), stack.enter_context(network())
        ray = stack.enter_context(ray_folder(**SOONER))
        faults = Faults(given, folder, ray, cable, postgresql)
        while True:
            found = faults.study(number)
            wrong = [sentence for run in found["runs"] for sentence in run["wrong"]]
            print(f"study {number} ({found['seconds']:.0f} s): {'; '.join(wrong) or 'all holds'}", flush=True)
            table, number = faults.record(), number + 1
            if faults.met.total() >= given.faults or time.monotonic() > until:
                break
    print(table)
    return int(any(run["wrong"] for study in faults.done for run in study["runs"]))


if __name__ == "__main__":
    sys.exit(main())

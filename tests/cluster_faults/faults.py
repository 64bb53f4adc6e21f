"""What can happen to a study on a cluster, by kind."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress

import psutil

from autotune.errors import MachineError
from tests.campaign.faults import Fault
from tests.campaign.forked import Forked
from tests.cluster_faults.machines import LAST
from tests.cluster_faults.study import ClusterStudy

AWAY_S = 30.0
OTHERS = ("n2", "n3", LAST)


def _driver(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    process.send_signal(signal.SIGKILL)


def _agent(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    name = rng.choice(("n1", *OTHERS))
    with suppress(psutil.Error):
        for agent in study.machines.agents(name):
            agent.kill()


def _child(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    if found := study.tagged():
        with suppress(ProcessLookupError):
            os.kill(rng.choice(sorted(found)), signal.SIGKILL)


def _other(study: ClusterStudy, rng: random.Random) -> str:
    """A node that nothing has happened to in this run, if there is one."""
    return rng.choice([name for name in OTHERS if name not in study.machines.hurt] or OTHERS)


def _raylet(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    name = _other(study, rng)
    study.machines.hurt.add(name)
    with suppress(psutil.Error):
        study.machines.raylet(name).kill()


def _removed(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    study.machines.kill(_other(study, rng))


def _frozen(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    with suppress(psutil.Error):
        study.machines.freeze(_other(study, rng))


def _head(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    study.machines.kill("n1")


def _database(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    study.server.stop("immediate")
    time.sleep(AWAY_S)
    study.server.start()


def _cut(study: ClusterStudy, process: Forked, rng: random.Random) -> None:
    study.machines.hurt.add(LAST)
    study.machines.network.cut()


ENDED_BY_RAY = 1
"""Ray ends a process whose cluster has lost its head, with a sentence of its own."""
DRIVER, HEAD, CUT = "driver killed", "head lost", "network cut"
FAULTS = (
    Fault(DRIVER, _driver, frozenset({-signal.SIGKILL})),
    Fault("agent killed", _agent),
    Fault("child killed", _child),
    Fault("raylet killed", _raylet),
    Fault("node removed", _removed),
    Fault("node frozen", _frozen),
    Fault(HEAD, _head, frozenset({MachineError.exit_code, ENDED_BY_RAY, -signal.SIGKILL})),
    Fault("database away", _database),
    Fault(CUT, _cut),
)
LAST_OF_A_RUN = (DRIVER, HEAD)
RECORDS = 60
"""A fault comes after at most so many records of the tuner."""


class Deck:
    """Which faults come next, each kind as often as the others; the seed decides."""

    def __init__(self, kinds: Sequence[Fault], seed: int) -> None:
        self._kinds, self._left = list(kinds), list[Fault]()
        self.rng = random.Random(seed)

    def drawn(self, most: int) -> list[tuple[int, Fault]]:
        """Of one run of the tuner, each with the records it waits for; what ends the tuner is the last."""
        found: list[Fault] = []
        for _ in range(min(most, self.rng.randint(2, 6))):
            if not self._left:
                self._left = self.rng.sample(self._kinds, len(self._kinds))
            if found and (found[-1].name in LAST_OF_A_RUN or self._left[-1] in found):
                break
            found.append(self._left.pop())
        return list(zip(sorted(self.rng.randint(1, RECORDS) for _ in found), found, strict=True))

    def back(self, faults: Sequence[Fault]) -> None:
        """These have not come."""
        self._left += faults

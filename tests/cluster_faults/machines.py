"""The cluster: ``n1`` is the head, and ``n4`` has a network of its own where there can be one."""

from __future__ import annotations

import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from tests.cluster_faults.network import FAR, NEAR, Network
from tests.support.ray_nodes import CPUS, Nodes, title
from tests.support.waiting import wait_for

COUNT = 4
LAST = f"n{COUNT}"
SOONER = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "6",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "15",
}
"""Ray gives a node or its head up after half a minute instead of one or more."""


class Machines(Nodes):
    """Nodes that can be hurt, and made whole again."""

    def __init__(self, folder: Path, network: Network | None) -> None:
        self.network = network
        self.hurt: set[str] = set()
        super().__init__(COUNT, folder, address=NEAR if network else None)

    def _started(self, name: str, gpus: int) -> Any:
        if name != LAST or self.network is None:
            return super()._started(name, gpus)
        words = ["start", "--address", self.cluster.address, "--node-ip-address", FAR, "--node-name", name]
        words += ["--num-cpus", str(CPUS), "--num-gpus", str(gpus), "--object-store-memory", str(80 << 20)]
        ray = str(Path(sys.executable).with_name("ray"))
        quiet = ["--include-log-monitor", "false"]
        subprocess.run(self.network.inside(ray, *words, *quiet), check=True, capture_output=True, timeout=120.0)
        return next(p for p in psutil.process_iter() if f"--node_ip_address={FAR}" in title(p) and "raylet" in p.name())

    def raylet(self, name: str) -> psutil.Process:
        found = self.nodes[name]
        return found if isinstance(found, psutil.Process) else super().raylet(name)

    def kill(self, name: str) -> None:
        """All of a node, at once."""
        found = self.nodes[name]
        self.hurt.add(name)
        if not isinstance(found, psutil.Process):
            found.kill_all_processes(check_alive=False, allow_graceful=False, wait=True)
            return
        for process in (*_below(found), found):
            with suppress(psutil.Error):
                process.kill()

    def freeze(self, name: str) -> None:
        """Its raylet and its agents stand still; what they have started goes on."""
        self.hurt.add(name)
        for process in (*self.agents(name), self.raylet(name)):
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Whatever stands still goes on."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.status() == psutil.STATUS_STOPPED and str(self.folder) in " ".join(_environment(process)):
                    process.send_signal(signal.SIGCONT)

    def mend(self) -> None:
        """The network is whole."""
        if self.network is not None:
            self.network.mend()

    def whole(self) -> bool:
        """Whether the hurt nodes could be replaced; not where the head is gone."""
        self.thaw()
        self.mend()
        if "n1" in self.hurt:
            return False
        for name in sorted(self.hurt):
            self.kill(name)
            if name in self.nodes and not isinstance(self.nodes[name], psutil.Process):
                self.cluster.worker_nodes.discard(self.nodes[name])
            self.add(name)
        self.hurt.clear()
        wait_for(lambda: len(self.alive()) == COUNT, "the nodes to be there again", 120.0, 0.5)
        return True

    def alive(self) -> list[dict[str, Any]]:
        """Nodes as the cluster counts them."""
        return [node for node in self.cluster.global_state.node_table() if node["Alive"]]

    def agents_left(self) -> list[tuple[int, str]]:
        """(id, title) of all agents and their guardians."""
        found = []
        for process in psutil.process_iter():
            words = title(process)
            if words.startswith("ray::Agent") or "guardian.py" in words:
                with suppress(psutil.Error):
                    if str(self.folder) in " ".join(_environment(process)):
                        found.append((process.pid, words.strip()))
        return found


def _environment(process: psutil.Process) -> list[str]:
    return [f"{name}={value}" for name, value in process.environ().items()]


def _below(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.Error:
        return []

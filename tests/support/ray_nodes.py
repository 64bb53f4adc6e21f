"""A Ray cluster of several nodes on this machine, whose GPUs are only made up.

Ray is an extra of the tool's: where it is missing the tests are skipped (`make env-ray` brings it).
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest

from tests.support.node import TESTS

GPUS, CPUS = 8, 2
TOKEN = secrets.token_hex(32)
"""One for all clusters of a process: Ray reads it once and keeps it."""
NO_RAY = "Ray is not installed in this environment; make env-ray"


def needs_ray() -> None:
    """Skips a module's tests where there is no Ray. It is not imported: it would read its variables now."""
    if find_spec("ray") is None:
        pytest.skip(NO_RAY, allow_module_level=True)


def quiet(folder: Path) -> Mapping[str, str]:
    """What keeps Ray to ``folder`` and to itself."""
    return {
        "RAY_TMPDIR": str(folder),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": TOKEN,
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "RAY_enable_metrics_collection": "0",
        "PYTHONPATH": f"{TESTS / 'nvml'}{os.pathsep}{TESTS.parents[1]}",
        "MADE_UP_GPUS": json.dumps([{}] * GPUS),
    }


class Nodes:
    """``n1`` (the head) to ``nN``, at ``address``; ``variables`` are those of a node that the others have not."""

    def __init__(
        self,
        count: int,
        folder: Path,
        gpus: int = GPUS,
        variables: Mapping[str, Mapping[str, str]] | None = None,
        address: str | None = None,
    ) -> None:
        from ray.cluster_utils import Cluster

        self.folder, self.variables = folder, variables or {}
        self.at = {} if address is None else {"node_ip_address": address}
        self.cluster: Any = Cluster(shutdown_at_exit=False)
        self.nodes: dict[str, Any] = {}
        for number in range(1, count + 1):
            self.add(f"n{number}", gpus)
        self.address: str = self.cluster.address

    def add(self, name: str, gpus: int = GPUS, tries: int = 4) -> None:
        """One more. Ray gives a node 30 s to start, which a busy machine does not always do."""
        try:
            self.nodes[name] = self._started(name, gpus)
        except Exception:
            if not tries:
                raise
            self.add(name, gpus, tries - 1)

    def _started(self, name: str, gpus: int) -> Any:
        return self.cluster.add_node(
            wait=False,
            node_name=name,
            num_cpus=CPUS,
            num_gpus=gpus,
            env_vars=dict(self.variables.get(name, {})),
            **self.at,
            object_store_memory=80 << 20,
            include_dashboard=False,
            include_log_monitor=False,
        )

    def raylet(self, name: str) -> psutil.Process:
        """The process that is the node. Raises ``psutil.NoSuchProcess`` where the node was taken away."""
        found = self.nodes[name].all_processes.get("raylet")
        if not found:
            raise psutil.NoSuchProcess(0, name)
        return psutil.Process(found[0].process.pid)

    def agents(self, name: str) -> list[psutil.Process]:
        """Processes of agents on a node."""
        return [p for p in self.raylet(name).children(recursive=True) if title(p).startswith("ray::Agent")]

    def remove(self, name: str) -> None:
        """The node is taken away."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def shutdown(self) -> None:
        """All of it ends."""
        import ray

        ray.shutdown()
        self.cluster.shutdown()


def title(process: psutil.Process) -> str:
    """Its words; none if it is gone."""
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


@contextmanager
def ray_folder(**variables: str) -> Iterator[Path]:
    """Where Ray keeps to itself while the block runs; its environment is that of this process meanwhile."""
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # Ray has sockets in it, whose paths must be short
    with patch.dict(os.environ, {**quiet(folder), **variables}):
        os.environ.pop("RAY_ADDRESS", None)
        try:
            yield folder
        finally:
            end(folder)
            shutil.rmtree(folder, ignore_errors=True)


def end(folder: Path) -> None:
    """Ends all processes of Ray's that keep to a folder."""
    for process in psutil.process_iter():
        if str(folder) in title(process):
            process.kill()


@contextmanager
def nodes(count: int, gpus: int = GPUS, variables: Mapping[str, Mapping[str, str]] | None = None) -> Iterator[Nodes]:
    """A cluster while the block runs."""
    with ray_folder() as folder:
        found = Nodes(count, folder, gpus, variables)
        yield found
        found.shutdown()

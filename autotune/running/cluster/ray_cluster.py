"""All use of Ray: a cluster, the places (trial slots) that a study holds in it, and agents as its actors.

A place is a placement group with one bundle for each of its nodes, bound to them, so that no other job gets its GPUs
between two agents. An agent is an actor owned by this process: when this process dies, Ray ends the agent.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from autotune.errors import MachineError, UsageError
from autotune.ports import Assignment
from autotune.running.cluster.agent import SILENCE_S, Agent, Answer, Facts, Message
from autotune.running.cluster.places import ClusterPlace, Node, distinct
from autotune.running.cluster.runner import LostError
from autotune.running.launch import passed_on
from autotune.running.local import LocalRunner

RESERVE_S = 30.0
"""Seconds for Ray to reserve a study's slots; Ray does so at once, unless other jobs hold them."""
START_S = 120.0
"""Seconds for an agent's process to start and import."""
OF_DRIVER = {
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray asks 20 times for 35 s each.
    "RAY_NUM_REDIS_GET_RETRIES": "1",
    "RAY_py_gcs_connect_timeout_s": "4",
    "RAY_gcs_rpc_server_connect_timeout_s": "1",
}
"""Ray's environment variables for this process, unless they are set."""
TOKENS = "where the cluster asks for a token, RAY_AUTH_MODE and RAY_AUTH_TOKEN give it"
FORCED = (signal.SIGTERM, signal.SIGINT)
"""Signals that Ray would otherwise handle itself."""


class RayCluster:
    """A connection to a running Ray cluster. Create it once in a process."""

    def __init__(self, address: str, silence_s: float = SILENCE_S) -> None:
        """Connects to the cluster.

        Args:
            address: ``HOST:PORT``; ``auto``: ``RAY_ADDRESS``, else the cluster that this machine belongs to.

        Raises:
            UsageError: Ray is not installed, or no cluster answers at the given address.
            MachineError: no cluster is found, or it refuses this process.
        """
        named = f"--ray {address}"
        if address == "auto" and (given := os.environ.get("RAY_ADDRESS", "").strip()):
            address, named = given, f"RAY_ADDRESS {given}"
        if address.startswith("ray://"):
            raise UsageError(f"{named}: start the tuner on a machine of the cluster, with --ray auto")
        if address != "auto":
            _check(address, named)  # before Ray is imported, which takes seconds
        for name, value in OF_DRIVER.items():
            os.environ.setdefault(name, value)
        try:
            import ray
        except ModuleNotFoundError:
            raise UsageError("--ray: Ray is missing here; pip install 'ray>=2.52,<3' brings it") from None
        self._ray = ray
        self._silence_s = silence_s
        self._groups: dict[int, Any] = {}
        with _own_signals():
            try:
                if address == "auto":
                    address = _own_cluster(ray)
                    _check(address, named)
                ray.init(
                    address=address,
                    log_to_driver=False,
                    configure_logging=False,
                    logging_level=logging.CRITICAL,
                    ignore_reinit_error=True,
                )
            except (UsageError, MachineError):
                raise
            except Exception as error:
                raise MachineError(f"{named}: no cluster answers: {_first_line(error)}; {TOKENS}") from None
        # What its daemons report would be written between the lines of --json; it is in their logs.
        ray._private.worker._worker_logs_enabled = False

    def close(self) -> None:
        """Releases all slots and disconnects."""
        for place in tuple(self._groups):
            self.release(place)
        with contextlib.suppress(Exception):
            self._ray.shutdown()

    def nodes(self) -> tuple[Node, ...]:
        """Returns the nodes that are alive, sorted by name."""
        alive = [node for node in self._ray.nodes() if node["Alive"]]
        names = distinct([node["NodeName"] for node in alive], [node["NodeID"] for node in alive])
        found = [
            Node(
                each["NodeID"],
                name,
                int(each["Resources"].get("CPU", 0)),
                int(each["Resources"].get("GPU", 0)),
                each["NodeManagerAddress"],
            )
            for name, each in zip(names, alive, strict=True)
        ]
        return tuple(sorted(found, key=lambda node: node.name))

    def reserve(self, *gang: ClusterPlace) -> None:
        """Requests a trial slot, on one node or with parts on several."""
        from ray.util.placement_group import placement_group

        bundles = [{"CPU": place.cpus, **({"GPU": place.share.gpus} if place.share.gpus else {})} for place in gang]
        where = [{"ray.io/node-id": place.node.id} for place in gang]
        strategy = "STRICT_SPREAD" if len(gang) > 1 else "STRICT_PACK"
        self._groups[gang[0].share.place] = placement_group(bundles, strategy, bundle_label_selector=where)

    def had(self, place: ClusterPlace, until: float) -> bool:
        """Tells whether Ray has reserved the slot by the monotonic time ``until``."""
        left = max(0.0, until - time.monotonic())
        return bool(self._groups[place.share.place].wait(timeout_seconds=left))

    def release(self, place: int) -> None:
        """Releases a slot; its agent ends with it."""
        from ray.util.placement_group import remove_placement_group

        group = self._groups.pop(place, None)
        if group is not None:
            with contextlib.suppress(Exception):
                remove_placement_group(group)

    def hire(self, place: ClusterPlace, runner: LocalRunner) -> RayAgent:
        """Starts an agent in a slot, or on one node of it; ``RayAgent.meet`` waits for it. Raises ``LostError``."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        if place.share.place not in self._groups:
            raise LostError(f"{place.node.name}: the place was given back", place=True)
        where = PlacementGroupSchedulingStrategy(self._groups[place.share.place], place.part)
        actor = self._ray.remote(Agent).options(
            num_cpus=place.cpus,
            num_gpus=place.share.gpus,
            max_restarts=0,
            max_task_retries=0,
            scheduling_strategy=where,
        )
        return RayAgent(self, place.node, actor.remote(runner, place.share, passed_on(os.environ), self._silence_s))

    def begin_on(self, node: Node, work: Callable[..., Any], *given: Any) -> Any:
        """Starts ``work`` on a node; returns the reference for ``answer``."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(node.id, soft=False)
        task = self._ray.remote(work).options(num_cpus=0, max_retries=0, scheduling_strategy=where)
        return task.remote(*given)

    def dismiss(self, actor: Any) -> None:
        """Ends an agent that does not answer, so that another can take its place."""
        with contextlib.suppress(Exception):
            self._ray.kill(actor)

    def answer(self, node: Node, reference: Any, patience_s: float | None = None) -> Any:
        """Returns the result of a remote call, or raises its error, or ``LostError`` if none can come any more.

        Args:
            patience_s: seconds to wait; ``None``: as long as an agent waits for the tuner.
        """
        errors = self._ray.exceptions
        patience_s = self._silence_s if patience_s is None else patience_s
        until = time.monotonic() + patience_s
        while True:
            try:
                return self._ray.get(reference, timeout=min(1.0, patience_s))
            except errors.GetTimeoutError:
                if not self.lives(node):
                    raise LostError(f"node {node.name} left the cluster", place=True) from None
                if time.monotonic() >= until:
                    raise LostError(f"node {node.name} has not answered for {patience_s:.0f} s", place=True) from None
            except errors.RayTaskError as error:
                raise (error.cause or error) from None
            except (errors.RayError, errors.RaySystemError) as error:
                gone = not self.lives(node)
                what = f"node {node.name} left the cluster" if gone else f"the agent on node {node.name} ended"
                raise LostError(f"{what} ({_first_line(error)})", place=gone) from None

    def lives(self, node: Node) -> bool:
        """Tells whether the cluster reports the node as alive."""
        with contextlib.suppress(Exception):
            return any(each["NodeID"] == node.id and each["Alive"] for each in self._ray.nodes())
        return False


class RayAgent:
    """Agent that runs as a Ray actor; implements ``runner.Remote``."""

    def __init__(self, cluster: RayCluster, node: Node, actor: Any) -> None:
        self._cluster, self._node, self._actor = cluster, node, actor

    def meet(self, file: Path, text: str) -> Facts:
        """Returns the answer of ``Agent.meet``; waits until the actor has started."""
        found: Facts = self._call("meet", file, text, patience_s=START_S)
        return found

    def free_port(self) -> int:
        found: int = self._call("free_port", patience_s=START_S)
        return found

    def begin(self, assignment: Assignment) -> None:
        self._call("begin", assignment, patience_s=START_S)

    def hear(self, answer: Answer) -> list[Message]:
        found: list[Message] = self._call("hear", answer)
        return found

    def alive(self) -> None:
        with contextlib.suppress(Exception):
            self._actor.attended.remote()

    def close(self) -> tuple[int, ...]:
        left: tuple[int, ...] = self._call("close")
        return left

    def sweep(self, study_id: int) -> tuple[int, ...]:
        found: tuple[int, ...] = self._call("sweep", study_id, patience_s=START_S)
        return found

    def _call(self, name: str, *given: Any, patience_s: float | None = None) -> Any:
        try:
            return self._cluster.answer(self._node, getattr(self._actor, name).remote(*given), patience_s)
        except LostError:
            self._cluster.dismiss(self._actor)
            raise


def _own_cluster(ray: Any) -> str:
    """Returns the address of the cluster that this machine belongs to. Raises ``MachineError`` without exactly one."""
    try:
        return str(ray._private.services.canonicalize_bootstrap_address_or_die("auto"))
    except ConnectionError as error:
        if "multiple" in str(error):
            raise MachineError(
                "--ray auto: this machine belongs to several Ray clusters; name one: --ray HOST:PORT"
            ) from None
        raise MachineError(
            "--ray auto: this machine belongs to no Ray cluster; `ray start` makes one or joins it, --ray HOST:PORT or "
            "RAY_ADDRESS names another"
        ) from None


def _check(address: str, source: str) -> None:
    if (why := fault(address)) is not None:
        raise UsageError(f"{source}: {why}" if address == source.partition(" ")[2] else f"{source}: {address}: {why}")


@contextlib.contextmanager
def _own_signals() -> Iterator[None]:
    """Restores the signal handlers that Ray replaces: a study needs them to end in order."""
    before: Mapping[int, Any] = {number: signal.getsignal(number) for number in FORCED}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


PATIENCE_S = 5.0
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""First bytes that an HTTP/2 client sends, with empty settings (RFC 9113, 3.4): Ray's head node speaks gRPC."""
SETTINGS = 4
"""Type of the frame that a server answers with, the fourth byte of the frame's header."""


def fault(address: str) -> str | None:
    """Returns the problem with ``HOST:PORT``; ``None`` if a gRPC server answers there."""
    host, _, port = address.rpartition(":")
    if not host or "/" in host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        return "expected HOST:PORT, or auto"
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), PATIENCE_S) as asking:
            return None if _encrypted() or _is_grpc(asking) else "what listens there is no Ray cluster"
    except socket.gaierror:
        return f"the name {host} is not known here"
    except TimeoutError:
        return f"nothing answers there within {PATIENCE_S:.0f} s"
    except OSError as error:
        return f"nothing answers there: {error.strerror or error}"


def _is_grpc(asking: socket.socket) -> bool:
    try:
        asking.sendall(HELLO)
        head = asking.recv(9, socket.MSG_WAITALL)
    except ConnectionError:
        return False
    return len(head) == len(HELLO[-9:]) and head[3] == SETTINGS


def _encrypted() -> bool:
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")

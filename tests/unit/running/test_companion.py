"""Ports of the loopback, and how the end of a rollout server is told."""

from __future__ import annotations

import signal
import socket

import pytest

from autotune.domain import FailureReason, Pool
from autotune.running.companion import LOOPBACK, free_ports
from autotune.running.ending import Ending, Stop, outcome_of
from tests.support.scripted_framework import ScriptedFramework
from trainer.child.contract import Result


def ending_of(**changes: object) -> Ending:
    return Ending(**{"exit_code": None, "seconds": 1.0, "stop": Stop.SERVER, "why": "it ended", **changes})  # type: ignore[arg-type]


def test_ports_are_different_and_can_be_bound() -> None:
    ports = free_ports(8)
    assert len(set(ports)) == 8
    for port in ports:
        socket.create_server((LOOPBACK, port)).close()


@pytest.mark.parametrize("text", ["[Errno 98] Address already in use", "EADDRINUSE", "error: address already in use"])
def test_a_port_taken_is_known_only_before_the_server_was_ready(text: str) -> None:
    """Later it is somebody else's port: asking for another would start the trial again for nothing."""
    assert ending_of(server_log=text).port_taken
    assert not ending_of(server_log=text, served=True).port_taken
    assert not ending_of(server_log=text, stop=Stop.DEADLINE).port_taken
    assert not ending_of(server_log="another end").port_taken


def test_a_server_killed_by_the_kernel_for_memory_is_an_oom_of_the_host() -> None:
    killed = ending_of(server_exit=-signal.SIGKILL, oom_kills=1)
    outcome = outcome_of(killed, ScriptedFramework(), "server.txt")
    assert (outcome.reason, outcome.pool) == (FailureReason.OOM, Pool.HOST)
    outcome = outcome_of(ending_of(server_exit=-signal.SIGKILL), ScriptedFramework(), "server.txt")
    assert outcome.reason is FailureReason.INFRA


def test_a_crash_nobody_knows_is_looked_up_in_the_servers_log() -> None:
    crash = Result(False, FailureReason.CRASH, message="500 Server Error")
    ending = ending_of(stop=None, exit_code=1, result=crash, server_log="CUDA out of memory", served=True)
    assert outcome_of(ending, ScriptedFramework(), "log.txt").reason is FailureReason.OOM
    known = ending_of(
        stop=None, exit_code=1, result=crash, log_tail="Cannot allocate memory", server_log="CUDA out of memory"
    )
    assert outcome_of(known, ScriptedFramework(), "log.txt").pool is Pool.HOST, "the trial's own words come first"


def test_where_to_look() -> None:
    assert ending_of().log_is_servers
    assert ending_of(stop=Stop.DEADLINE, server_log="loading").log_is_servers, "it was still starting"
    assert not ending_of(stop=Stop.DEADLINE, server_log="loading", served=True).log_is_servers
    assert not ending_of(stop=None, exit_code=1).log_is_servers

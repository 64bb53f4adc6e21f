"""Whose a port is. Were this wrong, a study would time another program's server as its own."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from autotune.running.companion import is_free, listeners, strangers_at

OURS = {os.getpid()}


def listening(address: str, port: int = 0) -> socket.socket:
    """Willing to share its port."""
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    made.bind((address, port))
    made.listen()
    return made


@contextmanager
def elsewhere(address: str) -> Iterator[int]:
    """The port that another process listens at."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        with listening(address) as held:
            os.write(writing, str(held.getsockname()[1]).encode())
            signal.pause()
    try:
        yield int(os.read(reading, 16))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::", "::ffff:127.0.0.1"])  # noqa: S104
def test_wherever_it_listens_a_connection_arrives(address: str) -> None:
    with elsewhere(address) as port:
        assert strangers_at(port, OURS)
        socket.create_connection(("127.0.0.1", port)).close()
    with listening(address) as held:
        assert len(listeners(held.getsockname()[1])) == 1
        assert not strangers_at(held.getsockname()[1], OURS)


def test_a_port_that_two_share_is_not_one_s_own() -> None:
    with elsewhere("127.0.0.1") as port, listening("127.0.0.1", port):
        assert len(listeners(port)) == 2
        assert strangers_at(port, OURS)


def test_who_listens_at_every_address_is_not_asked_where_another_listens_at_this_one() -> None:
    with elsewhere("0.0.0.0") as port, listening("127.0.0.1", port) as held:  # noqa: S104
        assert not strangers_at(port, OURS)
        held.settimeout(10)
        socket.create_connection(("127.0.0.1", port)).close()
        held.accept()[0].close()


def test_a_port_that_is_only_held_or_used_is_nobodys() -> None:
    """A connection to a port elsewhere has the port at its other end."""
    with listening("127.0.0.1") as held, socket.create_connection(held.getsockname()) as client:
        assert listeners(client.getsockname()[1]) == ()
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        assert not strangers_at(bound.getsockname()[1], set())


def test_a_port_with_a_connection_just_closed_is_not_free_though_nobody_listens() -> None:
    """Who asks for it without saying that it may be shared, as ``swift rollout`` does, does not get it."""
    with listening("127.0.0.1") as held, socket.create_connection(held.getsockname()) as client:
        port = held.getsockname()[1]
        accepted = held.accept()[0]
        accepted.close()
        assert client.recv(1) == b""
    assert listeners(port) == ()
    assert not is_free(port)
    with socket.socket() as unused:
        unused.bind(("", 0))
        port = unused.getsockname()[1]
        assert not is_free(port)
    assert is_free(port)

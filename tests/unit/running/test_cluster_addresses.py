"""Whether a cluster can be at an address, asked of listeners that are no cluster."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from autotune.running.cluster import ray_cluster as addresses
from autotune.running.cluster.ray_cluster import fault


@contextmanager
def listening(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # the test was through before
                asking, _ = server.accept()
                with asking:
                    answer(asking)

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def settings_of_grpc(asking: socket.socket) -> None:
    received = b""
    while len(received) < len(addresses.HELLO):
        received += asking.recv(64)
    assert received == addresses.HELLO
    asking.sendall(b"\0\0\6\4\0\0\0\0\0" + b"\0\3\x7f\xff\xff\xff")


def page(asking: socket.socket) -> None:
    asking.recv(64)
    asking.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def test_what_answers_as_grpc_does_is_no_fault() -> None:
    with listening(settings_of_grpc) as address:
        assert fault(address) is None


@pytest.mark.parametrize("answer", [page, lambda asking: None], ids=["a page", "nothing, and hangs up"])
def test_another_server_is_no_cluster(answer: Callable[[socket.socket], None]) -> None:
    with listening(answer) as address:
        assert fault(address) == "what listens there is no Ray cluster"


def test_a_server_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(addresses, "PATIENCE_S", 0.3)
    began = time.monotonic()
    with listening(lambda asking: time.sleep(30.0)) as address:
        assert "nothing answers there within" in str(fault(address))
    assert time.monotonic() - began < 10.0


def test_nothing_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    assert fault(f"127.0.0.1:{port}") == "nothing answers there: Connection refused"


def test_a_name_that_nobody_has() -> None:
    assert fault("head.invalid:6379") == "the name head.invalid is not known here"


@pytest.mark.parametrize(
    "address", ["head", "head:", ":6379", "head:ray", "head:0", "head:65536", "", "http://head:8265"]
)
def test_what_is_no_address(address: str) -> None:
    assert fault(address) == "expected HOST:PORT, or auto"


def test_with_tls_the_port_is_all_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    with listening(page) as address:
        assert fault(address) is None

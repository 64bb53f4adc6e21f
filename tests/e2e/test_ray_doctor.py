"""``doctor --ray`` on a real cluster whose nodes are not alike, and at addresses where there is no cluster."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from tests.support.node import Node
from tests.support.ray_nodes import GPUS, Nodes, needs_ray, nodes

needs_ray()
pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[2]
WITHIN_S = 30.0
"""The most that is waited is 5 s; a busy machine takes the rest to start."""
UNLIKE = {
    "n2": {"AUTOTUNE_TRIAL_LACKS": "vllm"},
    "n3": {"MADE_UP_DRIVER": "580.65"},
    "n4": {"MADE_UP_GPUS": json.dumps([{}] * (GPUS - 1) + [{"used": 40 << 30}])},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Nodes]:
    with nodes(4, variables=UNLIKE) as found:
        yield found


def doctor(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autotune.cli", "doctor", *words]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=600.0)


def findings(cluster: Nodes, made_up: Node) -> list[dict[str, Any]]:
    done = doctor("--ray", cluster.address, "--python", str(made_up.python), "--json")
    assert done.returncode == 5, done.stdout + done.stderr
    return list(json.loads(done.stdout)["findings"])


def test_a_sentence_for_each_thing_that_is_odd(cluster: Nodes, tmp_path: Path) -> None:
    found = findings(cluster, Node(tmp_path / "node", [{}] * GPUS))
    fine = {one["name"]: one["detail"] for one in found if one["verdict"] == "ok"}
    assert list(fine) == ["node n1", "node n2", "node n3", "node n4"]
    assert fine["node n1"].startswith(f"{GPUS} × ")
    assert "driver 590.10" in fine["node n1"]
    # Whatever else this machine does is told of each node, and the same of all.
    odd = [(one["name"], one["verdict"], one["detail"]) for one in found if one["verdict"] != "ok"]
    odd = [one for one in odd if "of its CPU is in use" not in one[2] and "of memory are free" not in one[2]]
    assert sorted(odd) == [
        ("node n2", "problem", "vllm: not there, and most nodes have 0.31.0"),
        ("node n3", "warning", "driver: 580.65, and most nodes have 590.10"),
        ("node n4", "warning", f"GPU {GPUS - 1} has 40.0 GiB in use: trials on it are refused"),
    ]


@pytest.mark.parametrize("what", ["nothing listens", "a page listens", "nobody has the name", "no port"])
def test_a_wrong_address_is_one_sentence_at_once(what: str) -> None:
    page: subprocess.Popen[bytes] | None = None
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
    if what == "a page listens":
        quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        page = subprocess.Popen([sys.executable, "-m", "http.server", str(port)], **quiet)
        while socket.socket().connect_ex(("127.0.0.1", port)):
            time.sleep(0.1)
    named = {"nobody has the name": f"head.invalid:{port}", "no port": "head"}.get(what, f"127.0.0.1:{port}")
    said = {
        "nothing listens": "nothing answers there: Connection refused",
        "a page listens": "what listens there is no Ray cluster",
        "nobody has the name": "the name head.invalid is not known here",
        "no port": "expected HOST:PORT, or auto",
    }[what]
    began = time.monotonic()
    try:
        done = doctor("--ray", named)
    finally:
        if page is not None:
            page.kill()
            page.wait()
    assert time.monotonic() - began < WITHIN_S
    assert done.returncode == UsageError.exit_code
    assert done.stdout == ""
    assert done.stderr.splitlines() == [f"autotune: --ray {named}: {said}"]

"""The nodes of a cluster side by side: one sentence for each thing in which one differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.cli.doctor.cluster_checks import NodeLook, side_by_side
from autotune.cli.doctor.findings import Verdict, blocking
from autotune.machine.other_load import CpuLoad
from tests.support.factories import GIB

PACKAGES = {"Python": "3.11.7", "torch": "2.13.0", "trl": "1.16.0", "vllm": "0.31.0"}
LIKE = NodeLook(64, 512 * GIB, 500 * GIB, ("H100 80.0 GiB",) * 8, "590.10", (), CpuLoad(0.01), PACKAGES)


def findings(ahead: dict[str, float] | None = None, **others: NodeLook) -> list[tuple[str, Verdict, str]]:
    """What is said beside the line of each node."""
    looks = {"n1": LIKE, "n2": LIKE, **others}
    found = side_by_side(looks, ahead or {})
    assert [f.name for f in found[: len(looks)]] == [f"node {name}" for name in looks]
    return [(f.name, f.verdict, f.detail) for f in found[len(looks) :]]


def test_nodes_that_are_alike_are_a_line_each() -> None:
    assert findings() == []
    line = side_by_side({"n1": LIKE}, {})[0].detail
    assert line == "8 × H100 80.0 GiB, driver 590.10, 64 CPU cores, 500 GiB of memory free, Python 3.11.7"


def test_a_package_a_driver_and_a_user_are_three_sentences() -> None:
    lacks = replace(LIKE, packages={name: version for name, version in PACKAGES.items() if name != "vllm"})
    other = replace(LIKE, driver="580.65")
    busy = replace(LIKE, users=("GPU 3 has 40.0 GiB in use",))
    assert findings(n3=lacks, n4=other, n5=busy) == [
        ("node n5", Verdict.WARNING, "GPU 3 has 40.0 GiB in use: trials on it are refused"),
        ("node n3", Verdict.PROBLEM, "vllm: not there, and most nodes have 0.31.0"),
        ("node n4", Verdict.WARNING, "driver: 580.65, and most nodes have 590.10"),
    ]


@pytest.mark.parametrize(
    ("changed", "verdict", "sentence"),
    [
        ({"packages": {**PACKAGES, "trl": "1.15.0"}}, Verdict.PROBLEM, "trl: 1.15.0, and most nodes have 1.16.0"),
        ({"gpus": ("A100 80.0 GiB",) * 8}, Verdict.PROBLEM, "GPUs: A100 80.0 GiB, and most nodes have H100 80.0 GiB"),
        ({"available": GIB}, Verdict.WARNING, "only 1.00 GiB of its 512 GiB of memory are free"),
        (
            {"load": CpuLoad(0.5, ((7, "m", 32.0),))},
            Verdict.WARNING,
            "50 % of its CPU is in use by m (process 7)",
        ),
        (
            {"packages": {}, "problem": "/env/python is no interpreter"},
            Verdict.PROBLEM,
            "/env/python is no interpreter",
        ),
    ],
)
def test_what_one_node_has_and_the_others_have_not(changed: dict[str, Any], verdict: Verdict, sentence: str) -> None:
    assert findings(n3=replace(LIKE, **changed)) == [("node n3", verdict, sentence)]


def test_a_clock_that_differs_is_told_and_only_a_problem_blocks() -> None:
    assert findings({"n2": 0.4}) == []
    assert findings({"n2": 5.0}) == [("node n2", Verdict.WARNING, "its clock is 5 s ahead of the one here")]
    assert findings({"n1": -90.0}) == [("node n1", Verdict.WARNING, "its clock is 90 s behind the one here")]
    assert not blocking(side_by_side({"n1": LIKE, "n2": LIKE}, {"n2": 5.0}))
    assert blocking(side_by_side({"n1": LIKE, "n2": replace(LIKE, problem="no torch")}, {}))

"""Which places a study has in a cluster, and which of them cannot be used."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.running.cluster.agent import Facts
from autotune.running.cluster.gathering import unfit
from autotune.running.cluster.places import Node, distinct, planned
from autotune.running.cluster.ray_cluster import RayCluster
from tests.support.factories import GIB

FOUR = [Node(f"id{n}", f"n{n}", 64, 8) for n in range(1, 5)]
H100 = ("NVIDIA H100", 80 * GIB)
FIRST = Facts("GPU 0", (H100,), 64 * GIB, True)


def test_as_many_as_fit_and_every_gpu_once() -> None:
    places = planned(FOUR, 2, None)
    assert len(places) == 16
    assert [p.share.place for p in places] == list(range(16))
    assert Counter(p.node.name for p in places) == {"n1": 4, "n2": 4, "n3": 4, "n4": 4}
    assert {(p.share.count, p.cpus) for p in places} == {(4, 16)}
    assert {p.share.index for p in places if p.node.name == "n3"} == {0, 1, 2, 3}


def test_fewer_are_shared_out_evenly() -> None:
    assert Counter(p.node.name for p in planned(FOUR, 1, 6)) == {"n1": 2, "n2": 2, "n3": 1, "n4": 1}


def test_what_one_node_cannot_hold_fits_on_none() -> None:
    assert [p.node.name for p in planned([*FOUR[:1], Node("small", "small", 8, 3)], 4, None)] == ["n1", "n1"]
    with pytest.raises(UsageError, match=r"33 trials of 1 GPU each do not fit on n1 \(64 CPUs, 8 GPUs\).*32 would"):
        planned(FOUR, 1, 33)
    with pytest.raises(UsageError, match="16 GPUs each do not fit"):
        planned(FOUR, 16, None)


def test_on_cpus_each_node_has_one_unless_more_are_asked_for() -> None:
    assert len(planned(FOUR, 0, None)) == 4
    assert Counter(p.node.name for p in planned(FOUR, 0, 5))["n1"] == 2
    with pytest.raises(UsageError, match="a CPU core each do not fit on no node"):
        planned([], 0, None)


def test_how_many_gpus_one_trial_has_must_be_said() -> None:
    with pytest.raises(UsageError, match="say with --gpus"):
        planned(FOUR, None, None)


def test_nodes_of_one_name_are_told_apart() -> None:
    assert distinct(["a", "b", "a"], ["123456789", "2", "abcdef012"]) == ("a-123456", "b", "a-abcdef")


def test_a_place_like_the_first_can_be_used() -> None:
    assert unfit(FIRST, FIRST, "n1", Path("/shared"), 64 * GIB) is None


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (Facts("GPU 0", (H100,), 64 * GIB, False), "does not see the tuner's folder /shared"),
        (Facts("GPU 0", (H100,), 60 * GIB, True), "60.0 GiB of memory for a trial, less than the 64.0 GiB"),
        (Facts("GPU 0", (("NVIDIA A100", 80 * GIB),), 64 * GIB, True), "node n1 NVIDIA H100"),
        (Facts("GPU 0", (("NVIDIA H100", 94 * GIB),), 64 * GIB, True), "of one kind"),
        (Facts("CPUs 0-3", (), 64 * GIB, True), "shows 0 GPUs to a trial and node n1 1"),
    ],
)
def test_a_place_that_differs_is_refused(found: Facts, sentence: str) -> None:
    assert sentence in (unfit(found, FIRST, "n1", Path("/shared"), 64 * GIB) or "")


def test_a_client_of_ray_is_refused_before_ray_is_looked_for() -> None:
    with pytest.raises(UsageError, match="on a machine of the cluster"):
        RayCluster("ray://head:10001")

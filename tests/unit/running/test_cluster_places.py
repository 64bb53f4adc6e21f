"""Which places a study has in a cluster, and which of them cannot be used."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.running.cluster.agent import Facts
from autotune.running.cluster.gathering import unfit
from autotune.running.cluster.places import ClusterPlace, Gang, Node, distinct, planned
from autotune.running.cluster.ray_cluster import RayCluster
from tests.support.factories import GIB

FOUR = [Node(f"id{n}", f"n{n}", 64, 8) for n in range(1, 5)]
H100 = ("NVIDIA H100", 80 * GIB)
FIRST = Facts("GPU 0", (H100,), 64 * GIB, True)


def alone(places: tuple[Gang, ...]) -> list[ClusterPlace]:
    """Of trials on one node each."""
    return [place for (place,) in places]


def test_as_many_as_fit_and_every_gpu_once() -> None:
    places = alone(planned(FOUR, 2, None))
    assert len(places) == 16
    assert [p.share.place for p in places] == list(range(16))
    assert Counter(p.node.name for p in places) == {"n1": 4, "n2": 4, "n3": 4, "n4": 4}
    assert {(p.share.count, p.cpus) for p in places} == {(4, 16)}
    assert {p.share.index for p in places if p.node.name == "n3"} == {0, 1, 2, 3}


def test_fewer_are_shared_out_evenly() -> None:
    assert Counter(p.node.name for p in alone(planned(FOUR, 1, 6))) == {"n1": 2, "n2": 2, "n3": 1, "n4": 1}


def test_what_one_node_cannot_hold_fits_on_none() -> None:
    assert [p.node.name for p in alone(planned([*FOUR[:1], Node("small", "small", 8, 3)], 4, None))] == ["n1", "n1"]
    with pytest.raises(UsageError, match=r"33 trials of 1 GPU each do not fit on n1 \(64 CPUs, 8 GPUs\).*32 would"):
        planned(FOUR, 1, 33)
    with pytest.raises(UsageError, match="16 GPUs each do not fit"):
        planned(FOUR, 16, None)


def test_a_node_with_fewer_cores_than_gpus_has_a_place_for_each_core() -> None:
    few = [Node("few", "few", 2, 8)]
    assert len(planned(few, 1, None)) == 2
    with pytest.raises(UsageError, match=r"3 trials of 1 GPU each do not fit on .*; 2 would, each with a CPU core"):
        planned(few, 1, 3)


def test_on_cpus_each_node_has_one_unless_more_are_asked_for() -> None:
    assert len(planned(FOUR, 0, None)) == 4
    assert Counter(p.node.name for p in alone(planned(FOUR, 0, 5)))["n1"] == 2
    with pytest.raises(UsageError, match="a CPU core each do not fit on no node"):
        planned([], 0, None)


def named(places: tuple[Gang, ...]) -> list[str]:
    return ["+".join(part.node.name for part in gang) for gang in places]


def test_a_trial_on_several_nodes_has_a_part_on_each() -> None:
    places = planned(FOUR, 4, None, together=2)
    assert Counter(named(places)) == {"n1+n2": 2, "n3+n4": 2}
    for number, gang in enumerate(places):
        assert [part.part for part in gang] == [0, 1]
        assert {part.share.place for part in gang} == {number}
        assert {(part.share.gpus, part.share.count, part.cpus) for part in gang} == {(4, 2, 32)}
    spots = [(part.node.name, part.share.index) for gang in places for part in gang]
    assert sorted(spots) == [(node.name, index) for node in FOUR for index in (0, 1)]


def test_of_unlike_nodes_as_many_places_are_made_as_can_be() -> None:
    unlike = [Node("big", "big", 64, 24), *FOUR[:3]]
    assert named(planned(unlike, 8, None, together=2)) == ["big+n1", "big+n2", "big+n3"]
    assert named(planned(FOUR, 0, None, together=3)) == ["n1+n2+n3"]


def test_a_trial_that_needs_more_nodes_than_there_are_is_refused() -> None:
    with pytest.raises(UsageError, match=r"3 trials of 8 GPUs each on 2 nodes do not fit on .*; 2 would"):
        planned(FOUR, 8, 3, together=2)
    with pytest.raises(UsageError, match=r"1 trial of a CPU core each on 5 nodes do not fit on .*; 0 would"):
        planned(FOUR, 0, None, together=5)


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


@pytest.mark.parametrize(("value", "said"), [("127.0.0.1:1", "nothing answers"), ("nonsense", "expected HOST:PORT")])
def test_an_address_of_the_environment_is_named_as_such(value: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", value)
    with pytest.raises(UsageError, match=f"^RAY_ADDRESS {value}: {said}"):
        RayCluster("auto")

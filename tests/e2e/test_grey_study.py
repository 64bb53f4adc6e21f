"""Studies by the sampler nobody has to name, through the command line on a machine with one made-up GPU: what they
begin with.

Everything of the tuner is real; the driver and the training interpreter are scripts.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.support.node import Node

pytestmark = pytest.mark.full

SPACE = """\
require: {device: cuda}
knobs:
  rollout_engine: transformers
  micro_batch_size: [1, 2, 4]
  gradient_checkpointing: [true, false]
  logprob_rows: [1, 2, 4]
"""
BATCH = ("--effective-batch", "8", "--set", "num_generations=8", "--space", "space.yaml")


def start(node: Node, name: str, *words: str, longest: int = 32, trials: int = 4) -> subprocess.CompletedProcess[str]:
    size = ("--max-trials", f"{trials}", "--max-completion-length", f"{longest}")
    return node.start("--name", name, *size, *BATCH, *words)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """Two studies, the second at twice the length."""
    node = Node(tmp_path_factory.mktemp("node"), [{}])
    (node.folder / "space.yaml").write_text(SPACE)
    for name, longest in (("one", 32), ("two", 64)):
        done = start(node, name, longest=longest)
        assert done.returncode == 0, done.stderr
        Path(node.folder / f"{name}.txt").write_text(done.stdout + done.stderr)
    return node


def probes(node: Node) -> int:
    return sum(one["argv"][1] == "probe_speed" for one in node.launches())


def test_the_device_is_measured_once_for_the_machine(node: Node) -> None:
    assert probes(node) == 1
    said = [(node.folder / f"{name}.txt").read_text() for name in ("one", "two")]
    assert ["measuring what the device can do" in text for text in said] == [True, False]


def test_a_study_goes_on_with_its_sampler_and_another_one_is_refused(node: Node) -> None:
    assert node.document("status", "one")["study"]["sampler"] == "grey"
    refused = start(node, "one", "--sampler", "tpe")
    assert refused.returncode == 2
    assert "(sampler: grey -> tpe)" in refused.stderr
    old = start(node, "old", "--sampler", "tpe")
    assert old.returncode == 0, old.stderr
    done = start(node, "old", trials=6)
    assert done.returncode == 0, done.stderr
    assert "it goes on with the sampler it began with: tpe" in done.stdout + done.stderr
    assert node.document("status", "old")["study"]["sampler"] == "tpe"


def test_the_second_begins_with_the_first_and_says_so(node: Node) -> None:
    assert "begins with" not in (node.folder / "one.txt").read_text()
    said = " ".join((node.folder / "two.txt").read_text().split())
    assert "trials of study 'one': max completion tokens 32 instead of 64 (1.0 doublings away)" in said
    (began,) = node.document("best", "two")["why"]["began"]
    assert "study 'one'" in began
    assert node.document("best", "one")["why"]["began"] == []


def test_a_study_goes_on_with_what_it_began_with(node: Node) -> None:
    before = node.document("best", "two")["why"]["began"]
    done = start(node, "two", longest=64, trials=6)
    assert done.returncode == 0, done.stderr
    assert node.document("best", "two")["why"]["began"] == before
    assert probes(node) == 1
    refused = start(node, "two", "--no-history", longest=64, trials=6)
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("autotune: study 'two' began with what study 'one' measured")


def test_without_history_nothing_is_begun_with(node: Node) -> None:
    done = start(node, "three", "--no-history", longest=48)
    assert done.returncode == 0, done.stderr
    assert "begins with" not in done.stdout + done.stderr
    assert node.document("best", "three")["why"]["began"] == []

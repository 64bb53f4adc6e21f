"""Whole studies of Open-R1 on four GPUs and of ms-swift on eight that try vLLM beside the training and on its own GPUs.

The GPUs, the training interpreter and the rollout servers are made up (``tests/support/node.py``); from the options to
the launch lines all is real. What the launches do on GPUs has not yet run on a GPU.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.commands import tagged
from tests.support.node import Node
from tests.support.split_studies import CASES, Case, split, words_of
from trainer.frameworks.common.serving import SERVE

pytestmark = [pytest.mark.full, pytest.mark.timeout(2400)]


SPACE = """\
require: {device: cuda, gpus: 2}
knobs:
  rollout_engine: vllm
  rollout_mode: [colocate, server]
  rollout_gpus: [1, 2]
  tensor_parallel_size: [1, 2]
  micro_batch_size: [1, 2]
"""


@functools.cache
def study(case: Case, folder: Path) -> Node:
    """A study of the whole small space, run once."""
    node = Node(folder, [{}] * case.gpus, case.name)
    (folder / "space.yaml").write_text(SPACE)
    words = words_of(case, folder)
    done = node.start("--max-trials", "30", "--space", "space.yaml", "--sampler", "grid", *words, timeout=2000.0)
    assert done.returncode == 0, done.stderr
    return node


@pytest.fixture(scope="module", params=CASES, ids=[case.name for case in CASES])
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture(scope="module")
def node(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Node:
    return study(case, tmp_path_factory.mktemp(case.name))


def option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def test_colocated_and_served_splits_are_tried_and_one_is_recommended(case: Case, node: Node) -> None:
    trials: list[dict[str, Any]] = node.document("trials")["trials"]
    tried = {split(trial, case.gpus) for trial in trials if trial["outcome"]["ok"]}
    assert tried >= {(case.gpus, 0), (case.gpus - 1, 1), (case.gpus - 2, 2)}, [t["outcome"] for t in trials]
    assert {trial["rows_per_update"] for trial in trials} == {case.rows}
    best = node.document("best")["recommendation"]["rows"][0]
    assert best["configuration"]["rollout_mode"] == "server", "the made-up figures say so"
    assert best["confirmed"]


def test_each_server_is_launched_on_the_last_gpus_and_trains_on_the_others(case: Case, node: Node) -> None:
    launches = node.launches()
    servers = [one for one in launches if one["argv"][0] == SERVE]
    assert servers
    for one in servers:
        at = launches.index(one)
        trained = next(later for later in launches[at:] if "torch.distributed.run" in later["argv"])
        gpus = trained["environment"]["CUDA_VISIBLE_DEVICES"].split(",")
        assert option(trained["argv"], "--nproc-per-node") == str(len(gpus))
        own = one["environment"]["CUDA_VISIBLE_DEVICES"].split(",")
        assert gpus + own == [str(number) for number in range(case.gpus)]
        assert one["argv"][1] == case.name
        size, replicas = (int(option(one["argv"], name)) for name in case.sizes)
        assert size * replicas == len(own)
        assert option(one["argv"], "--host") == one["environment"]["VLLM_HOST_IP"] == "127.0.0.1"
    assert {int(option(one["argv"], case.sizes[0])) for one in servers} == {1, 2}, "tensor parallelism is tried too"


def test_the_winner_is_exported_as_two_commands_in_their_order(case: Case, node: Node, tmp_path: Path) -> None:
    done = node.run("export", "-o", str(tmp_path / "tuned"))
    assert done.returncode == 0, done.stderr
    first, train = (line.split() for line in done.stdout.splitlines() if line.startswith(("first", "train")))
    folder = tmp_path / "tuned"
    assert (first[1:], train[1:]) == (["sh", str(folder / "server.sh")], ["sh", str(folder / "run.sh")])
    words = {"open_r1": "trl.scripts.vllm_serve", "ms_swift": "swift.cli.main rollout"}[case.name]
    assert words in (folder / "server.sh").read_text()


def test_nothing_is_left_running(node: Node) -> None:
    assert tagged(node.home) == []

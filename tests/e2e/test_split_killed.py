"""Small studies that try vLLM beside the training and a rollout server, their tuner killed in the middle.

Machine, training interpreter and servers are made up (``tests/support/node.py``); from the options to the launch lines
all is real. What the launches do on GPUs has not yet run on a GPU.
"""

from __future__ import annotations

import json
import random
import time
from itertools import pairwise
from pathlib import Path

import pytest

from autotune.running.companion import listeners
from tests.e2e.commands import tagged
from tests.support.node import Node
from tests.support.split_studies import CASES, Case, split, words_of
from tests.support.waiting import PATIENCE_S
from trainer.frameworks.common.serving import SERVE

SPACE = """\
require: {device: cuda, gpus: 2}
knobs:
  rollout_engine: vllm
  rollout_mode: [colocate, server]
  rollout_gpus: 1
  micro_batch_size: 1
"""
FASTER = {"open_r1": "server", "ms_swift": "colocate"}
"""By the made-up figures (``scripted_python.seconds``): one GPU serves three sooner than seven."""
pytestmark = pytest.mark.timeout(1200)
CYCLE_S = 0.1
AFTER_S = 2.0
"""A trial beside a server takes about as long."""


def servers(node: Node) -> list[int]:
    """Ports of the servers that were started."""
    if not (node.folder / "launches.jsonl").exists():
        return []
    argvs = [one["argv"] for one in node.launches()]
    return [int(argv[argv.index("--port") + 1]) for argv in argvs if argv[0] == SERVE]


def option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


def check_launches(case: Case, node: Node) -> None:
    """A server has the last GPUs, the training beside it the others."""
    launches = node.launches()
    beside = [(one, later) for one, later in pairwise(launches) if one["argv"][0] == SERVE != later["argv"][0]]
    assert beside
    for one, trained in beside:
        gpus, own = (each["environment"]["CUDA_VISIBLE_DEVICES"].split(",") for each in (trained, one))
        assert option(trained["argv"], "--nproc-per-node") == str(len(gpus))
        assert gpus + own == [str(number) for number in range(case.gpus)]
        assert one["argv"][1] == case.name
        assert [option(one["argv"], name) for name in case.sizes] == ["1", "1"]
        assert option(one["argv"], "--host") == one["environment"]["VLLM_HOST_IP"] == "127.0.0.1"


def check_export(case: Case, node: Node, folder: Path) -> None:
    """Two commands, in their order."""
    done = node.run("export", "--trial", split_trial(case, node), "-o", str(folder))
    assert done.returncode == 0, done.stderr
    first, train = (line.split() for line in done.stdout.splitlines() if line.startswith(("first", "train")))
    assert (first[1:], train[1:]) == (["sh", str(folder / "server.sh")], ["sh", str(folder / "run.sh")])
    words = {"open_r1": "trl.scripts.vllm_serve", "ms_swift": "swift.cli.main rollout"}[case.name]
    assert words in (folder / "server.sh").read_text()


def split_trial(case: Case, node: Node) -> str:
    """The number of a trial with a server that held."""
    trials = node.document("trials")["trials"]
    return str(next(t["number"] for t in trials if t["outcome"]["ok"] and split(t, case.gpus)[1]))


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=[pytest.mark.slow] if number else []) for number, case in enumerate(CASES)],
    ids=[case.name for case in CASES],
)
def test_a_killed_study_goes_on_recommends_one_and_leaves_no_server(case: Case, tmp_path: Path) -> None:
    node = Node(tmp_path, [{}] * case.gpus, case.name)
    (node.folder / "space.yaml").write_text(SPACE)
    (node.folder / "pace.json").write_text(json.dumps({"cycle_s": CYCLE_S}))
    words = node.started(
        "--max-trials", "4", "--space", "space.yaml", "--sampler", "grid", *words_of(case, node.folder)
    )
    with node.begin(*words) as tuner:
        end = time.monotonic() + PATIENCE_S
        while not servers(node) and tuner.poll() is None and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(random.Random(case.name).uniform(0.0, AFTER_S))
        tuner.kill()
        tuner.communicate()
    assert servers(node), "it was killed once there was a server"
    done = node.run(*words, timeout=900.0)
    assert done.returncode == 0, done.stderr
    assert tagged(node.home) == []
    assert [port for port in servers(node) if listeners(port)] == []
    trials = node.document("trials")["trials"]
    assert {trial["rows_per_update"] for trial in trials} == {case.rows}
    tried = {split(trial, case.gpus) for trial in trials if trial["outcome"]["ok"]}
    assert tried == {(case.gpus, 0), (case.gpus - 1, 1)}
    best = node.document("best")["recommendation"]["rows"][0]
    assert best["configuration"]["rollout_mode"] == FASTER[case.name]
    check_launches(case, node)
    check_export(case, node, tmp_path / "tuned")

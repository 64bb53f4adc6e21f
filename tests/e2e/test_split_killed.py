"""Small studies that try vLLM beside the training and a rollout server, their tuner killed in the middle.

Machine, training interpreter and servers are made up (``tests/support/node.py``), and few: ``test_split_studies.py``
tries more. Were this to fail, a killed study would leave a server that holds its GPUs, or would end without an answer.
"""

from __future__ import annotations

import json
import random
import time
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
    tried = {split(trial, case.gpus) for trial in node.document("trials")["trials"] if trial["outcome"]["ok"]}
    assert tried == {(case.gpus, 0), (case.gpus - 1, 1)}
    best = node.document("best")["recommendation"]["rows"][0]
    assert best["configuration"]["rollout_mode"] == FASTER[case.name]

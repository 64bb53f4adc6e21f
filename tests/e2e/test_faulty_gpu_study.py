"""A study through the command line on a machine whose GPUs fail; driver and training interpreter are scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.node import Node

SPACE = """\
require: {device: cuda, gpus: 1}
knobs:
  micro_batch_size: [1, 2]
"""


class FaultyNode(Node):
    """Its driver tells of one event, the first time it is asked."""

    def environment(self, visible: str | None = None) -> dict[str, str]:
        return {**super().environment(visible), "MADE_UP_XIDS": str(self.folder / "xids")}


def events(node: Node, *words: str) -> list[dict[str, Any]]:
    done = node.start("--json", *words)
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return [line for line in lines if line["type"] == "event"]


def test_a_study_survives_a_memory_error_and_says_which_gpu_had_it(tmp_path: Path) -> None:
    node = FaultyNode(tmp_path, [{}, {}])
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "xids" / "1-94").mkdir(parents=True)
    batch = ("--effective-batch", "8", "--max-completion-length", "32")
    shown = events(node, "--max-trials", "1", "--space", "space.yaml", "--sampler", "grid", *batch)
    kinds = [event["kind"] for event in shown]
    assert kinds.count("gpu_quarantined") == 1
    assert kinds.index("gpu_quarantined") < kinds.index("trial_repeated") < kinds.index("trial_finished")
    sentence = "trials avoid GPU 1: an uncorrectable memory error, contained (XID 94)"
    assert node.document("status")["avoided_gpus"] == [sentence]
    assert f"GPUs     {sentence}" in node.run("status").stdout
    (baseline, *_) = sorted(node.document("trials")["trials"], key=lambda t: int(t["number"]))
    assert (baseline["state"], baseline["attempt"]) == ("COMPLETE", 2)


def test_a_study_begins_on_what_is_left_and_doctor_names_what_is_not(tmp_path: Path) -> None:
    node = Node(tmp_path, [{}, {"lost": True}])
    (tmp_path / "space.yaml").write_text(SPACE)
    batch = ("--effective-batch", "4", "--max-completion-length", "32")
    done = node.start("--max-trials", "1", "--space", "space.yaml", "--sampler", "grid", *batch)
    assert done.returncode == 0, done.stderr
    assert "GPU 1: the driver does not answer for it (GPU is lost)" in done.stderr
    assert node.document("status")["study"]["gpus"] == 1
    looked = node.run("doctor", "--python", str(node.python))
    assert "GPU is lost" in looked.stdout
    assert "nvidia-smi --gpu-reset -i 1" in looked.stdout

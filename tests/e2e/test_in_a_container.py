"""Studies where a container would run them: no root, no name, no home, 64 MiB of shared memory, a read-only root."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import sandbox
from tests.support.node import Node
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(not sandbox.available(), reason="this machine lets nobody make namespaces")
SPACE = "knobs:\n  micro_batch_size: [1, 2]\n"


class Contained(Node):
    """Its commands run in the sandbox, and nothing but its folder can be written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, [])
        (folder / "tmp").mkdir()

    def environment(self, visible: str | None = None) -> dict[str, str]:
        kept = ("PATH", "PYTHONPATH", "MADE_UP_GPUS")
        here = {name: value for name, value in super().environment(visible).items() if name in kept}
        return {**here, "TMPDIR": str(self.folder / "tmp")}

    def run(
        self, *words: str, visible: str | None = None, timeout: float = PATIENCE_S, home: bool = True
    ) -> subprocess.CompletedProcess[str]:
        given = ("--home", str(self.home)) if home else ()
        command = [sys.executable, "-m", "autotune.cli", *words, *given]
        return sandbox.run(self.folder, command, self.environment(visible), timeout)


@pytest.fixture
def node(tmp_path: Path) -> Contained:
    node = Contained(tmp_path)
    (tmp_path / "space.yaml").write_text(SPACE)
    return node


def test_a_study_has_an_answer(node: Contained) -> None:
    batch = ("--effective-batch", "4", "--max-completion-length", "32")
    done = node.start("--max-trials", "2", "--space", "space.yaml", "--sampler", "grid", *batch)
    assert done.returncode == 0, done.stderr
    assert json.loads(node.run("best", "--json").stdout)["recommendation"]["rows"]
    assert not list((node.folder / "tmp").iterdir()), "nothing is left among the temporary files"


def test_doctor_names_what_is_missing_with_the_option_that_mends_it(node: Contained) -> None:
    found = json.loads(node.run("doctor", "--json", "--python", str(node.python)).stdout)["findings"]
    by_name = {finding["name"]: finding for finding in found}
    assert "--shm-size" in by_name["shared memory"]["command"]
    assert "export HOME=" in by_name["user"]["command"]
    assert by_name["home"]["verdict"] == "ok"


def test_without_any_home_the_tool_asks_for_one(node: Contained) -> None:
    done = node.run("status", home=False)
    assert done.returncode == 2
    assert done.stderr == "autotune: no home folder is known: set HOME, or AUTOTUNE_HOME or --home to a folder\n"

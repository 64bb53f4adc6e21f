"""A few faults on a cluster of four nodes: see ``tests/cluster_faults``, which makes sixty."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.support.ray_nodes import needs_ray

needs_ray()
pytestmark = [pytest.mark.full, pytest.mark.alone, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
FAULTS, SEED = 6, 35


def test_a_few_faults_violate_nothing(tmp_path: Path) -> None:
    record = tmp_path / "record.json"
    words = ["--faults", str(FAULTS), "--seed", str(SEED), "--record", str(record)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster_faults", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    met = Counter(
        name for study in json.loads(record.read_text())["studies"] for run in study["runs"] for name in run["met"]
    )
    assert met.total() == FAULTS
    assert len(met) == FAULTS, "each another kind"

"""Ten minutes of random faults on random studies: see ``tests/campaign``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.full, pytest.mark.trl, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
MINUTES, SEED = 10, 36


def test_ten_minutes_of_random_faults_violate_nothing() -> None:
    words = ["--minutes", str(MINUTES), "--seed", str(SEED)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.campaign", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr

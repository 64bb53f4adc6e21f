"""A tuner killed with SIGKILL: page, command line, API and metrics say so within fifteen looks a second apart."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.client import Client
from api.serving import serving
from autotune.cli.app import build_app
from autotune.cli.failures import exit_code_of
from tests.support.served import running_study, settings_in

ROOT = Path(__file__).resolve().parents[2]
LOOKS = 15
TUNER = """
import sys, time
from autotune.store import open_store
with open_store(sys.argv[1]).lock(1):
    print("runs", flush=True)
    time.sleep(600)
"""


def text_at(url: str) -> str:
    with closing(urllib.request.urlopen(url)) as answer:  # noqa: S310 - of this test
        return str(answer.read().decode())


def states(url: str, home: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """What each reader says of the study."""
    capsys.readouterr()
    assert exit_code_of(lambda: build_app()(["status", "--json", "--home", str(home)], prog_name="autotune")) == 0
    told = json.loads(capsys.readouterr().out)
    up = {True: "running", False: "interrupted"}['autotune_tuner_up{study="1"} 1' in text_at(f"{url}/metrics")]
    page = text_at(f"{url}/studies/1")
    return {
        "API": Client(url).status(1).study.state,
        "command": told["study"]["state"],
        "metrics": up,
        "page": next((word for word in ("running", "interrupted") if f'<span class="badge {word}">' in page), page),
    }


def test_every_reader_says_that_a_killed_tuner_is_gone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = settings_in(tmp_path)
    running_study(settings)
    tuner = subprocess.Popen(
        [sys.executable, "-c", TUNER, settings.database], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert tuner.stdout is not None
        assert tuner.stdout.readline() == "runs\n"
        with serving(settings, print, port=0) as url:
            assert url is not None
            assert set(states(url, settings.home.root, capsys).values()) == {"running"}
            tuner.kill()
            for _ in range(LOOKS):
                time.sleep(1.0)
                told = states(url, settings.home.root, capsys)
                if set(told.values()) == {"interrupted"}:
                    break
            assert set(told.values()) == {"interrupted"}, told
    finally:
        tuner.kill()
        tuner.communicate()

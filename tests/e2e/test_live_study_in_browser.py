"""A real study on this machine's CPU, followed in a real browser: killed with its page, begun again, to its answer."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.browser import browser, complaints
from tests.e2e.commands import begin
from tests.support.trl_trials import build_tiny, training_python
from tests.support.waiting import PATIENCE_S, wait_for

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.slow, pytest.mark.trl, pytest.mark.timeout(900)]

SOON_MS = 120_000
WHOLE_MS = 600_000
HELD = re.compile(r"reward, cycle \d")
REWARD = """\
import os, time


def score(prompts, completions, **columns):
    while os.path.exists("{held}"):
        time.sleep(0.05)
    return [float(len(each) % 3) for each in completions]
"""
"""With a model this small a phase lasts for less than the page waits between two questions, so one is held until the
page has shown it."""


@pytest.fixture
def tab() -> Iterator[Any]:
    """Fails the test if the page complains about anything, such as the policy."""
    said: list[str] = []
    with browser() as chromium:
        page = chromium.new_page(viewport={"width": 1400, "height": 1000})
        page.set_default_timeout(SOON_MS)
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        yield page
    assert complaints(said) == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


def answers(port: int) -> bool:
    with socket.socket() as line:
        return line.connect_ex(("127.0.0.1", port)) == 0


def followed(tab: Any, tuner: subprocess.Popen[str], held: Path) -> None:
    """Waits for a phase of a cycle on the page; a tuner that ended instead is told with what it said."""
    held.touch()
    phase = tab.locator("#running .now", has_text=HELD)
    wait_for(lambda: phase.is_visible() or tuner.poll() is not None, "a phase", WHOLE_MS / 1000)
    if not phase.is_visible() and tuner.poll() is not None:
        pytest.fail(f"ended with {tuner.returncode}: {tuner.communicate()}")
    held.unlink()


def test_a_real_study_is_followed_through_a_kill_to_its_answer(tab: Any, tmp_path: Path) -> None:
    build_tiny(tmp_path)
    home, port, held = tmp_path / "home", free_port(), tmp_path / "held"
    (tmp_path / "mine.py").write_text(REWARD.format(held=held))
    url = f"http://127.0.0.1:{port}"
    own = ("--model", "model", "--data", "prompts.jsonl", "--reward", "mine.py:score", "--python", training_python())
    start = ("start", *own, "--rows-per-update", "8", "--max-completion-length", "16", "--max-trials", "2", "--no-live")
    tuner = begin(*start, "--port", str(port), home=home, cwd=tmp_path)
    wait_for(lambda: answers(port), "its answer")
    tab.goto(url)
    tab.locator("#studies tbody a").first.click()
    followed(tab, tuner, held)
    tab.evaluate("window.neverLoadedAgain = true")
    tab.locator("#trials tbody tr.good").first.wait_for(timeout=WHOLE_MS)
    tuner.kill()
    tuner.communicate()
    tab.locator("#live.off").wait_for()
    begin("serve", "--port", str(port), home=home, cwd=tmp_path)
    tab.locator(".badge.interrupted").wait_for()
    again = begin(*start, "--no-serve", home=home, cwd=tmp_path)
    followed(tab, again, held)
    tab.locator(".badge.done").wait_for(timeout=WHOLE_MS)
    assert tab.evaluate("window.neverLoadedAgain"), "it followed all of it by itself"
    _, err = again.communicate(timeout=PATIENCE_S)
    assert again.returncode == 0, err[-3000:]
    assert tab.locator("#trials tbody tr").count() >= 2
    assert tab.locator("#answer .figure").count() >= 1
    tab.goto(f"{url}/studies/1/why")
    for name in ("phases", "memory", "peaks"):
        assert tab.locator(f"#{name} svg.chart").count() == 1, name
    tab.goto(f"{url}/studies/1/trials/0")
    assert tab.locator("#timeline svg.chart").count() == 1, "the memory of a real process over its time"
    assert "config.json" in tab.locator("#files").inner_text()
    tab.goto(f"{url}/studies/1/recommendation")
    assert training_python() in tab.locator("#row-1").text_content()

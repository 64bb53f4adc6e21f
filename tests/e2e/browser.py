"""A real browser on the page of a home's studies; also takes the pictures of the documentation.

python -m tests.e2e.browser HOME FILE.png [PATH [light|dark [WIDTH]]]
python -m tests.e2e.browser          gets a Chromium if there is none, and says where it is
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from api.serving import serving
from autotune.settings import read_settings

NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
PATIENCE_S = 240
WITHOUT = "AUTOTUNE_WITHOUT_BROWSER"
"""Set where no Chromium can be had and somebody has decided to go without: then these tests are skipped."""


def executable() -> str:
    """``$CHROMIUM``, else one in PATH, else Playwright's own, else what can be installed here.

    Raises:
        RuntimeError: there is none; with the command that gets one.
    """
    with FileLock(Path(tempfile.gettempdir()) / f"autotune-chromium-{os.getuid()}.lock"):  # two workers may ask at once
        return _there() or _installed()


def _installed() -> str:
    command = _install_command()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        why = done.stderr.strip().splitlines()[-1:]
    except (OSError, subprocess.TimeoutExpired) as error:
        why = [str(error)]
    found = _there()
    if not found:
        raise RuntimeError(
            f"the tests of the page need a Chromium: `{' '.join(command)}` failed ({' '.join(why)}); run it by hand, "
            "or name one by CHROMIUM=/path/to/chromium"
        )
    return found


def _there() -> str:
    named = os.environ.get("CHROMIUM", "")
    if named:
        if not os.access(named, os.X_OK):
            raise RuntimeError(f"CHROMIUM={named} is no program")
        return named
    return next((path for name in NAMES if (path := shutil.which(name))), "") or _of_playwright()


def _of_playwright() -> str:
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - of the development environment

    with sync_playwright() as driver:
        path = driver.chromium.executable_path
    return path if Path(path).exists() else ""


def _install_command() -> list[str]:
    if os.geteuid() == 0 and shutil.which("apt-get"):
        return ["apt-get", "install", "-y", "--no-install-recommends", "chromium"]
    return [sys.executable, "-m", "playwright", "install", "chromium"]


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window; ``RuntimeError`` where there is none and ``AUTOTUNE_WITHOUT_BROWSER`` is not set."""
    if os.environ.get(WITHOUT):
        pytest.skip(f"{WITHOUT} is set")
    path = executable()
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield started
        started.close()


def main(home: str, file: str, path: str = "", theme: str = "light", width: str = "1120") -> None:
    """A picture of a page; of the newest study's unless told."""
    settings = read_settings(environ={"AUTOTUNE_HOME": home})
    with serving(settings, print, port=0) as url, browser() as started:
        context = started.new_context(color_scheme=theme, viewport={"width": int(width), "height": 1340})
        page = context.new_page()
        page.goto(f"{url}{path or '/'}")
        if not path:
            page.locator("#studies tbody a").first.click()
        page.locator("#live.on").wait_for(timeout=15_000)
        page.screenshot(path=file, full_page=bool(path))


def complaints(said: Sequence[str]) -> list[str]:
    """What a console said but for a server that is gone: the browser itself notes that, and tests end servers."""
    return [text for text in said if not text.startswith("Failed to load resource: net::ERR_")]


def get() -> int:
    """0 if there is one now."""
    try:
        print(executable())
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if sys.argv[1:] else get())

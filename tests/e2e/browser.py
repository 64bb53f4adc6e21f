"""A real browser on the page of a home's studies; also takes the picture of the documentation.

python -m tests.e2e.browser HOME FILE.png
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from api.serving import serving
from autotune.settings import read_settings

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def absent() -> str:
    """Why there is no browser here; empty if there is one."""
    try:
        import playwright  # noqa: F401, PLC0415 - only whether it is there
    except ImportError:
        return "playwright is not installed: pip install playwright"
    return "" if CHROMIUM.exists() else f"{CHROMIUM} is not there: apt-get install chromium"


@contextmanager
def browser() -> Iterator[Any]:
    """Chromium without a window."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield started
        started.close()


def main(home: str, file: str) -> None:
    """A picture of the newest study's page."""
    settings = read_settings(environ={"AUTOTUNE_HOME": home})
    with serving(settings, print, port=0) as url, browser() as started:
        page = started.new_page(viewport={"width": 1120, "height": 860})
        page.goto(f"{url}/")
        page.locator("#studies tbody a").first.click()
        page.locator("#live.on").wait_for(timeout=15_000)
        page.screenshot(path=file)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])

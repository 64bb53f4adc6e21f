"""The page in a real browser: it follows a study without being reloaded, and is whole without scripts."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.serving import serving
from autotune.domain import Study
from autotune.settings import Settings
from autotune.store import open_store
from tests.e2e.browser import complaints
from tests.support import factories
from tests.support.recorded import record
from tests.support.served import settings_in, whole_study

pytestmark = pytest.mark.slow

SOON_MS = 60_000


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


@pytest.fixture
def study(home: Settings) -> Study:
    return whole_study(home)


@pytest.fixture
def url(home: Settings) -> Iterator[str]:
    with serving(home, print, port=0) as found:
        assert found is not None
        yield found


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a study that no test changes."""
    settings = settings_in(tmp_path_factory.mktemp("ended"))
    whole_study(settings)
    with serving(settings, print, port=0) as found:
        assert found is not None
        yield found


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A tab that fails the test if the page complains about anything."""
    tab = chromium.new_page(viewport={"width": 1100, "height": 800})
    said: list[str] = []
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    yield tab
    tab.close()
    assert complaints(said) == []


def test_a_new_trial_appears_by_itself_and_what_was_open_stays_open(
    page: Any, url: str, home: Settings, study: Study
) -> None:
    page.goto(f"{url}/studies/1")
    page.locator("#live.on").wait_for(timeout=SOON_MS)
    page.locator("#setup summary").click()
    page.locator("#trials tbody a").first.focus()
    focused = page.evaluate("document.activeElement.textContent")
    fastest = factories.configuration(micro_batch_size=1, gradient_accumulation_steps=8, logprob_rows=1)
    store = open_store(home.database)
    number = len(store.trials(study.id))
    made = factories.finished(number, cycle_seconds=0.5, configuration=fastest)
    record(store, study, made.with_(finished_at=made.created_at + 1e6))
    store.close()
    assert page.locator(f"#trials tbody a:has-text('#{number}')").count() == 0
    page.locator(f"#trials tbody tr:first-child a:text-is('#{number}')").wait_for(timeout=SOON_MS)
    page.locator(".sofar").wait_for(timeout=SOON_MS)
    assert page.locator("#setup details").get_attribute("open") is not None
    assert page.evaluate("document.activeElement.textContent") == focused


def test_it_asks_every_two_seconds_at_most_and_unchanged_pages_are_304(page: Any, ended: str) -> None:
    answers: list[int] = []
    page.on("response", lambda r: answers.append(r.status) if r.url.endswith("/studies/1") else None)
    began = time.monotonic()
    page.goto(f"{ended}/studies/1")
    page.locator("#live.on").wait_for(timeout=SOON_MS)
    page.wait_for_timeout(13_000)
    while not answers[2:]:
        assert time.monotonic() - began < 120, "it asks again, seldom where the server tells what happens"
        page.wait_for_timeout(500)
    assert answers[:2] == [200, 200]
    assert set(answers[2:]) == {304}
    assert len(answers) <= 3 + (time.monotonic() - began) / 2, "every two seconds at most"


def test_without_scripts_it_is_a_whole_snapshot(chromium: Any, ended: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(f"{ended}/studies/1")
    assert tab.locator("#live").inner_text() == "snapshot"
    assert tab.locator("#trials tbody tr").count() > 5
    assert re.search(r"[+-]\d+\.\d %", tab.locator("#answer").inner_text())
    context.close()


@pytest.mark.parametrize("width", [320, 390, 768, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_needs_sideways_scrolling(chromium: Any, ended: str, width: int, scheme: str) -> None:
    context = chromium.new_context(color_scheme=scheme, viewport={"width": width, "height": 800})
    tab = context.new_page()
    for path in ("/", "/studies/1", "/nowhere"):
        tab.goto(ended + path)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width, path
    context.close()


def test_the_keyboard_reaches_everything(page: Any, ended: str) -> None:
    page.goto(f"{ended}/studies/1")
    reached: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.tagName + ' ' + (document.activeElement.className || '')"))
    assert reached[0] == "A skip"
    assert "DIV scroll" in reached, "the table can be scrolled by keys"
    assert any(r.startswith("SUMMARY") for r in reached)


def test_a_hostile_name_runs_nothing(chromium: Any, url: str, home: Settings) -> None:
    store = open_store(home.database)
    name = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    store.create_study(factories.study_spec(name), factories.NOW)
    store.close()
    tab = chromium.new_page()
    asked: list[str] = []
    tab.on("dialog", lambda dialog: (asked.append(dialog.message), dialog.dismiss()))
    for path in ("/", "/studies/1"):
        tab.goto(url + path)
        tab.locator("#live.on").wait_for(timeout=SOON_MS)
        assert name in tab.locator("main").inner_text()
    assert asked == []
    tab.close()


def test_a_server_that_ends_is_said(chromium: Any, home: Settings, study: Study) -> None:
    tab = chromium.new_page()
    with serving(home, print, port=0) as address:
        tab.goto(f"{address}/studies/1")
        tab.locator("#live.on").wait_for(timeout=SOON_MS)
    tab.locator("#live.off").wait_for(timeout=SOON_MS)
    assert "no answer" in tab.locator("#live").inner_text()
    assert tab.locator("#trials tbody tr").count() > 5
    tab.close()

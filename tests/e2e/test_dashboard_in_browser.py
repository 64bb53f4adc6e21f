"""Every page in a real browser: themes, filters, comparing, copying, keys, studies that run, servers that die."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe

from api.dashboard.report_page import report_page
from api.serving import page_server, serving
from autotune.domain import Study, StudyStatus
from autotune.recommendation.reading import read_study
from autotune.recommendation.recommend import recommend
from autotune.settings import Settings
from autotune.store import open_store
from tests.e2e.browser import complaints
from tests.e2e.forked import Forked
from tests.e2e.test_serve import Server, begin_study
from tests.support import factories
from tests.support.large_study import large_study
from tests.support.not_none import not_none
from tests.support.recorded import record
from tests.support.served import running_study, settings_in, tuner_of, whole_study
from tests.support.waiting import PATIENCE_S
from trainer.child.contract import write_atomic

pytestmark = pytest.mark.slow

SOON_MS = 60_000
PAGES = ("/", "/studies/1", "/studies/1/why", "/studies/1/trials/0", "/studies/1/compare?trial=0&trial=1")
EVERY_PAGE = (*PAGES, "/studies/1/recommendation")
LARGE = pytest.param("large", marks=pytest.mark.full)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a study that has ended."""
    settings = settings_in(tmp_path_factory.mktemp("small"))
    whole_study(settings)
    with serving(settings, print, port=0) as url:
        assert url is not None
        yield url


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a study of 10,000 trials."""
    settings = settings_in(tmp_path_factory.mktemp("large"))
    large_study(settings)
    with serving(settings, print, port=0) as url:
        assert url is not None
        yield url


@pytest.fixture
def home(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


def tab_of(chromium: Any, said: list[str], **options: Any) -> Any:
    """A tab that notes what the page complains about."""
    tab = chromium.new_context(**{"viewport": {"width": 1200, "height": 900}, **options}).new_page()
    tab.set_default_timeout(SOON_MS)
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    return tab


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """Fails the test if the page complains about anything, such as the policy."""
    said: list[str] = []
    tab = tab_of(chromium, said)
    yield tab
    tab.context.close()
    assert complaints(said) == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("path", EVERY_PAGE)
def test_axe_finds_nothing_that_hinders_people(chromium: Any, small: str, path: str, theme: str) -> None:
    tab = tab_of(chromium, [], color_scheme=theme)
    tab.goto(small + path)
    found = Axe().run(tab).response["violations"]
    tab.context.close()
    assert [(each["id"], [node["target"] for node in each["nodes"]][:3]) for each in found] == []


def ground(tab: Any) -> int:
    """How bright the page is, 0 to 765."""
    colour = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    return sum(int(part) for part in re.findall(r"\d+", colour)[:3])


@pytest.mark.parametrize("size", ["small", LARGE])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_draws_in_both_themes_at_phone_and_wall_width(
    chromium: Any, size: str, theme: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(size)
    said: list[str] = []
    tab = tab_of(chromium, said, color_scheme=theme)
    for path in EVERY_PAGE:
        tab.goto(url + path)
        tab.locator("#live.on").wait_for()
        assert tab.locator("h1").count() == 1, path
        assert (ground(tab) > 600) is (theme == "light"), path
        for width in (360, 768, 2560):
            tab.set_viewport_size({"width": width, "height": 900})
            wide = "[document.documentElement, ...document.querySelectorAll('.draw')].map(e => e.scrollWidth)"
            assert max(tab.evaluate(wide)) <= width, f"{path} or a chart of it scrolls sideways at {width}"
        tab.set_viewport_size({"width": 1200, "height": 900})
    tab.goto(f"{url}/studies/1/why")
    assert tab.locator("svg.chart").count() >= 5  # six, but where the answer changes no knob
    heights = tab.evaluate("[...document.querySelectorAll('svg.chart')].map(s => s.getBoundingClientRect().height)")
    assert min(heights) > 40
    tab.context.close()
    assert complaints(said) == []


def test_the_theme_is_chosen_and_kept(page: Any, small: str) -> None:
    page.goto(f"{small}/studies/1")
    before = ground(page)
    page.locator("#theme").click()
    after = ground(page)
    assert abs(after - before) > 300
    page.goto(f"{small}/studies/1/why")
    assert ground(page) == after


@pytest.mark.full
def test_the_first_view_of_ten_thousand_trials_is_small(page: Any, large: str) -> None:
    sizes: dict[str, int] = {}
    page.on("response", lambda r: sizes.__setitem__(r.url, int(r.headers.get("content-length") or len(r.body()))))
    page.goto(f"{large}/studies/1", wait_until="networkidle")
    assert sum(sizes.values()) <= 500_000, sizes
    assert page.locator("#trials tbody tr").count() == 100
    assert "10000 trials, best first; page 1 of 100" in page.locator("#trials").inner_text()
    page.locator("a[rel=next]").first.click()
    page.wait_for_url("**page=2*")
    assert "page 2 of 100" in page.locator("#trials").inner_text()


@pytest.mark.full
def test_no_page_of_ten_thousand_trials_is_large(chromium: Any, large: str) -> None:
    for path in EVERY_PAGE:
        sizes: dict[str, int] = {}
        tab = chromium.new_context().new_page()
        tab.on("response", lambda r, into=sizes: into.__setitem__(r.url, int(r.headers.get("content-length") or 0)))
        tab.goto(large + path, wait_until="networkidle")
        assert len(sizes) >= 5, (path, "the page and what it loads")
        assert sum(sizes.values()) <= 500_000, (path, sizes)
        tab.context.close()


@pytest.mark.full
def test_a_knob_of_thousands_of_values_is_filtered_by_a_range(page: Any, large: str) -> None:
    page.goto(f"{large}/studies/1")
    page.locator("#filters summary").click()
    page.locator("#filters input[name='knob.logprob_token_chunk']").fill("10..12")
    page.locator("#filters button[type=submit]").click()
    page.wait_for_url("**knob.logprob_token_chunk=10..12*")
    assert page.locator("#trials tbody tr").count() == 3
    assert "3 of 10000 trials" in page.locator("#trials").inner_text()
    assert page.locator("#filters input[name='knob.logprob_token_chunk']").input_value() == "10..12"


@pytest.mark.parametrize("size", ["small", LARGE])
def test_a_failed_trial_says_why(page: Any, size: str, request: pytest.FixtureRequest) -> None:
    page.goto(f"{request.getfixturevalue(size)}/studies/1?outcome=OOM")
    page.locator("#trials tbody a").first.click()
    page.wait_for_url("**/trials/*")
    assert "OOM in " in page.locator("#head .cause").inner_text()
    assert "No files to train with" in page.locator("#take").inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_report_is_whole_without_a_server(chromium: Any, tmp_path: Path, theme: str) -> None:
    settings = settings_in(tmp_path)
    whole_study(settings)
    store = open_store(settings.database)
    file = tmp_path / "report.html"
    file.write_text(report_page(read_study(store, store.study(1))))
    store.close()
    said: list[str] = []
    asked: list[str] = []
    tab = tab_of(chromium, said, color_scheme=theme)
    tab.on("request", lambda one: asked.append(one.url))
    tab.goto(file.as_uri())
    assert (ground(tab) > 600) is (theme == "light")
    heights = tab.evaluate("[...document.querySelectorAll('svg.chart')].map(s => s.getBoundingClientRect().height)")
    assert len(heights) >= 6
    assert min(heights) > 40
    for width in (360, 2560):
        tab.set_viewport_size({"width": width, "height": 900})
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert asked == [file.as_uri()], "it needs nothing else"
    assert said == []
    tab.context.close()


@pytest.mark.full
def test_filters_are_in_the_address_and_stay_while_the_page_lives(page: Any, large: str) -> None:
    page.goto(f"{large}/studies/1")
    page.locator("#filters summary").click()
    page.locator("#filters select[name=outcome]").select_option("OOM")
    page.locator("#filters select[name='knob.micro_batch_size']").select_option("4")
    page.locator("#filters button[type=submit]").click()
    page.wait_for_url("**outcome=OOM*")
    assert "knob.micro_batch_size=4" in page.url
    page.locator("#live.on").wait_for()
    assert set(page.locator("#trials tbody .outcome").all_inner_texts()) == {"OOM"}
    assert page.locator("#filters select[name=outcome]").input_value() == "OOM"
    page.wait_for_timeout(3000)
    assert set(page.locator("#trials tbody .outcome").all_inner_texts()) == {"OOM"}, "a poll asks for the same"


def test_chosen_trials_are_compared(page: Any, small: str) -> None:
    page.goto(f"{small}/studies/1")
    boxes = page.locator("#trials tbody input[type=checkbox]")
    numbers = [boxes.nth(i).get_attribute("value") for i in (0, 1, 2)]
    for i in (0, 1, 2):
        boxes.nth(i).check()
    page.get_by_role("button", name="Compare the chosen").click()
    page.wait_for_url("**/compare?*")
    assert page.locator("h1").inner_text() == " · ".join(f"#{n}" for n in numbers)
    columns = page.locator("table.compare thead th").count() - 1
    assert columns == 3
    for row in page.locator("table.compare tbody tr").all():
        values = row.locator("td").all_inner_texts()
        assert len(set(values)) > 1, "only what differs"


def test_every_button_copies_its_text(chromium: Any, small: str) -> None:
    said: list[str] = []
    tab = tab_of(chromium, said, permissions=["clipboard-read", "clipboard-write"])
    tab.goto(f"{small}/studies/1/recommendation")
    tab.evaluate("document.querySelectorAll('#row-1 details').forEach(one => { one.open = true; })")
    buttons = tab.locator("#row-1 button.copy")
    assert buttons.count() >= 5
    for i in range(buttons.count()):
        name = buttons.nth(i).get_attribute("data-copy")
        text = tab.evaluate("id => document.getElementById(id).textContent", name)
        buttons.nth(i).click()
        tab.locator(f"button[data-copy='{name}']:text-is('copied')").wait_for()
        copied = tab.evaluate("navigator.clipboard.readText()")
        assert copied.strip() == text.strip()
        assert len(copied) > 10
    with tab.expect_download() as download:
        tab.locator("#row-1 a.button").click()
    assert download.value.suggested_filename == "study-1-row-1.zip"
    tab.context.close()
    assert complaints(said) == []


def test_charts_speak_by_pointer_and_by_keys(page: Any, small: str) -> None:
    page.goto(f"{small}/studies/1")
    chart = page.locator("#history .draw")
    chart.focus()
    page.keyboard.press("ArrowRight")
    first = page.locator(".told").inner_text()
    assert first.startswith("#0 baseline")
    page.keyboard.press("ArrowRight")
    assert page.locator(".told").inner_text() != first
    page.keyboard.press("Enter")
    page.wait_for_url("**/trials/1")
    page.go_back()
    page.locator("#history .mark circle").first.hover()
    assert page.locator(".told").inner_text().startswith("#")


def test_a_map_cell_leads_to_its_trials(page: Any, small: str) -> None:
    page.goto(f"{small}/studies/1/why")
    page.locator("#fits svg a").first.click()
    page.wait_for_url("**knob.*")
    assert page.locator("#trials tbody tr").count() >= 1


def test_it_goes_on_with_a_server_that_was_killed_and_started_again(
    chromium: Any, home: Settings, tmp_path: Path
) -> None:
    study = whole_study(home)
    server = Server(home.home.root, tmp_path, "--port", "0")
    port = server.url.rsplit(":", 1)[1]
    tab = tab_of(chromium, [])
    tab.goto(f"{server.url}/studies/1")
    tab.locator("#live.on").wait_for()
    tab.locator("#trials tbody input").first.check()
    chosen = tab.locator("#trials tbody input").first.get_attribute("value")
    server.end(signal.SIGKILL)
    tab.locator("#live.off").wait_for()
    assert "no answer" in tab.locator("#live").inner_text()
    assert tab.locator("#trials tbody tr").count() > 5
    number = add_fastest(home, study)
    again = Server(home.home.root, tmp_path, "--port", port)
    try:
        tab.locator(f"#trials tbody tr:first-child a:text-is('#{number}')").wait_for(timeout=SOON_MS)
        tab.locator("#live.on").wait_for()
        assert tab.locator(f"#trials tbody input[value='{chosen}']").is_checked(), "what was chosen stays chosen"
        assert f"#{number} " in tab.locator("#history .draw").inner_html()
    finally:
        again.end(signal.SIGKILL)
        tab.context.close()


def add_fastest(home: Settings, study: Study) -> int:
    """A trial faster than all others, stored as the loop does."""
    store = open_store(home.database)
    number = len(store.trials(study.id))
    fastest = factories.configuration(micro_batch_size=1, gradient_accumulation_steps=8, logprob_rows=1)
    made = factories.finished(number, cycle_seconds=0.5, configuration=fastest)
    record(store, study, made.with_(finished_at=made.created_at + 1e6))
    store.close()
    return number


def test_a_new_trial_appears_by_itself_and_what_was_open_stays_open(page: Any, home: Settings) -> None:
    study = whole_study(home)
    with serving(home, print, port=0) as url:
        page.goto(f"{url}/studies/1")
        page.locator("#live.on").wait_for()
        page.locator("#setup summary").click()
        page.locator("#trials tbody a").first.focus()
        focused = page.evaluate("document.activeElement.textContent")
        number = add_fastest(home, study)
        page.locator(f"#trials tbody tr:first-child a:text-is('#{number}')").wait_for()
        page.locator(".sofar").wait_for()
        assert page.locator("#setup details").get_attribute("open") is not None
        assert page.evaluate("document.activeElement.textContent") == focused


def test_it_asks_every_two_seconds_at_most_and_unchanged_pages_are_304(page: Any, small: str) -> None:
    answers: list[int] = []
    page.on("response", lambda r: answers.append(r.status) if r.url.endswith("/studies/1") else None)
    began = time.monotonic()
    page.goto(f"{small}/studies/1")
    page.locator("#live.on").wait_for()
    page.wait_for_timeout(13_000)
    while not answers[2:]:
        assert time.monotonic() - began < 120, "it asks again, seldom where the server tells what happens"
        page.wait_for_timeout(500)
    assert answers[:2] == [200, 200]
    assert set(answers[2:]) == {304}
    assert len(answers) <= 3 + (time.monotonic() - began) / 2, "every two seconds at most"


def test_without_scripts_it_is_a_whole_snapshot(chromium: Any, small: str) -> None:
    tab = tab_of(chromium, [], java_script_enabled=False)
    tab.goto(f"{small}/studies/1")
    assert tab.locator("#live").inner_text() == "snapshot"
    assert tab.locator("#trials tbody tr").count() > 5
    assert re.search(r"[+-]\d+(\.\d)? %", tab.locator("#answer").inner_text())
    tab.context.close()


def test_the_keyboard_reaches_everything(page: Any, small: str) -> None:
    page.goto(f"{small}/studies/1")
    reached: list[str] = []
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.tagName + ' ' + (document.activeElement.className || '')"))
    assert reached[0] == "A skip"
    assert "DIV scroll" in reached, "the table can be scrolled by keys"
    assert any(r.startswith("SUMMARY") for r in reached)


def test_an_open_page_has_the_answer_before_the_server_of_a_study_ends(page: Any, home: Settings) -> None:
    study = running_study(home)
    with page_server(home, print, port=0) as server:
        with tuner_of(home, study):
            page.goto(f"{server.url}/studies/1")
            page.locator(".badge.running").wait_for()
            page.locator("#live.on", has_text="live").wait_for()
            with closing(open_store(home.database)) as store:
                answer = not_none(recommend(study.spec, store.trials(1), "the time limit", now=factories.NOW + 1e6))
                store.save_recommendation(1, answer)
                store.set_status(1, StudyStatus.DONE)
        server.linger(SOON_MS / 1000)
    assert page.locator(".badge.done").count() == 1
    assert "Ended by: the time limit" in page.locator("#answer").inner_text()
    assert page.locator("#stale").is_hidden(), "nothing is missing"


@contextmanager
def followed(page: Any, home: Settings, tmp_path: Path) -> Iterator[tuple[Forked, Path, str]]:
    """A study of a process of its own whose first trial is held by a script, on the page that shows it."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"held": [[0, 1]]}))
    tuner = begin_study(home.home.root, max_trials=5, script={"file": str(script)})
    try:
        with serving(home, print, port=0) as url:
            page.goto(f"{url}/")
            page.locator("#studies tbody a").first.click(timeout=SOON_MS)
            page.locator("#running .now").wait_for(timeout=SOON_MS)
            yield tuner, script, url
    finally:
        write_atomic(script, "{}")  # the trial ends, also one whose tuner was killed
        if tuner.poll() is None:
            tuner.kill()
            tuner.communicate()


def test_a_killed_tuner_is_told_on_the_page_and_by_every_reader(page: Any, home: Settings, tmp_path: Path) -> None:
    with followed(page, home, tmp_path) as (tuner, _, url):
        tuner.kill()
        tuner.communicate()
        page.locator("#head .badge.interrupted").wait_for(timeout=SOON_MS)
        assert page.locator(".pulse").count() == 0
        assert "no tuner runs this study" in page.locator("#running").inner_text()
        told = json.loads(page.request.get(f"{url}/api/v1/studies/1").text())
        assert (told["study"]["state"], told["running"]) == ("interrupted", [])
        assert 'autotune_tuner_up{study="1"} 0' in page.request.get(f"{url}/metrics").text()


def test_a_study_that_runs_is_followed_to_its_end(page: Any, home: Settings, tmp_path: Path) -> None:
    with followed(page, home, tmp_path) as (tuner, script, url):
        page.locator("#running .now a").click()
        page.wait_for_url("**/trials/*")
        page.go_back()
        write_atomic(script, "{}")
        page.locator(".badge.done").wait_for(timeout=4 * SOON_MS)
        assert page.locator("#trials tbody tr").count() >= 5
        assert page.locator("#running .now").count() == 0
        _, err = tuner.communicate(timeout=PATIENCE_S)
        assert tuner.returncode == 0, err
        page.goto(f"{url}/studies/1/trials/0")
        assert "config.json" in page.locator("#files").inner_text()
        assert "sh study-1-trial-0/run.sh" in page.locator("#take").inner_text()
        assert sys.executable in page.locator("#take").text_content()

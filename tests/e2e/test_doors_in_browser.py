"""Who is kept out and who is let in, as a real browser meets it: the login, pages of other sites, hostile text."""

from __future__ import annotations

import re
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from api.serving import serving
from autotune.domain import TrialState
from autotune.recommendation.current import attempt_paths
from autotune.settings import Settings
from autotune.store import open_store
from tests.e2e.browser import complaints
from tests.support import factories
from tests.support.recorded import record
from tests.support.served import settings_in, tuner_of, whole_study
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.slow

SOON_MS = 60_000
TOKEN = "correct-horse-battery-staple"
HOSTILE = "<img src=x onerror=alert(1)><script>alert(2)</script>"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """A study that has ended."""
    settings = settings_in(tmp_path_factory.mktemp("home"))
    whole_study(settings)
    return settings


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    context = chromium.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(SOON_MS)
    yield page
    context.close()


def test_a_browser_logs_in_with_the_code_and_never_has_the_token(
    tab: Any, home: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_TOKEN", TOKEN)
    lines: list[str] = []
    said: list[str] = []
    answers: list[tuple[str, int]] = []
    with serving(home, lines.append, port=0) as url:
        tab.on("console", lambda message: said.append(message.text))
        tab.on("response", lambda r: answers.append((r.url.removeprefix(url), r.status)))
        tab.goto(f"{url}/studies/1")
        assert tab.url == f"{url}/login?next=%2Fstudies%2F1"
        assert complaints(said) == [], "the login page needs nothing that is closed"
        tab.locator("#code").fill("00000-00000")
        tab.get_by_role("button", name="Enter").click()
        tab.get_by_role("alert").wait_for()
        (code,) = re.findall(r"with the code (\S+)", " ".join(lines))
        tab.locator("#code").fill(code.lower())
        tab.get_by_role("button", name="Enter").click()
        tab.wait_for_url(f"{url}/studies/1")
        said.clear()
        tab.locator("#live.on").wait_for()
        assert tab.locator("#trials tbody tr").count() > 5
        (cookie,) = tab.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert tab.evaluate("document.cookie") == "", "no script can read it"
        assert TOKEN not in tab.content() + str(cookie) + str(answers)
        stream = "fetch('/api/v1/studies/1/events/stream').then(r => { r.body.cancel(); return r.status; })"
        assert tab.evaluate(stream) == 200, "the cookie opens the stream too"
        assert complaints(said) == []
        other = tab.context.browser.new_context().new_page()
        other.goto(f"{url}/studies/1")
        assert other.url == f"{url}/login?next=%2Fstudies%2F1", "another browser is not let in"
        other.context.close()


class Site:
    """A page of somebody else, on another port of this machine."""

    def __init__(self, html: str) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = html.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def answered(url: str) -> dict[str, int]:
    """How many answers of each status the server has given, by its own count; this one comes after."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE_S) as answer:  # noqa: S310 - our own
        text = answer.read().decode()
    return {s: int(n) for s, n in re.findall(r'autotune_http_answers_total\{status="(\d+)"\} (\d+)', text)}


def test_a_page_of_another_site_makes_the_browser_ask_for_nothing_but_a_link(tab: Any, home: Settings) -> None:
    with serving(home, print, port=0) as url:
        html = f"""<!doctype html><link rel="stylesheet" href="{url}/assets/page.css"><img src="{url}/assets/icon.svg">
            <script src="{url}/assets/theme.js"></script><iframe src="{url}/studies/1"></iframe>
            <script>new EventSource("{url}/api/v1/studies/1/events/stream");
            fetch("{url}/api/v1/recommendations?gpu=H100&params_b=1").catch(() => 0);
            fetch("{url}/login", {{method: "POST", mode: "no-cors", body: "code=x"}}).catch(() => 0)</script>
            <a href="{url}/studies/1">the study</a>"""
        site = Site(html)
        tab.goto(site.url, wait_until="networkidle")
        counted = answered(url)
        assert set(counted) == {"403"}, counted
        assert counted["403"] >= 7, "a style, an image, a script, a frame, a stream, a question and a form"
        tab.get_by_text("the study").click()
        tab.locator("#live.on").wait_for()
        assert tab.url == f"{url}/studies/1"
        assert answered(url)["403"] == counted["403"], "what our own page asks for is answered"
        site.close()


def test_a_script_in_a_name_a_knob_or_a_log_line_runs_nowhere(
    tab: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("hostile"))
    store = open_store(settings.database)
    study = store.create_study(factories.study_spec(HOSTILE), factories.NOW)
    changed = factories.configuration(attn_implementation=HOSTILE, micro_batch_size=4)
    record(store, study, factories.finished(0))
    record(store, study, factories.finished(1, cycle_seconds=5.0, configuration=changed))
    record(store, study, factories.failed(2, factories.oom(message=HOSTILE, phase=HOSTILE), configuration=changed))
    store.close()
    log = attempt_paths(settings.home, study, factories.failed(2)).log
    log.parent.mkdir(parents=True)
    log.write_text(f"one\n\x1b[31m{HOSTILE}\x1b[0m\n")
    opened: list[str] = []
    tab.on("dialog", lambda dialog: (opened.append(dialog.message), dialog.dismiss()))
    with serving(settings, print, port=0) as url:
        shown = ("", "/why?x=attn_implementation", "/trials/1", "/trials/2", "/compare?trial=0&trial=1")
        for path in (*shown, "/recommendation"):
            tab.goto(f"{url}/studies/1{path}")
            tab.locator("#live.on").wait_for()
            assert path not in shown or HOSTILE in tab.locator("main").text_content(), path
            assert tab.locator("main script, main img").count() == 0, path
        tab.goto(url)
        tab.locator("#live.on").wait_for()
        assert HOSTILE in tab.locator("main").inner_text()
        tab.goto(f"{url}/studies/1/trials/2")
        assert tab.locator("#log pre").inner_text().splitlines() == ["one", HOSTILE]
        tab.goto(f"{url}/api/v1/studies/1/trials/2/log")
        assert HOSTILE in tab.locator("body").inner_text()
    assert opened == []


def test_a_log_is_followed_while_its_trial_runs_and_its_cause_comes_first_when_it_failed(
    tab: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = settings_in(tmp_path_factory.mktemp("running"))
    store = open_store(settings.database)
    study = store.create_study(factories.study_spec("s"), factories.NOW)
    record(store, study, factories.finished(0))
    bigger = factories.configuration(micro_batch_size=8, gradient_accumulation_steps=1)
    record(store, study, factories.trial(1, state=TrialState.RUNNING, configuration=bigger))
    log = attempt_paths(settings.home, study, factories.trial(1, attempt=1)).log
    log.parent.mkdir(parents=True)
    log.write_text("step 1\n")
    with tuner_of(settings, study), serving(settings, print, port=0) as url:
        tab.goto(f"{url}/studies/1/trials/1")
        tab.locator("#live.on").wait_for()
        tab.locator("#head p.now").wait_for()
        assert tab.locator("#log pre").inner_text().splitlines() == ["step 1"]
        with log.open("a") as more:
            more.write("".join(f"step {n}\n" for n in range(2, 150)))
        tab.locator("#log pre", has_text="step 149").wait_for()
        store.finish_trial(study.id, 1, TrialState.FAIL, factories.oom(), factories.NOW + 9, 9.0, 8 * factories.GIB)
        tab.locator("#head .cause").wait_for()
        assert tab.locator("#head p.now").count() == 0
        tab.reload()
        order = tab.evaluate("[...document.querySelectorAll('main section[id]')].map(s => s.id)")
        assert order.index("log") < order.index("facts"), "of a failure the log comes first"
        end = tab.evaluate("(l => l.scrollTop + l.clientHeight >= l.scrollHeight - 4)(document.querySelector('.log'))")
        assert end, "a log is shown from its end"
    store.close()

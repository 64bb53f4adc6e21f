"""``autotune watch``: sentences and exit codes, for people, cron and webhooks."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.watch.made_runs import growing, steps_until
from tests.unit.watch.test_series import verl

LIMIT = ("--memory-limit", "78GiB")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "train.log"


def write(log: Path, lines: list[str], mode: str = "w") -> str:
    with log.open(mode) as stream:
        stream.write("".join(f"{line}\n" for line in lines))
    return str(log)


def near_the_end(log: Path, share: float) -> str:
    lines = growing(1500, longest=lambda i: 1000 + 8.0 * i)
    return write(log, lines[: int(share * steps_until(78.0, lines))])


def test_the_exit_code_says_how_soon_to_act(autotune: Run, log: Path) -> None:
    code, out, err = autotune("watch", write(log, growing(100, longest=lambda _: 2000.0)), *LIMIT)
    assert (code, err) == (0, "")
    assert out.startswith("step 100: mean ")
    assert "soon:" not in out
    code, out, _ = autotune("watch", near_the_end(log, 0.5), *LIMIT)
    assert code == 3
    assert "soon: at this growth" in out
    code, out, _ = autotune("watch", near_the_end(log, 0.97), *LIMIT)
    assert code == 4
    assert "now: at this growth" in out


def test_json_has_every_finding_with_its_interval(autotune: Run, log: Path) -> None:
    code, out, _ = autotune("watch", near_the_end(log, 0.5), *LIMIT, "--json")
    document = json.loads(out)
    finding = next(f for f in document["findings"] if f["kind"] == "memory")
    assert code == 3
    assert finding["level"] == "soon"
    assert finding["earliest"] <= finding["step"] <= finding["latest"]
    assert document["lacks"] == []


def test_a_log_that_lacks_figures_says_which_by_key(autotune: Run, log: Path) -> None:
    code, out, _ = autotune("watch", write(log, [verl(i, 99.0) for i in range(1, 4)]))
    assert code == 0
    assert "the log lacks completions/max_length or response_length/max;" in out


@pytest.mark.parametrize("content", ["", "hello\n", "{'loss': 0.1, 'epoch': 0.1}\n"])
def test_a_log_without_steps_says_what_would_be_read(autotune: Run, log: Path, content: str) -> None:
    log.write_text(content)
    code, out, err = autotune("watch", str(log))
    assert (code, out) == (0, "")
    assert "has no step with completions/mean_length" in err


def test_what_cannot_be_watched_is_refused_in_one_sentence(autotune: Run, log: Path) -> None:
    mixed = write(log, [line for i in range(1, 30) for line in (verl(i, 100.0), verl(i, 200.0))])
    for words, sentence in {
        ("watch", mixed): "holds two runs: 29 of 58 lines contradict",
        ("watch", str(log.with_name("absent"))): "cannot be read: No such file",
        ("watch", mixed, "--notify", "ftp://x"): "--notify ftp://x: expected an address",
        ("watch", mixed, "--every", "10"): "--every '10' has no unit",
        ("watch", mixed, "--memory-limit", "much"): "is no size",
        ("watch", mixed, "--study", "nobody"): "there is no study",
    }.items():
        code, out, err = autotune(*words)
        assert (code, out) == (2, "") or (code, words[-1]) == (2, "nobody"), words
        assert sentence in err
        assert err.count("\n") == 1


@pytest.fixture
def webhook() -> Iterator[tuple[str, list[Any]]]:
    posts: list[Any] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posts.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Hook) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/hook", posts
        server.shutdown()
        thread.join()


def test_a_webhook_gets_what_is_urgent_in_one_post(autotune: Run, log: Path, webhook: tuple[str, list[Any]]) -> None:
    url, posts = webhook
    assert autotune("watch", write(log, growing(100, longest=lambda _: 2000.0)), *LIMIT, "--notify", url)[0] == 0
    assert posts == []
    assert autotune("watch", near_the_end(log, 0.5), *LIMIT, "--notify", url)[0] == 3
    assert [f["kind"] for f in posts[0]["findings"]] == ["memory"]
    assert posts[0]["text"].startswith("at this growth")
    code, _, err = autotune("watch", str(log), *LIMIT, "--notify", "http://127.0.0.1:9/")
    assert code == 3
    assert "was not reached" in err


def test_following_prints_what_is_new_until_the_last_step(
    autotune: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = growing(1500, longest=lambda i: 1000 + 8.0 * i)
    end = steps_until(78.0, lines) - 10
    parts: list[list[str]] = [lines[:60], [], lines[60 : end // 2], lines[end // 2 : end - 1]]
    bar = f"99%|##| {end}/{end + 100} [9:00:00<0:10:00, 60s/it]"
    last = [f"step:{end + 100} - response_length/mean:9.0 - timing_s/step:1.0"]
    write(log, [])

    def wait(*_: object) -> None:
        assert parts, "it should have ended"
        new = parts.pop(0)
        if not new:
            log.rename(log.with_suffix(".1"))
            return
        write(log, new if parts else [bar, *new, *last], "a")

    monkeypatch.setattr("autotune.cli.commands.watch._wait", wait)
    code, out, err = autotune("watch", str(log), *LIMIT, "--follow")
    said = out.splitlines()
    assert "cannot be read: No such file" in err
    assert "was replaced; it is read again" in err
    assert not parts
    assert [line for line in said if "soon: at this growth" in line]
    assert said.count(next(line for line in said if "soon: at this growth" in line)) == 1
    assert code in (0, 3, 4)


def test_a_log_that_is_still_empty_is_followed_until_it_has_steps(
    autotune: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.touch()
    parts = [[], [], [verl(i, 99.0) for i in range(1, 4)], ["{'train_runtime': 9.0}"]]
    monkeypatch.setattr("autotune.cli.commands.watch._wait", lambda *_: write(log, parts.pop(0), "a"))
    code, out, err = autotune("watch", str(log), "--follow")
    assert (code, parts) == (0, [])
    assert err.count("has no step") == 1
    assert out.startswith("step 3: mean 99 tokens")


def test_a_study_says_what_it_stated_at_these_lengths(autotune: Run, log: Path, study: Any) -> None:
    lines = growing(60, longest=lambda _: 60.0, memory=None, seconds=lambda _, __: 900.0)
    code, out, _ = autotune("watch", write(log, lines), "--study", study.spec.name)
    assert code == 3
    assert f"expected by study {study.spec.name}" in out

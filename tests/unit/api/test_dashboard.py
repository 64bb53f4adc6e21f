"""The further pages: a trial, some beside each other, what they say, the answer and its files."""

import io
import os
import re
import subprocess
import zipfile
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st

from api.dashboard.compare_view import MOST, numbers_of
from api.dashboard.filters import PAGE
from api.dashboard.report_page import report_page
from api.dashboard.study_view import study_view
from api.dashboard.why_view import WhyQuery, settled, why_view
from api.guard.security import Access
from api.logs import LINES, LONGEST_LINE, logs_of
from autotune.charts.feasibility_map import feasibility_map, pair_of
from autotune.domain import Study, Trial, TrialState
from autotune.forecast import untried_pairs
from autotune.forecast.untried_pairs import predict_pairs
from autotune.recommendation.comparison import compare_studies, verdict
from autotune.recommendation.comparison_words import figure_lines
from autotune.recommendation.current import attempt_paths
from autotune.recommendation.reading import StudyReading, read_study
from autotune.settings import Settings
from autotune.store import open_store
from tests.support import factories as f
from tests.support.large_study import large_trials
from tests.support.not_none import not_none
from tests.support.recorded import record
from tests.support.served import SPACE, TOKEN, Reader, tuner_of, whole_study, words_of
from tests.unit.api.test_filters import snapshot
from trainer.child.contract import PhaseMark

PAIR = ("micro_batch_size", "gradient_checkpointing")
KNOBS = {"knobs": {"micro_batch_size": [1, 2, 4, 8], "gradient_checkpointing": [True, False]}}
HOSTILE = "<script>alert('&amp;\"x')</script>"


@pytest.fixture
def whole(finished_home: Settings) -> StudyReading:
    """The study that has ended."""
    store = open_store(finished_home.database)
    found = read_study(store, store.study(1))
    store.close()
    return found


def test_a_trial_says_what_it_was_beside_baseline_and_best(reader: Reader, study: Study) -> None:
    said = words_of(reader.page("/studies/1/trials/1"))
    assert "Trial #1 ok" in said
    assert "322.6k tokens/hour (89.6 tokens/s)" in said, "the unit of other tools too"
    assert "+100.0 % over the baseline, by all its runs" in said
    assert "micro_batch_size 4 2" in said, "here, and the baseline's where it differs"
    assert "longest batch passed" in said


def test_a_failure_says_why_and_shows_the_end_of_its_log(reader: Reader, study: Study, settings: Settings) -> None:
    folder = settings.home.attempt(study.id, study.spec.name, 2, 1)
    folder.mkdir(parents=True)
    (folder / "log.txt").write_text(f"first\n\x1b[31mred\x1b[0m {HOSTILE}\nKilled\n")
    page = reader.page("/studies/1/trials/2")
    said = words_of(page)
    assert "OOM in update (host memory): the process tree reached 8.1 GiB of 8.0 GiB" in said
    assert "→ try micro_batch_size 1" in said
    assert "red <script>alert" in said
    assert "<script>alert" not in page
    assert "\x1b" not in page
    assert said.index("Killed") < said.index("In figures"), "of a failure the log comes first"
    assert "No files to train with: trial 2 failed" in said


def test_the_log_and_phase_of_a_running_trial_are_as_they_are_now(
    reader: Reader, study: Study, settings: Settings
) -> None:
    folder = settings.home.attempt(study.id, study.spec.name, 3, 1)
    folder.mkdir(parents=True)
    assert "starting" in words_of(reader.page("/studies/1/trials/3"))
    mark = PhaseMark(folder / "phase")
    mark.set("update", 2, "recorded")
    (folder / "log.txt").write_text("step 1\n")
    first = reader.ask("/studies/1/trials/3", headers={"Accept": "text/html"})
    assert "update, cycle 2" in words_of(first.text)
    assert "autotune retry" not in first.text, "it has not ended"
    tag = {"If-None-Match": first.headers["etag"], "Accept": "text/html"}
    assert reader.ask("/studies/1/trials/3", headers=tag).status_code == 304
    with (folder / "log.txt").open("a") as log:
        log.write("step 2\n")
    mark.close()
    assert "step 2" in reader.ask("/studies/1/trials/3", headers=tag).text


ASKED = ("x", "y", "axis", "log", "against", "trial", "outcome", "kind", "sort", "page", "knob.precision", "knob.", "")


@examples(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    page=st.sampled_from(["/", "/studies/1", "/studies/1/why", "/studies/1/compare", "/studies/1/trials/0", "/login"]),
    query=st.lists(st.tuples(st.sampled_from(ASKED), st.text(max_size=30) | st.integers().map(str)), max_size=8),
)
def test_no_address_breaks_a_page(finished: Reader, page: str, query: list[tuple[str, str]]) -> None:
    """What the REST API is asked by schemathesis; pages are not described, so they are asked here."""
    answer = finished.ask(f"{page}?{urlencode(query, errors='replace')}", headers={"Accept": "text/html"})
    assert answer.status_code in (200, 303), answer.text
    assert "<script>" not in answer.text
    assert finished.crashes == []


def test_what_there_is_not_is_404(reader: Reader, study: Study) -> None:
    for path in ("/studies/1/trials/99", "/studies/9/why", "/studies/1/export/2.zip", "/studies/1/trials/x"):
        assert reader.ask(path).status_code in (404, 422), path
    assert reader.crashes == []


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("trial=0&trial=1", "#0 · #1"),
        ("trial=0&trial=1&trial=2&trial=3", "#0 · #1 · #2 · #3"),
        ("trial=0", "Choose 2 to 6 trials"),
        ("", "#1 over #0: +100 %"),
        ("trial=0&trial=0", "Choose 2 to 6 trials"),
        ("trial=0&trial=77", "There is no trial #77"),
        ("trial=" + "&trial=".join(map(str, range(9))), "There is no trial"),
        ("trial=0&trial=%3Cscript%3E", "Choose 2 to 6 trials"),
    ],
)
def test_two_to_six_trials_are_compared(reader: Reader, study: Study, query: str, said: str) -> None:
    page = reader.page(f"/studies/1/compare?{query}")
    assert said in words_of(page)
    assert "<script>" not in page


def test_only_what_differs_is_compared(reader: Reader, study: Study) -> None:
    said = words_of(reader.page("/studies/1/compare?trial=0&trial=1"))
    table = said[said.index("what differs") : said.index("knobs are the same")]
    assert "micro_batch_size 2 4" in table
    assert "seconds a cycle 10.00 s 5.00 s -50.0 %" in table
    assert "gradient_accumulation_steps 4 2" in table
    assert "precision" not in table
    assert "outcome" not in table, "both are ok"
    assert "tokens/s 45 90" in table, "in the digits of their intervals"


def test_two_studies_are_compared_as_the_command_line_does(settings: Settings, reader: Reader, study: Study) -> None:
    other = whole_study(settings, "second", memory_limit=None)
    page = words_of(reader.page(f"/studies/{other.id}/compare"))
    assert re.search(r"(#[1-9]\d*) · (#\d+) \2 over \1: .*A/B round", page)
    said = words_of(reader.page(f"/compare?study={study.id}&study={other.id}"))
    readings = [reader.cache.snapshot(number) for number in (study.id, other.id)]
    found = compare_studies(*readings)
    assert f"{verdict(found)}." in said
    assert all(line in said for line in found.differs)
    assert said.index("Not only knobs differ") < said.index("what differs")
    for line in figure_lines((found.a, found.b), found.ratio):
        if len(set(line.values)) > 1:
            assert " ".join(f"{line.name.strip()} {' '.join(line.values)} {line.change}".split()) in said
    assert reader.page("/").count('name="study"') == 2
    assert "Choose two studies" in reader.page(f"/compare?study={study.id}")
    assert reader.ask("/compare?study=1&study=99").status_code == 404


def test_numbers_that_are_none_are_left_out() -> None:
    query = [("trial", v) for v in ("1", "1", "x", "-2", "²", "9" * 40, "3")] + [("other", "4")]
    assert numbers_of(query) == (1, 3)
    assert len(numbers_of([("trial", str(n)) for n in range(50)])) == MOST + 1


def test_the_answer_rests_on_what_it_names(finished: Reader, whole: StudyReading) -> None:
    assert whole.recommendation is not None
    said = words_of(finished.page("/studies/1/recommendation"))
    for row in whole.recommendation.rows:
        assert row.title in said
        for number in row.trials:
            assert f"#{number}" in said
    assert "passed: a micro-batch of 192 tokens a row" in said
    assert "maximum" in said
    assert not_none(whole.fingerprint).digest in said
    assert "autotune export first" in said


def test_the_files_are_the_same_bytes_in_one_folder(finished: Reader) -> None:
    one, two = (finished.ask("/studies/1/export/1.zip") for _ in range(2))
    assert one.status_code == 200, one.text
    assert one.content == two.content
    assert one.headers["content-disposition"].startswith("attachment")
    files = zipfile.ZipFile(io.BytesIO(one.content))
    names = files.namelist()
    folder = "study-1-row-1/"
    assert f'filename="{folder[:-1]}.zip"' in one.headers["content-disposition"]
    assert all(name.startswith(folder) for name in names)
    assert {"grpo.yaml", "run.sh", "README.md"} <= {name.removeprefix(folder) for name in names}
    assert not any("train.jsonl" in name for name in names), "this study's prompts are not on this machine"
    assert "prompts/train.jsonl" in files.read(folder + "README.md").decode(), "which its README says"
    page = unescape(finished.page("/studies/1/recommendation"))
    assert files.read(folder + "grpo.yaml").decode().strip() in page, "what can be copied is what can be downloaded"


def test_what_is_copied_trains(settings: Settings, tmp_path: Path) -> None:
    """As it stands on the page, in the folder where the archive was saved."""
    python, prompts, ran = tmp_path / "python", tmp_path / "prompts.jsonl", tmp_path / "ran"
    prompts.write_text('{"prompt": "1 + 1"}\n')
    python.write_text(f'#!/bin/sh\nfor word; do [ -e "$word" ] && echo "$word"; done > {ran}\npwd >> {ran}\n')
    python.chmod(0o755)
    workload = f.workload(prompts=str(prompts))
    whole_study(settings, python=str(python), workload=workload)
    reader = Reader(settings)
    page = reader.page("/studies/1/recommendation")
    command = unescape(re.search(r'<pre id="copy-1-0"[^>]*>([^<]+)</pre>', page)[1])  # type: ignore[index]
    (link,) = re.findall(r'href="([^"]+1\.zip)" download', page)
    assert "With the study's prompts" in words_of(page)
    folder = tmp_path / "downloads"
    folder.mkdir()
    (folder / "study-1-row-1.zip").write_bytes(reader.ask(link).content)
    subprocess.run(["sh", "-c", command], cwd=folder, check=True)
    *files, where = ran.read_text().split()
    assert files, "the configuration is where the command says"
    assert Path(where).is_relative_to(folder)
    assert (folder / "study-1-row-1/prompts/train.jsonl").read_text() == prompts.read_text()
    guarded = Reader(settings, Access(token=TOKEN)).ask(link, headers={"Authorization": f"Bearer {TOKEN}"})
    assert "train.jsonl" not in " ".join(zipfile.ZipFile(io.BytesIO(guarded.content)).namelist())
    reader.cache.close()


def test_why_draws_what_is_asked_for(finished: Reader, whole: StudyReading) -> None:
    page = finished.page("/studies/1/why?x=precision&y=micro_batch_size")
    said = words_of(page)
    assert "What fits: precision and micro_batch_size" in said
    assert "Speed against host memory" in said
    assert "<option selected>precision</option>" in page
    plain = words_of(finished.page("/studies/1/why?x=%3Cscript%3E&against=drop"))
    assert "Speed against host memory" in plain
    assert "What fits: " in plain


def test_the_map_begins_with_knobs_that_failed_and_never_twice_the_same(whole: StudyReading) -> None:
    chosen = settled(whole, WhyQuery(x="precision", y="precision"))
    assert (chosen.x, chosen.y) == ("precision", "precision"), "what is asked for is drawn, even if it says nothing"
    by_itself = settled(whole, WhyQuery())
    assert by_itself.x != by_itself.y
    assert "micro_batch_size" in (by_itself.x, by_itself.y)


def test_pairs_that_an_oom_rules_out_are_foreseen() -> None:
    spec = f.study_spec(space=KNOBS)
    larger = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2)
    trials = [f.finished(0), f.failed(1, configuration=larger)]
    found = predict_pairs(spec, trials, PAIR)
    assert found["8", "on"].style == "cell-ruled"
    assert "trial 1" in found["8", "on"].words
    assert found["1", "on"].style != "cell-ruled", "it needs less"
    assert ("4", "on") not in found, "it was tried"
    alone = predict_pairs(spec, trials[:1], PAIR)
    assert {cell.style for cell in alone.values()} <= {"cell-likely", "cell-unlikely"}
    wider = f.study_spec(space=SPACE.as_json())
    known = predict_pairs(wider, trials, PAIR)
    assert known["8", "on"].style != "cell-ruled", "with bf16 it may fit"
    assert predict_pairs(f.study_spec(space={"knobs": {}}), trials, ("a", "b")) == {}


def test_other_pairs_nobody_tried_are_predicted_and_say_so() -> None:
    roomy, tight = (f.study_spec(space=KNOBS, memory_limit=limit) for limit in (4000 * f.GIB, f.GIB // 4))
    trials = [f.finished(0)]
    tried = pair_of(trials[0], *PAIR)
    for spec, style, words in (
        (roomy, "cell-likely", "predicted to fit"),
        (tight, "cell-unlikely", "predicted not to"),
    ):
        found = predict_pairs(spec, trials, PAIR)
        assert len(found) == 7
        assert tried not in found
        assert {cell.style for cell in found.values()} == {style}
        for cell in found.values():
            assert words in cell.words
            assert "not tried" in cell.words
            assert cell.short.endswith("%")
            assert f"probability {cell.short}" in cell.words
    chart = feasibility_map(trials, PAIR, untried_pairs.space_of(roomy), predict_pairs(roomy, trials, PAIR))
    assert chart.drawing.count("? 100 %") == 7, "the picture itself says how sure"
    assert any("predicted to fit" in mark.words for mark in chart.legend)
    assert "fit, best" in str(chart.rows), "what was measured stays what it was"


def test_what_trials_showed_changes_what_is_predicted() -> None:
    """One more trial that needs far less than the formulas say; its neighbours are likelier to fit then."""
    spec = f.study_spec(space=KNOBS, memory_limit=2 * f.GIB)
    light = [
        f.finished(n, watchdog_peak=f.GIB // 2, configuration=f.configuration(precision=p))
        for n, p in enumerate(("fp32", "bf16"))
    ]
    heavy = [t.with_(watchdog_peak=7 * f.GIB) for t in light]

    def fits(trials: list[Trial]) -> float:
        return float(predict_pairs(spec, trials, PAIR)["1", "off"].short.rstrip("%"))

    assert fits(light) > fits(heavy)


def test_without_a_limit_of_memory_nothing_is_predicted() -> None:
    resources = f.resources(host_memory=None)
    assert predict_pairs(f.study_spec(space=KNOBS, memory_limit=None, resources=resources), [f.finished(0)], PAIR) == {}


def test_a_prediction_is_made_when_a_trial_has_ended_and_not_for_every_reader(
    finished: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    from api.routes import study_pages  # noqa: PLC0415

    asked: list[str] = []
    for name in ("predict_pairs", "predict_peaks"):
        real = getattr(study_pages, name)
        monkeypatch.setattr(study_pages, name, lambda *given, name=name, real=real: asked.append(name) or real(*given))
    for query in ("", "?against=groups", "?against=memory", ""):
        page = finished.page(f"/studies/1/why{query}")
        assert "What fits: " in page
        assert "Predicted against measured host memory" in page
        assert "of what the trials before them predicted" in page
    assert asked == ["predict_pairs", "predict_peaks"]


def test_ten_thousand_trials_make_no_large_page() -> None:
    from api.dashboard.render import render  # noqa: PLC0415

    found = snapshot(tuple(large_trials()))
    study = render("study.html", study=study_view(found, {}))
    assets = Path(__file__).parents[3] / "api/dashboard/assets"
    loaded = sum(path.stat().st_size for path in assets.iterdir())
    assert "10000 trials, best first; page 1 of 100" in words_of(study.decode())
    assert study.count(b'<th scope="row"><input type="checkbox" name="trial"') == PAGE
    assert len(study) + loaded + 12_000 < 500_000, "the first view, everything counted, before compression"
    assert len(render("why.html", why=why_view(found, WhyQuery()))) < 500_000


def test_a_hostile_study_is_only_text_on_every_page(reader: Reader, settings: Settings) -> None:
    store = open_store(settings.database)
    rewards = f.reward(name=HOSTILE), f.reward(kind=HOSTILE)
    named = {"workload": f.workload(model=f"/m/{HOSTILE}", rewards=rewards), "sampler": HOSTILE, "python": HOSTILE}
    made = store.create_study(f.study_spec(HOSTILE + "\x1b[31m\u202e", **named), f.NOW)
    changed = f.configuration(attn_implementation=HOSTILE, micro_batch_size=4)
    record(store, made, f.finished(0, source=HOSTILE))
    record(store, made, f.finished(1, cycle_seconds=5.0, configuration=changed))
    record(store, made, f.failed(2, f.oom(message=HOSTILE, suggestion=HOSTILE, phase=HOSTILE)))
    record(store, made, f.trial(3, state=TrialState.RUNNING))
    store.add_note(made.id, 3, 1, f.note(HOSTILE, a=HOSTILE))
    store.save_fingerprint(made.id, f.fingerprint(software={HOSTILE: HOSTILE}, hardware={"x": HOSTILE}), f.NOW)
    store.close()
    paths = ["", "/why", "/why?x=attn_implementation", "/trials/1", "/trials/2", "/trials/3", "/recommendation"]
    paths += ["/compare?trial=0&trial=1&trial=2", "?knob.x=%3Cscript%3E&outcome=%22%3E%3Cscript%3E"]
    for path in ("/", *(f"/studies/1{path}" for path in paths)):
        page = reader.page(path)
        assert "alert(" in page, "the name is shown, and harmless"
        assert "<script>" not in page, path
        assert "alert('" not in page
        assert not re.search(r"<[^>]*alert\([^>]*<", page), path
        assert "\x1b" not in page
        assert "\u202e" not in page
        assert " style=" not in page
    assert reader.crashes == []


@pytest.mark.parametrize("path", ["", "/why", "/trials/0", "/compare?trial=0&trial=1", "/recommendation"])
def test_every_page_can_be_used_without_seeing_it(finished: Reader, path: str) -> None:
    page = finished.page(f"/studies/1{path}")
    assert page.count("<h1") == 1
    assert page.count("<main") == 1
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids)), "an id names one thing"
    for drawing in re.findall(r"<svg[^>]*>", page):
        assert "aria-label=" in drawing or "aria-hidden=" in drawing
    assert page.count('class="chart ') == page.count('class="data"'), "every chart is a table too"
    for anchor in re.findall(r'aria-labelledby="([^"]+)"', page):
        assert anchor in ids


def test_a_report_is_one_file_that_needs_nothing_else(whole: StudyReading) -> None:
    text = report_page(whole)
    assert text == report_page(whole)
    assert text.lstrip().startswith("<!doctype html>")
    for forbidden in ("<script", " src=", "@import", "url(", "<link", " href="):
        assert forbidden not in text, forbidden
    assert text.count('class="chart ') >= 6
    assert "of what the trials before them predicted" in text
    assert "default-src 'none'" in text
    for trial in whole.trials:
        assert re.search(rf"#{trial.number}( <span title=.the answer.>★</span>)?</th>", text)


def test_the_end_of_a_log_is_cleaned_and_cut(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(b"\n".join(b"line %d\x1b[0m\xff" % n for n in range(500)) + b"\n" + b"y" * 9000)
    (log,) = logs_of(tmp_path, tmp_path)
    assert (log.name, log.more, len(log.lines)) == ("log.txt", True, LINES)
    assert log.lines[-2] == "line 499\ufffd"
    assert len(log.lines[-1]) == LONGEST_LINE
    (tmp_path / "log.txt").write_text("only\n")
    assert [(log.lines, log.more) for log in logs_of(tmp_path, tmp_path)] == [(("only",), False)]


def test_no_link_pipe_or_folder_is_read_as_a_log(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    place = tmp_path / "log.txt"
    place.symlink_to(tmp_path / "secret")
    assert logs_of(tmp_path, tmp_path) == ()
    for make in (lambda: os.mkfifo(place), place.mkdir):
        place.unlink()
        make()
        assert logs_of(tmp_path, tmp_path) == ()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "log.txt").write_text("secret")
    (tmp_path / "attempt").symlink_to(tmp_path / "elsewhere")
    assert logs_of(tmp_path / "attempt", tmp_path) == (), "nor is the folder a link"


def test_a_page_names_the_stream_while_a_tuner_runs(finished: Reader, reader: Reader, study: Study) -> None:
    assert "/api/v1/studies/{study_id}/events/stream" in finished.json("/api/v1/openapi.json")["paths"]
    assert 'name="autotune-stream"' not in finished.page("/studies/1"), "nothing more happens there"
    for page in ("", "/why", "/compare", "/recommendation", "/trials/3"):
        assert 'content="/api/v1/studies/1/events/stream"' in reader.page(f"/studies/1{page}")


def test_a_killed_tuner_is_told_everywhere(reader: Reader, settings: Settings, interrupted: Study) -> None:
    """Nothing in the database has changed since: only its lock is free."""
    with tuner_of(settings, interrupted):
        assert reader.json("/api/v1/studies/1")["study"]["state"] == "running"
    page = reader.page("/studies/1")
    assert '<span class="badge interrupted">interrupted</span>' in page
    assert "pulse" not in page
    assert "Interrupted: no tuner runs this study." in (said := words_of(page))
    assert ("will end it" in said, "1 interrupted" in said, 'class="outcome">running' in page) == (False, True, False)
    assert '<span class="badge interrupted">' in reader.page("/")
    trial = reader.page("/studies/1/trials/3")
    assert ("pulse" in trial, "Trial #3 interrupted" in words_of(trial)) == (False, True)
    status = reader.json("/api/v1/studies/1")
    assert (status["study"]["state"], status["running"], status["places"]) == ("interrupted", [], [])
    assert [one["state"] for one in reader.json("/api/v1/studies")["studies"]] == ["interrupted"]
    metrics = reader.ask("/metrics").text
    assert 'autotune_tuner_up{study="1"} 0' in metrics
    assert "autotune_place_running" not in metrics


@pytest.mark.timeout(60)
def test_what_a_trial_put_in_place_of_its_mark_is_neither_waited_for_nor_believed(
    reader: Reader, study: Study, settings: Settings
) -> None:
    folder = settings.home.attempt(study.id, study.spec.name, 3, 1)
    folder.mkdir(parents=True)
    mark = attempt_paths(settings.home, study, f.trial(3, attempt=1)).phase

    def shown() -> object:
        mark.touch()
        return reader.json("/api/v1/studies/1")["running"][0]["phase"]

    mark.write_bytes(b"update 3 recorded")
    assert shown() == "update"
    for bad in (b"update --5 x", b"\xff" * 100, b"", b"update 3 recorded" + b" " * 5000):
        mark.write_bytes(bad)
        assert shown() is None, bad[:20]
    mark.unlink()
    os.mkfifo(mark)
    assert reader.json("/api/v1/studies/1")["running"][0]["phase"] is None, "nobody writes, so who opened it would wait"
    assert reader.page("/studies/1/trials/3")
    mark.unlink()
    mark.symlink_to("/etc/hostname")
    assert reader.json("/api/v1/studies/1")["running"][0]["phase"] is None
    assert reader.crashes == []

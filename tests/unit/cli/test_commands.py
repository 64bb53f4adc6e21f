import json
import os
import threading
from typing import Any

import pytest

from autotune.cli.commands import trial as inspecting
from autotune.documents.memory_timeline import text_of
from autotune.domain import Outcome, Study, TrialState
from autotune.recommendation.reading import EARLIER_RULES, AnswerSource, read_study
from autotune.recommendation.recommend import recommend
from autotune.settings import HomePaths
from autotune.store import open_store
from tests.support import factories
from tests.support.not_none import not_none
from tests.unit.cli.conftest import Run
from trainer.child.contract import PhaseMark

READING = [("status",), ("trials",), ("best",), ("show", "0"), ("logs", "2")]


def log_file(home: HomePaths, study: Study, trial: Any, attempt: int = 1) -> Any:
    path = home.attempt(study.id, study.spec.name, trial, attempt) / "log.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


@pytest.mark.parametrize("command", READING)
def test_without_any_study_each_says_how_to_begin_and_creates_nothing(
    autotune: Run, home: HomePaths, command: Any
) -> None:
    code, out, err = autotune(*command)
    assert code == 2
    assert out == ""
    assert "`autotune start` begins one" in err
    assert err.count("\n") == 1
    assert not home.root.exists()


@pytest.mark.parametrize("command", READING)
def test_an_unknown_study_names_the_nearest(autotune: Run, study: Study, command: Any) -> None:
    code, out, err = autotune(*command, "frist")
    assert (code, out) == (2, "")
    assert err == "autotune: there is no study 'frist'; did you mean 'first'?\n"


@pytest.mark.parametrize("command", READING)
def test_each_prints_one_json_document_and_nothing_else(
    autotune: Run, home: HomePaths, study: Study, command: Any
) -> None:
    log_file(home, study, 2).write_text("line\n")
    code, out, err = autotune(*command, "--json")
    assert (code, err) == (0, "")
    assert isinstance(json.loads(out), dict)


@pytest.mark.parametrize("command", READING)
def test_text_fits_eighty_columns_when_not_on_a_terminal(
    autotune: Run, home: HomePaths, study: Study, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    log_file(home, study, 2).write_text("line\n")
    code, out, err = autotune(*command)
    assert code == 0
    assert out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "\x1b" not in out + err


@pytest.mark.usefixtures("tuner")
def test_status_shows_budget_counts_running_and_best(autotune: Run, home: HomePaths, study: Study) -> None:
    path = log_file(home, study, 3).with_name("phase")
    mark = PhaseMark(path)
    mark.set("update", 2, "recorded")
    mark.close()
    _, out, _ = autotune("status")
    assert "used     1 min 35 s" in out
    assert "4 tried: 2 ok, 1 OOM, 1 running" in out
    assert "running  #3 search: update, cycle 2, last update" in out
    assert "failed   #2 OOM in update (host memory)" in out
    best = next(line for line in out.splitlines() if line.startswith("#"))
    assert best.startswith("#1")
    assert "+100.0 %" in best


@pytest.mark.usefixtures("tuner")
def test_status_json_has_the_phase_and_the_seconds(autotune: Run, home: HomePaths, study: Study) -> None:
    path = log_file(home, study, 3).with_name("phase")
    mark = PhaseMark(path)
    mark.set("generate", 1, "natural")
    mark.close()
    os.utime(path, (1.0, 1.0))
    document = json.loads(autotune("status", "--json")[1])
    assert document["spent"] == {"wall_seconds": 95.0, "gpu_seconds": 0.0}
    assert document["counts"]["failures"] == {"OOM": 1}
    (running,) = document["running"]
    assert (running["number"], running["phase"], running["cycle"]) == (3, "generate", 1)
    assert running["phase_age_seconds"] > 1e6
    assert document["source"] == "best_so_far"


@pytest.mark.usefixtures("tuner")
def test_a_running_trial_that_left_no_mark_yet(autotune: Run) -> None:
    assert "running  #3 search: starting" in autotune("status")[1]
    assert json.loads(autotune("status", "--json")[1])["running"][0]["phase"] is None


def test_a_study_whose_tuner_was_killed_is_interrupted(autotune: Run, study: Study) -> None:
    _, out, _ = autotune("status")
    assert out.startswith("first · interrupted, the same command continues it")
    assert "running  nothing" in out
    assert json.loads(autotune("status", "--json")[1])["study"]["state"] == "interrupted"


def test_what_keeping_a_value_loses_is_told(autotune: Run, study: Study) -> None:
    _, out, _ = autotune("best", "--keep", "micro_batch_size=2")
    assert "with micro_batch_size 2 the best measured has 161.3k tokens/hour: as the baseline" in out
    assert "against the answer: -50 % (95 % interval" in out
    assert "nothing was measured" in autotune("best", "--keep", "micro_batch_size=16")[1]


def test_trials_come_best_first(autotune: Run, study: Study) -> None:
    rows = [line.split()[0] for line in autotune("trials")[1].splitlines()[1:]]
    assert rows == ["#1", "#0", "#3", "#4", "#2"]


def test_trials_by_number_state_and_kind(autotune: Run, study: Study) -> None:
    def numbers(*options: str) -> list[int]:
        return [t["number"] for t in json.loads(autotune("trials", "--json", *options)[1])["trials"]]

    assert numbers("--sort", "number") == [0, 1, 2, 3, 4]
    assert numbers("--state", "fail") == [2]
    assert numbers("--kind", "CONFIRM") == [4]
    assert sorted(numbers("--knob", "micro_batch_size:4..8")) == [1, 2, 3, 4]
    assert numbers("--knob", "micro_batch_size=4..8", "--knob", "precision=bf16") == [3]
    refused = "autotune: --knob micro_batch:4: expected KNOB=VALUE or KNOB=LOW..HIGH\n"
    assert autotune("trials", "--knob", "micro_batch:4")[::2] == (2, refused)
    assert numbers("--state", "PRUNED") == []


def test_trials_show_only_knobs_that_differ_and_explain_the_heads(autotune: Run, study: Study) -> None:
    _, out, err = autotune("trials")
    assert out.splitlines()[0].split() == ["trial", "kind", "outcome", "tokens/hour", "mb", "prec", "acc"]
    assert "mb micro_batch_size" in err
    assert "attn" not in out


def test_no_match_is_said_on_stderr(autotune: Run, study: Study) -> None:
    assert autotune("trials", "--state", "PRUNED") == (0, "", "no trial matches\n")


def test_best_says_what_the_whole_run_takes(autotune: Run, study: Study) -> None:
    _, plain, _ = autotune("best")
    code, out, _ = autotune("best", "--updates", "1000")
    assert code == 0
    assert "…" not in out[out.index("1,000 updates") :].splitlines()[0]
    assert "1,000 updates" not in plain
    _, text, _ = autotune("best", "--updates", "1000", "--json")
    found = json.loads(text)["whole_run"]
    assert found["hours"]["after"]["low"] <= found["hours"]["after"]["value"] <= found["hours"]["after"]["high"]


def test_best_so_far_says_so(autotune: Run, study: Study) -> None:
    _, out, err = autotune("best")
    assert "best so far" in err
    assert "+100 % tokens/hour over the baseline" in out
    assert "not confirmed" in out
    assert "micro_batch_size             2 → 4" in out
    assert json.loads(autotune("best", "--json")[1])["source"] == "best_so_far"


def test_best_gives_the_stored_recommendation_until_trials_end_after_it(
    autotune: Run, home: HomePaths, study: Study
) -> None:
    store = open_store(home.database)
    stored = factories.recommendation(created_at=factories.NOW + 10_000)
    store.save_recommendation(study.id, stored)
    document = json.loads(autotune("best", "--json")[1])
    assert document["source"] == "recommendation"
    assert document["recommendation"]["rows"][0]["gain"]["low"] == 0.3
    assert document["recommendation"]["notes"][0] == EARLIER_RULES, "these trials do not give that gain"
    store.save_recommendation(
        study.id, not_none(recommend(study.spec, store.trials(study.id), "", now=stored.created_at))
    )
    own = not_none(read_study(store, study).recommendation)
    assert own.created_at == stored.created_at
    assert EARLIER_RULES not in own.notes
    store.finish_trial(study.id, 3, TrialState.FAIL, factories.oom(), factories.NOW + 20_000, 1.0, None)
    assert read_study(store, study).source is AnswerSource.BEST_SO_FAR
    store.close()


def test_best_of_a_study_in_which_nothing_succeeded(autotune: Run, home: HomePaths) -> None:
    home.prepare()
    store = open_store(home.database)
    store.create_study(factories.study_spec(), factories.NOW)
    store.close()
    code, out, err = autotune("best")
    assert (code, err) == (0, "")
    assert "Nothing has been measured yet." in out
    assert json.loads(autotune("best", "--json")[1])["recommendation"] is None


def test_the_newest_study_is_the_default_and_an_id_works(autotune: Run, home: HomePaths, study: Study) -> None:
    store = open_store(home.database)
    newer = store.create_study(factories.study_spec("second", seed=1), factories.NOW + 5)
    store.close()
    assert json.loads(autotune("trials", "--json")[1])["study"] == "second"
    assert json.loads(autotune("trials", "--json", str(study.id))[1])["study"] == "first"
    assert json.loads(autotune("trials", "--json", str(newer.id))[1])["study"] == "second"


def test_show_an_ok_trial(autotune: Run, study: Study) -> None:
    _, out, _ = autotune("show", "1")
    assert "trial #1 of first · search · ok · by sampler (tpe/headline) · took 50 s" in out
    assert "ok, 322.6k tokens/hour (89.6 tokens/s); longest batch passed" in out
    assert "6.5 s: import 2.0 s, load 1.5 s, first batch 3.0 s" in out
    changed = next(line for line in out.splitlines() if line.startswith("micro_batch_size"))
    assert changed.split() == ["micro_batch_size", "4", "2"]
    assert "GGGGGGGGGGRLLUUUUUUU" in out
    assert "replayed: mean 56, p95 128, longest 128 tokens, 12 % clipped" in out
    assert "2.00 GiB" in out


def test_show_a_failure_with_cause_hint_and_the_end_of_its_log(autotune: Run, home: HomePaths, study: Study) -> None:
    lines = [f"line {n}" for n in range(50)] + ["\x1b[31mRuntimeError: out of memory\x1b[0m"]
    log_file(home, study, 2).write_text("\n".join(lines))
    _, out, _ = autotune("show", "2")
    assert "OOM in update (host memory)" in out
    assert "try micro_batch_size 1; micro_batch_size 2 fitted (#0)" in out
    assert "RuntimeError: out of memory" in out
    assert "line 31" in out
    assert "line 30\n" not in out
    assert "\x1b" not in out
    tail = json.loads(autotune("show", "2", "--json")[1])["trial"]["log_tail"]
    assert len(tail) == 20


def test_show_tells_when_memory_was_highest(autotune: Run, home: HomePaths, study: Study) -> None:
    assert "most after" not in autotune("show", "1")[1]
    path = home.attempt(study.id, "first", 1, 1) / "memory.json"
    path.parent.mkdir(parents=True)
    path.write_text(text_of(factories.timeline()))
    assert "host: most after 4.0 s, in update of cycle 0 (3.00 GiB)" in " ".join(autotune("show", "1")[1].split())
    path.write_text("{")
    code, out, err = autotune("show", "1")
    assert (code, err) == (0, "")
    assert "most after" not in out


def test_show_json_has_every_cycle_in_units(autotune: Run, study: Study) -> None:
    trial = json.loads(autotune("show", "1", "--json")[1])["trial"]
    assert trial["changes"]["micro_batch_size"] == {"baseline": 2, "here": 4}
    assert len(trial["cycles"]) == 3
    assert trial["cycles"][0]["phase_seconds"]["generate"] == 2.5
    assert trial["host_peak_bytes"] == 5 * factories.GIB // 2


def test_logs_strip_escapes_and_tell_data_from_talk(autotune: Run, home: HomePaths, study: Study) -> None:
    log_file(home, study, 2).write_bytes(b"\x1b]0;title\x07one\n10%\r50%\r99%\n\xff\xfetwo\n")
    assert autotune("logs", "2") == (0, "one\n99%\n\ufffd\ufffdtwo\n", "")
    assert autotune("logs", "2", "-n", "1")[1] == "\ufffd\ufffdtwo\n"
    document = json.loads(autotune("logs", "2", "--json")[1])
    assert document["lines"] == ["one", "99%", "\ufffd\ufffdtwo"]


def test_the_log_of_a_rollout_server(autotune: Run, home: HomePaths, study: Study) -> None:
    log = log_file(home, study, 2)
    log.write_text("of the trial\n")
    code, out, err = autotune("logs", "2", "--server")
    assert (code, out) == (2, "")
    assert err == "autotune: trial 2 had no rollout server, so there is no log of one\n"
    log.with_name("server.txt").write_text("of the server\n")
    assert autotune("logs", "2", "--server") == (0, "of the server\n", "")
    assert autotune("logs", "2") == (0, "of the trial\n", "")


def test_logs_that_cannot_be_had(autotune: Run, home: HomePaths, study: Study) -> None:
    code, out, err = autotune("logs", "2")
    assert (code, out) == (2, "")
    assert "No such file" in err
    assert "has not been started" in autotune("logs", "4")[2]
    assert "has no attempt 3; the last is 1" in autotune("logs", "2", "--attempt", "3")[2]


def test_following_a_log_until_its_trial_ends(
    autotune: Run, home: HomePaths, study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspecting, "POLL_S", 0.01)
    path = log_file(home, study, 3)
    path.write_text("first\nsec")

    def go_on() -> None:
        with path.open("a") as stream:
            stream.write("ond\nlast without newline")
        store = open_store(home.database)
        store.finish_trial(study.id, 3, TrialState.COMPLETE, Outcome(), factories.NOW + 99, 9.0, None)
        store.close()

    timer = threading.Timer(0.15, go_on)
    timer.start()
    code, out, err = autotune("logs", "3", "-f")
    timer.join()
    assert (code, out, err) == (0, "first\nsecond\nlast without newline\n", "")


def test_following_as_json_is_one_record_a_line(autotune: Run, home: HomePaths, study: Study) -> None:
    log_file(home, study, 2).write_text("one\ntwo\n")
    records = [json.loads(line) for line in autotune("logs", "2", "-f", "--json")[1].splitlines()]
    assert records == [{"line": "one"}, {"line": "two"}]


def test_hostile_names_and_messages_cannot_steer_the_terminal(autotune: Run, home: HomePaths) -> None:
    home.prepare()
    store = open_store(home.database)
    evil = "evil\x1b]0;owned\x07\u202e"
    made = store.create_study(factories.study_spec(evil), factories.NOW)
    store.add_trial(made.id, factories.draft(source=evil), factories.NOW)
    store.start_attempt(made.id, 0, factories.NOW)
    outcome = factories.oom(message=evil, suggestion=evil, log_path="", phase=evil)
    store.finish_trial(made.id, 0, TrialState.FAIL, outcome, factories.NOW + 1, 1.0, None)
    store.close()
    for command in (("status",), ("trials",), ("best",), ("show", "0"), ("status", "nothing")):
        _, out, err = autotune(*command)
        assert not set(out + err) & set("\x1b\x07\u202e"), command

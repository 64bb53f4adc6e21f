"""`export` and `verify` as a user meets them; the training interpreter is a script that prints TRL's lines."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.domain import Configuration, Study, TrialKind
from autotune.errors import UsageError
from autotune.frameworks import framework_named
from autotune.machine.clock import SystemClock
from autotune.recommendation import export
from autotune.running import proc
from autotune.running.companion import free_ports
from autotune.settings import HomePaths
from autotune.store import open_store
from autotune.verify import compare_run, exported_run, in_turns
from tests.contracts.served_suite import Stranger
from tests.support import factories
from tests.support.imports import of
from tests.support.recorded import record
from tests.unit.cli.conftest import Run
from trainer.frameworks.common.exported import ExportRequest

SEAM = factories.configuration(micro_batch_size=4, gradient_accumulation_steps=2, steps_per_generation=2)
NATIVE = factories.configuration(gradient_checkpointing=False)
FAST = SEAM.with_(logprob_rows=8)

TRAINER = """#!{python}
import os, subprocess, sys, time
here = os.path.dirname(os.path.abspath(__file__))
with open(here + "/seen.txt", "w") as stream:
    stream.write(repr([os.getcwd(), *sys.argv[1:]]))
{act}
for step in range({steps}):
    time.sleep(0.05)
    print({{"loss": "0.1", "completions/mean_length": "56", "completions/max_length": "128"}}, flush=True)
"""


@pytest.fixture(autouse=True)
def quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other programs take nothing: what runs beside the tests is no matter of theirs."""
    monkeypatch.setattr("autotune.machine.other_load.TakenTime.total", lambda *_: 0.0)


@pytest.fixture
def python(tmp_path: Path) -> Any:
    """Writes the training interpreter; returns its path."""

    def make(act: str = "", steps: int = 1000) -> Path:
        path = tmp_path / "training" / "python"
        path.parent.mkdir(exist_ok=True)
        path.write_text(TRAINER.format(python=sys.executable, act=act, steps=steps))
        path.chmod(0o755)
        return path

    return make


@pytest.fixture
def finished(home: HomePaths, tmp_path: Path, python: Any) -> Study:
    """A confirmed leader that needs a seam, a native second, an OOM, a waiting trial."""
    home.prepare()
    prompts = tmp_path / "prepared" / "prompts.jsonl"
    prompts.parent.mkdir()
    prompts.write_text('{"prompt": "1 + 1", "entry": "{}"}\n')
    store = open_store(home.database)
    workload = factories.workload(prompts=str(prompts), passthrough={"learning_rate": 1e-6})
    spec = factories.study_spec(workload=workload, python=str(python()), memory_limit=None)
    made = store.create_study(spec, factories.NOW)
    record(store, made, factories.finished(0, cycle_seconds=10.0))
    record(store, made, factories.finished(1, cycle_seconds=5.0, configuration=FAST))
    record(store, made, factories.finished(2, cycle_seconds=8.0, configuration=NATIVE))
    record(store, made, factories.failed(3, configuration=factories.configuration(micro_batch_size=8)))
    for pair in range(2):
        record(store, made, factories.finished(4 + 2 * pair, kind=TrialKind.CONFIRM, pair=pair, cycle_seconds=10.0))
        leader = factories.finished(
            5 + 2 * pair, kind=TrialKind.CONFIRM, pair=pair, cycle_seconds=5.0, configuration=FAST
        )
        record(store, made, leader)
    record(store, made, factories.trial(8, configuration=factories.configuration(precision="bf16")))
    record(store, made, factories.stopped(9, configuration=factories.configuration(optimizer="sgd")))
    store.close()
    return made


def test_export_writes_the_leader_says_its_seam_and_names_the_native_best(
    autotune: Run, finished: Study, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    code, out, err = autotune("export", "-o", str(folder))
    assert (code, err) == (0, "")
    assert "launch.py sees to it" in out
    assert "logprob_rows 8" in out
    assert "--native-only" in out
    assert {p.name for p in folder.iterdir()} >= {"grpo.yaml", "accelerate.yaml", "run.sh", "README.md", "launch.py"}
    assert yaml.safe_load((folder / "grpo.yaml").read_text())["per_device_train_batch_size"] == 4
    assert (folder / "prompts" / "train.jsonl").read_text() == '{"prompt": "1 + 1", "entry": "{}"}\n'
    assert os.access(folder / "run.sh", os.X_OK)
    assert "confirmed" in (folder / "README.md").read_text()


def test_native_only_and_trial_choose_other_configurations(autotune: Run, finished: Study, tmp_path: Path) -> None:
    code, out, _ = autotune("export", "--native-only", "-o", str(tmp_path / "native"), "--json")
    document = json.loads(out)
    assert code == 0
    assert document["row"]["configuration"] == dict(NATIVE)
    assert document["row"]["confirmed"] is False
    assert document["seams"] == {}
    assert not (tmp_path / "native" / "launch.py").exists()
    code, out, _ = autotune("export", "--trial", "0", "-o", str(tmp_path / "zero"), "--json")
    assert json.loads(out)["row"]["configuration"] == dict(finished.spec.baseline)


def test_the_figure_is_the_one_best_states(autotune: Run, finished: Study, tmp_path: Path) -> None:
    _, best, _ = autotune("best", "--json")
    _, exported, _ = autotune("export", "--json", "-o", str(tmp_path / "out"))
    assert json.loads(exported)["row"] == json.loads(best)["recommendation"]["rows"][0]


@pytest.mark.parametrize(("arguments", "said"), of("what_cannot_be_exported_is_one_sentence_and_writes_nothing"))
def test_what_cannot_be_exported_is_one_sentence_and_writes_nothing(
    autotune: Run, finished: Study, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "a file"
    file.write_text("mine")
    before = sorted(tmp_path.rglob("*"))
    words = [word.format(file=file) for word in arguments]
    where = [] if "-o" in words else ["-o", str(tmp_path / "out")]
    code, out, err = autotune("export", *words, *where)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert [p for p in sorted(tmp_path.rglob("*")) if p not in before and "home" not in p.parts] == []
    assert file.read_text() == "mine"


def test_files_that_are_there_are_kept_without_force(autotune: Run, finished: Study, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "grpo.yaml").write_text("mine")
    code, out, err = autotune("export", "-o", str(folder))
    assert (code, out) == (2, "")
    assert "already holds grpo.yaml; --force writes over them" in err
    assert sorted(p.name for p in folder.iterdir()) == ["grpo.yaml"]
    assert (folder / "grpo.yaml").read_text() == "mine"
    assert autotune("export", "-o", str(folder), "--force")[0] == 0
    assert (folder / "grpo.yaml").read_text() != "mine"


def test_verify_runs_the_printed_command_and_stores_what_it_saw(
    autotune: Run, home: HomePaths, finished: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_run, "TOLERANCE", 1e9)
    code, out, err = autotune("verify", "--updates", "2", "--rounds", "2", "--json")
    assert code == 0, err
    document = json.loads(out)
    assert document["observed_mean_completion_tokens"] == pytest.approx(56)
    assert document["stated_mean_completion_tokens"] == pytest.approx(sum(factories.LENGTHS) / 8)
    assert document["updates"] == 4
    assert "run 2, update 3" in err
    seen = (tmp_path / "training" / "seen.txt").read_text()
    folder = home.study(finished.id, "first") / "verify"
    assert str(folder / "launch.py") in seen
    assert "'--logging_steps', '1'" in seen
    store = open_store(home.database)
    event = next(e for e in store.events(finished.id) if e.kind == "verified")
    store.close()
    assert event.data == document
    assert not (folder / "output").exists()
    assert "verified" in " ".join(autotune("best")[1].split())


def test_a_figure_that_is_not_reproduced_ends_with_3(
    autotune: Run, finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_run, "TAKEN", 1e9)  # the tests themselves disturb
    code, out, _ = autotune("verify", "--updates", "2")  # the script is a hundred times faster than the study
    assert code == 3
    assert "not within 5 %" in out


def test_a_machine_that_was_busy_meanwhile_is_said_and_not_held_against_the_export(
    autotune: Run, home: HomePaths, finished: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()
    monkeypatch.setattr("autotune.machine.other_load.TakenTime.total", lambda *_: 1000.0 * next(looks))
    done, out, _ = autotune("verify", "--updates", "2", "--rounds", "2")
    assert done == 5
    # Two lines of output may be read at one instant, and of a cycle without seconds no share is known.
    assert re.search(r"not decided: other programs disturbed [34] of 4 cycles", out)
    store = open_store(home.database)
    event = next(e for e in store.events(finished.id) if e.kind == "verified")
    store.close()
    assert event.data["undecided"] is True
    assert event.data["disturbed_cycles"] >= 3
    assert "other programs disturbed" in event.message


def test_a_command_that_does_not_train_is_one_sentence_with_its_error(
    autotune: Run, finished: Study, python: Any
) -> None:
    python(act="print('ValueError: no such thing', file=sys.stderr); sys.exit(3)")
    code, out, err = autotune("verify", "--updates", "2")
    assert (code, out) == (5, "")
    assert "exit code 3 (ValueError: no such thing)" in err
    python(steps=1)
    code, _, err = autotune("verify", "--updates", "4")
    assert code == 5
    assert "it ended after 1 updates, too few to count" in err


def ratio_of(steps: list[dict[str, Any]]) -> float:
    speeds = {}
    for run in ("baseline", "answer"):
        own = [step for step in steps if step["run"] == run and step["counts"]]
        speeds[run] = sum(step["tokens"] for step in own) / sum(step["step_seconds"] for step in own)
    return float(speeds["answer"] / speeds["baseline"])


SLOW_BASELINE = """
with open(here + "/turns.txt", "a") as stream:
    stream.write(" ".join(sys.argv) + chr(10))
if "verify/baseline" in " ".join(sys.argv):
    sleep, time.sleep = time.sleep, lambda seconds: sleep(4 * seconds)
"""


def test_both_exports_take_turns_and_the_gain_is_held_against_their_ratio(
    autotune: Run, home: HomePaths, finished: Study, python: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_run, "TAKEN", 1e9)  # the tests themselves disturb
    python(act=SLOW_BASELINE)
    code, out, err = autotune("verify", "--against-baseline", "--rounds", "2", "--updates", "3", "--json")
    document = json.loads(out)
    steps = document["steps"]
    assert [(s["run"], s["round"]) for s in steps[::3]] == [
        ("baseline", 1),
        ("answer", 1),
        ("answer", 2),
        ("baseline", 2),
    ]
    assert len(steps) == 12
    assert {step["tokens"] for step in steps} == {8 * 56}
    assert document["tokens_per_hour_ratio"] == pytest.approx(ratio_of(steps))
    assert len(document["round_step_speed_ratios"]) == 2
    stated = json.loads(autotune("best", "--json")[1])["recommendation"]["rows"][0]["gain"]
    assert document["stated_gain"] == stated
    holds = stated["low"] <= document["tokens_per_hour_ratio"] - 1 <= stated["high"]
    assert (document["interval_holds"], code) == (holds, 0 if holds else 3), err
    turns = (tmp_path / "training" / "turns.txt").read_text().splitlines()
    assert [line.partition("--seed ")[2] for line in turns] == ["0", "0", "1", "1"], "a round's, the same for both"
    assert ["verify/baseline/" in line for line in turns] == [True, False, False, True]
    assert "in turns with the baseline: stated +100 %" in " ".join(autotune("best")[1].split())


def test_a_turn_that_others_disturb_is_repeated_and_then_nothing_is_decided(
    autotune: Run, finished: Study, python: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = itertools.count()
    monkeypatch.setattr("autotune.machine.other_load.TakenTime.total", lambda *_: 1000.0 * next(looks))
    python(act=SLOW_BASELINE)
    code, out, err = autotune("verify", "--against-baseline", "--rounds", "1", "--updates", "2")
    assert code == 5
    assert out.splitlines()[-1] == "not decided: other programs disturbed every round"
    turns = (tmp_path / "training" / "turns.txt").read_text().splitlines()
    assert len(turns) == 2 * in_turns.ATTEMPTS
    assert "round 1, answer, attempt 3" in err


def test_against_the_baseline_needs_another_configuration_and_a_baseline_that_held(
    autotune: Run, home: HomePaths, finished: Study, tmp_path: Path
) -> None:
    code, out, err = autotune("verify", "--against-baseline", "--trial", "0")
    assert (code, out) == (2, "")
    assert "the answer is the baseline itself" in err
    store = open_store(home.database)
    study = store.create_study(replace(finished.spec, name="second"), factories.NOW)
    record(store, study, factories.failed(0, configuration=study.spec.baseline))
    record(store, study, factories.finished(1, configuration=NATIVE))
    store.close()
    code, out, err = autotune("verify", "second", "--against-baseline")
    assert (code, out) == (2, "")
    assert "trial 0 failed (OOM in update" in err
    assert not (tmp_path / "training" / "seen.txt").exists()


SERVING = """
if "serve" in sys.argv:
    import http.server
    with open(here + "/served.txt", "a") as stream:
        stream.write(repr([os.environ["CUDA_VISIBLE_DEVICES"], os.getpid()]) + chr(10))
    {first}
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path.rstrip("/") == "/health" else 404)
            self.end_headers()
    http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
with open(here + "/trained.txt", "a") as stream:
    stream.write(repr([os.environ["CUDA_VISIBLE_DEVICES"], os.path.exists(here + "/served.txt")]) + chr(10))
{then}
"""
"""The training interpreter of a run with a rollout server: it serves where it is told to."""


@pytest.fixture
def served(
    home: HomePaths, tmp_path: Path, python: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[Study, int]]:
    """A study whose leader trains on two GPUs beside a server with one, and the server's port."""

    def make(first: str = "", then: str = "", steps: int = 1000) -> tuple[Study, int]:
        (port,) = free_ports(1)
        monkeypatch.setattr(sys.modules["trainer.frameworks.trl.export"], "PORT", port)
        monkeypatch.setattr("autotune.verify.exported_run._check_machine", lambda *_: None)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6,7")
        monkeypatch.setattr(compare_run, "TOLERANCE", 1e9)
        home.prepare()
        store = open_store(home.database)
        resources = factories.resources(gpus=3, device="cuda", compute_capability=(9, 0))
        knobs = {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1}
        configuration = factories.configuration(micro_batch_size=4, gradient_accumulation_steps=2).with_(**knobs)
        prompts = tmp_path / "prompts.jsonl"
        prompts.write_text('{"prompt": "1 + 1", "entry": "{}"}\n')
        workload = factories.workload(prompts=str(prompts), passthrough={})
        interpreter = str(python(act=SERVING.format(first=first, then=then), steps=steps))
        spec = factories.study_spec(
            workload=workload, python=interpreter, resources=resources, baseline=configuration, memory_limit=None
        )
        made = store.create_study(spec, factories.NOW)
        record(store, made, factories.finished(0, configuration=configuration))
        store.close()
        return made, port

    return make


def alive(folder: Path) -> list[int]:
    """Servers that still run."""
    pids = [int(json.loads(line.replace("'", '"'))[1]) for line in (folder / "served.txt").read_text().splitlines()]
    return [pid for pid in pids if (stat := proc.read_stat(pid)) is not None and stat.state != "Z"]


def test_verify_starts_the_rollout_server_itself_and_ends_it(autotune: Run, served: Any, tmp_path: Path) -> None:
    """Each round has a server of its own; trainer and server share out the caller's GPUs."""
    served()
    code, out, err = autotune("verify", "--updates", "2", "--rounds", "2", "--json")
    assert code in (0, 5), err  # a busy machine is slower than 5 %
    assert json.loads(out)["updates"] == 4
    folder = tmp_path / "training"
    started = [line.split("'")[1] for line in (folder / "served.txt").read_text().splitlines()]
    assert started == ["7", "7"]
    assert (folder / "trained.txt").read_text().splitlines() == ["['5,6', True]"] * 2
    assert alive(folder) == []


def test_a_port_that_is_taken_is_said_before_anything_is_started(autotune: Run, served: Any, tmp_path: Path) -> None:
    _, port = served()
    with socket.create_server(("127.0.0.1", port)):
        code, out, err = autotune("verify", "--updates", "2")
    assert (code, out) == (5, "")
    assert f"port {port}, which the exported rollout server takes, is in use" in err
    assert not (tmp_path / "training" / "served.txt").exists()


def test_an_answer_of_another_process_is_not_the_servers(autotune: Run, served: Any, tmp_path: Path) -> None:
    """Its port was free when the server was started, which takes it only at the end of its start."""
    _, port = served("time.sleep(600)")
    started, strangers = tmp_path / "training" / "served.txt", list[Stranger]()

    def take() -> None:
        while not started.exists():
            time.sleep(0.02)
        strangers.append(Stranger(port))

    thread = threading.Thread(target=take)
    thread.start()
    code, out, err = autotune("verify", "--updates", "2")
    thread.join()
    strangers[0].end()
    assert (code, out) == (5, "")
    assert f"another process answers at port {port}, which the rollout server was to have" in err
    assert not (tmp_path / "training" / "trained.txt").exists()
    assert alive(tmp_path / "training") == []


@pytest.mark.parametrize(
    ("first", "then", "said"),
    [
        ("sys.exit(3)", "", "the rollout server ended with exit code 3 before it was ready; its output is in"),
        (
            "import threading; threading.Timer(1.0, os._exit, (4,)).start()",
            "time.sleep(600)",
            "the rollout server ended with exit code 4 in the middle of the trial",
        ),
    ],
)
def test_a_server_that_ends_ends_the_verification(
    autotune: Run, served: Any, tmp_path: Path, first: str, then: str, said: str
) -> None:
    served(first, then)
    code, out, err = autotune("verify", "--updates", "2")
    assert (code, out) == (5, "")
    assert said in err
    assert "Traceback" not in err
    assert alive(tmp_path / "training") == []


def test_ctrl_c_ends_the_command_and_all_it_started(
    autotune: Run, finished: Study, python: Any, tmp_path: Path
) -> None:
    marker = tmp_path / "training" / "pids"
    python(
        act="other = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        "open(here + '/pids.new', 'w').write('%d %d' % (os.getpid(), other.pid))\n"
        "os.rename(here + '/pids.new', here + '/pids')"
    )

    def interrupt() -> None:
        while not marker.exists():
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    code, out, err = autotune("verify", "--updates", "500")
    thread.join()
    assert (code, out) == (130, "")
    assert "nothing is left running" in err
    for pid in map(int, marker.read_text().split()):
        stat = proc.read_stat(pid)
        assert stat is None or stat.ended
    assert signal.getsignal(signal.SIGINT) is before


def test_what_the_run_imports_is_not_said_to_start_it() -> None:
    framework = framework_named("swift")
    wanted = ExportRequest(
        title="a study",
        configuration=Configuration(
            {"micro_batch_size": 4, "logprob_rows": 2, "precision": "fp32", "master_weights": "fp32"}
        ),
        python="/env/bin/python",
        model="/models/one",
        rewards=(factories.reward(),),
        rows_per_update=16,
        max_completion_length=8,
    )
    made = framework.export(wanted)
    row: Any = None
    said = export.seam_sentence(export.Exported(row, framework, made, wanted, None, None))
    assert "ms-swift has no key for logprob_rows 2: autotune_plugin.py, which swift rlhf imports, sees to it" in said
    assert framework.names.helper in made.files


def test_a_study_whose_trials_have_several_nodes_is_not_verified_on_one() -> None:
    spec = factories.study_spec(resources=factories.resources(gpus=8, nodes=2, device="cuda"))
    with pytest.raises(UsageError, match=r"a trial of study .* has 2 nodes, and verify runs on this one alone"):
        exported_run._check_machine(factories.study(spec=spec), SystemClock())

import json
from dataclasses import replace

import pytest

from autotune.cli.commands.compare import comparison_screen
from autotune.domain import Configuration, Study
from autotune.recommendation.comparison import compare_studies
from autotune.recommendation.reading import StudyReading
from autotune.settings import HomePaths
from autotune.store import open_store
from tests.support import factories
from tests.support.recorded import record
from tests.unit.cli.conftest import Run
from tests.unit.cli.drawing import text

HOSTILE = "\x1b[31mevil\x1b]0;title\x07 \u202ename <script>"


@pytest.fixture
def two(home: HomePaths) -> None:
    """Studies ``one`` and a hostile one; the second on another machine and another model."""
    home.prepare()
    store = open_store(home.database)
    specs = [
        factories.study_spec("one"),
        factories.study_spec(HOSTILE, workload=factories.workload(model="/models/\x1b[31mlarge")),
    ]
    for spec, seconds in zip(specs, (10.0, 8.0), strict=True):
        study = store.create_study(spec, factories.NOW)
        for number in (0, 1):
            trial = factories.finished(number, cycle_seconds=[seconds, seconds * 1.01])
            record(store, study, replace(trial, study_id=study.id))
    store.save_fingerprint(1, factories.fingerprint(), factories.NOW)
    store.save_fingerprint(2, factories.fingerprint(hardware={"cpu": "another\x1b[31m"}), factories.NOW)
    store.close()


def test_two_trials(autotune: Run, study: Study) -> None:
    code, out, err = autotune("compare", "0", "1")
    assert (code, err) == (0, "")
    assert out.startswith("#1 over #0: +100 % (95 % interval ")
    lines = {line.strip().split("  ")[0]: line for line in out.splitlines() if line.strip()}
    assert lines["cycles"].split() == ["cycles", "3", "3"]
    assert "10.00 s" in lines["seconds a cycle"]
    assert "-50.0 %" in lines["seconds a cycle"]
    assert "3.50 s" in lines["update"]
    assert "%" not in lines["first batch"], "parts of a start-up differ by any factor"
    assert lines["micro_batch_size"].split() == ["micro_batch_size", "2", "4"]
    assert max(len(line) for line in out.splitlines()) <= 80
    document = json.loads(autotune("compare", "0", "1", "--json")[1])
    assert (document["ratio"]["value"], document["comparable"]) == (pytest.approx(1.0), True)
    assert document["a"]["phase_seconds"]["update"] == pytest.approx(3.5)
    assert document["changes"]["micro_batch_size"] == {"a": 2, "b": 4}


def test_a_failed_trial_says_its_cause_instead_of_a_ratio(autotune: Run, study: Study) -> None:
    code, out, _ = autotune("compare", "0", "2")
    assert code == 0
    assert " ".join(out.split()).startswith("#2 over #0: no ratio; #2: OOM in update (host memory)")
    assert json.loads(autotune("compare", "0", "2", "--json")[1])["ratio"] is None


def test_studies_of_another_machine_and_model_say_so_first_and_nothing_steers_the_terminal(
    autotune: Run, two: None
) -> None:
    code, out, _ = autotune("compare", "one", HOSTILE)
    assert code == 0
    first, _, figures = out.partition("tokens a cycle")
    assert "Not only knobs differ, so this is no gain of the knobs:" in first
    assert "hardware.cpu: example -> another" in first
    assert "workload.model: /models/small" in first
    assert figures
    assert not set("\x1b\x07\u202e") & set(out)
    assert max(len(line) for line in out.splitlines()) <= 80
    document = json.loads(autotune("compare", "one", HOSTILE, "--json")[1])
    assert document["comparable"] is False
    assert len(document["baselines"]) == 2


def test_what_a_study_does_not_set_is_what_its_own_framework_does() -> None:
    trials = [factories.finished(0, cycle_seconds=10.0)]
    set_in_trl = factories.configuration(num_generations=8)
    unset = {name: value for name, value in set_in_trl.items() if name != "num_generations"}

    def record(framework: str, configuration: Configuration) -> StudyReading:
        spec = factories.study_spec(framework=framework, baseline=configuration)
        done = [replace(trial, configuration=configuration) for trial in trials]
        return StudyReading(factories.study(spec=spec), done, fingerprint=factories.fingerprint())

    def marked(framework: str) -> bool:
        found = compare_studies(record("trl", set_in_trl), record(framework, Configuration(unset)))
        return "num_generations°" in text(comparison_screen(found))

    assert not marked("trl")  # TRL's own default is 8
    assert marked("verl")  # verl's is 1

import json
from typing import Any

import pytest

from autotune.cli.commands import retry
from autotune.domain import Budget, FailureReason, Outcome, Study, TrialKind
from autotune.errors import StudyDiffersError
from autotune.settings import HomePaths
from autotune.store import open_store
from tests.support import factories
from tests.support.recorded import record
from tests.unit.cli.conftest import Run, Runs


@pytest.fixture
def ended(home: HomePaths) -> Study:
    """A study whose trial 2 ran out of memory; nothing is running or waiting."""
    home.prepare()
    store = open_store(home.database)
    made = store.create_study(factories.study_spec(), factories.NOW)
    store.set_lengths(made.id, factories.LENGTHS)
    record(store, made, factories.finished(0))
    record(store, made, factories.finished(1, cycle_seconds=5.0))
    record(store, made, factories.failed(2, configuration=factories.configuration(gradient_checkpointing=False)))
    store.spend(store.open_session(made.id, factories.NOW), 95.0, 0.0, factories.NOW)
    store.close()
    return made


def trials(home: HomePaths) -> Any:
    store = open_store(home.database)
    try:
        return store.trials(1)
    finally:
        store.close()


def test_a_mended_failure_no_longer_counts(autotune: Run, home: HomePaths, ended: Study, runs: Runs) -> None:
    code, out, _ = autotune("retry", "2", "--quiet")
    assert code == 0
    assert out.splitlines()[0] == "trial 3, which repeats #2: OK; the failure of #2 no longer counts"
    made = trials(home)[-1]
    assert (made.kind, made.source, made.number) == (TrialKind.VERIFY, "retry", 3)
    assert made.configuration == trials(home)[2].configuration


def test_a_repeat_is_compared_with_what_it_repeats(autotune: Run, home: HomePaths, ended: Study, runs: Runs) -> None:
    code, out, _ = autotune("retry", "1", "--quiet")
    assert code == 0
    assert "#3 over #1:" in out
    assert max(len(line) for line in out.splitlines()) <= 80


@pytest.mark.parametrize(
    ("reason", "said", "code"),
    [
        (FailureReason.OOM, "OOM", 3),
        (FailureReason.CANCELLED, "cancelled", 4),
        (FailureReason.INFRA, "machine fault", 3),
    ],
)
def test_what_fails_again_says_so(
    autotune: Run, home: HomePaths, ended: Study, runs: Runs, reason: FailureReason, said: str, code: int
) -> None:
    runs.outcome = Outcome(reason, message="again")
    found, out, _ = autotune("retry", "1", "--quiet")
    assert found == code
    assert f"{said}: again" in out
    assert ("no longer is" in out) == (reason is FailureReason.OOM)


def test_the_budget_is_for_this_trial_alone(autotune: Run, ended: Study, runs: Runs) -> None:
    autotune("retry", "1", "--budget", "10m", "--quiet")
    assert runs.limits == [Budget(wall_s=95.0 + 600.0)]


def test_json_ends_with_the_trial(autotune: Run, ended: Study, runs: Runs) -> None:
    code, out, err = autotune("retry", "2", "--json")
    assert (code, err) == (0, "")
    last = json.loads(out.splitlines()[-1])
    assert (last["type"], last["retry_of"], last["trial"]["number"]) == ("end", 2, 3)


def test_another_machine_is_refused(autotune: Run, home: HomePaths, ended: Study, runs: Runs, wiring: Any) -> None:
    def differs(*_: Any) -> None:
        raise StudyDiffersError("study 'first' was measured on another machine")

    wiring.check_machine = differs
    code, _, err = autotune("retry", "1")
    assert (code, err) == (2, "autotune: study 'first' was measured on another machine\n")
    assert len(trials(home)) == 3


def test_while_a_tuner_runs_it_is_refused(autotune: Run, home: HomePaths, ended: Study, runs: Runs) -> None:
    store = open_store(home.database)
    try:
        with store.lock(1):
            code, out, err = autotune("retry", "1", "--quiet")
    finally:
        store.close()
    assert (code, out) == (5, "")
    assert err.count("\n") == 1
    assert len(trials(home)) == 3


def test_a_disturbed_repeat_says_so() -> None:
    calm = factories.finished(1)
    noisy = calm.with_(cycles=tuple(factories.cycle(n, noisy=True) for n in range(2)))
    assert "lower bound" not in retry.sentence(calm, calm)
    assert retry.sentence(calm, noisy).endswith("all 2 of its cycles were disturbed, so its figure is a lower bound")

"""``autotune start``: whatever the sampler, an Optuna study proposes what is run."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import optuna
import pytest
import typer
from optuna.trial import TrialState
from typer.testing import CliRunner

from autotune import wiring
from autotune.cli.commands import start, start_request
from autotune.domain import Outcome, Pool, Trial, TrialKind
from autotune.machine.clock import SystemClock
from autotune.proposals.samplers import CandidateSampler, StudySampler, named_sampler
from autotune.settings import read_settings
from autotune.store import open_store
from tests.support import factories
from tests.support.simulated import SimulatedRunner

SPACE = {
    "knobs": {"micro_batch_size": [1, 2, 4, 8], "gradient_checkpointing": [True, False], "logprob_rows": [1, 2, 4]}
}
OWN = """
import optuna

class Patient(optuna.samplers.RandomSampler):
    def __init__(self, seed=None):
        super().__init__(seed=seed)
"""
TRIALS = 9
FAILS = 1


class Clock(SystemClock):
    def advance(self, seconds: float) -> None:
        """Simulated time costs none."""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "patient.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    sys.modules.pop("patient", None)


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[optuna.Study, optuna.trial.FrozenTrial]]:
    """Every Optuna study that is asked, with what it answered."""
    seen = []
    ask = optuna.Study.ask

    def asking(study: optuna.Study, *given: Any, **named: Any) -> optuna.Trial:
        trial = ask(study, *given, **named)
        seen.append((study, study.get_trials()[-1]))
        return trial

    monkeypatch.setattr(optuna.Study, "ask", asking)
    return seen


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The real command and the real wiring on a simulated machine that runs out of memory once."""
    home = tmp_path / "home"

    def tamper(trial: Trial) -> Outcome | None:
        return factories.oom(phase="update", pool=Pool.HOST) if trial.number == FAILS else None

    def prepare(request: Any, *_: Any) -> Any:
        named_sampler(request.sampler)
        spec = factories.study_spec(space=SPACE, sampler=request.sampler)
        found = SimpleNamespace(spec=spec, legal=24, same_learning=24, scaling=(), workload="", plan=None)
        found.fingerprint = factories.fingerprint()
        return found

    monkeypatch.setattr(wiring, "prepare", prepare)
    monkeypatch.setattr(wiring, "begun", lambda study, *_, **__: study)
    monkeypatch.setattr(wiring, "SystemClock", Clock)
    monkeypatch.setattr(wiring, "runner_for", lambda spec, settings, clock, **_: SimulatedRunner(clock, tamper=tamper))
    monkeypatch.setattr(start_request, "bundled_model", lambda: "")
    return home


def run(home: Path, sampler: str) -> Any:
    app = typer.Typer()
    app.command()(start.start)
    given = ["--sampler", sampler, "--max-trials", str(TRIALS), "--no-serve", "--quiet", "--home", str(home), "--cold"]
    return CliRunner().invoke(app, given)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("sampler", "kind"),
    [
        ("grey", CandidateSampler),
        ("tpe", optuna.samplers.TPESampler),
        ("patient:Patient", optuna.samplers.RandomSampler),
    ],
)
def test_what_is_run_is_what_an_optuna_study_was_asked_for(
    sampler: str,
    kind: type | tuple[type, ...],
    simulated: Path,
    proposed: list[tuple[optuna.Study, optuna.trial.FrozenTrial]],
) -> None:
    result = run(simulated, sampler)
    assert result.exit_code == 0, result.output
    store = open_store(read_settings(environ={}, home=simulated).database)
    trials = [t for t in store.trials(1) if t.kind in (TrialKind.BASELINE, TrialKind.SEARCH)]
    store.close()
    search = [t for t in trials if t.kind is TrialKind.SEARCH]
    assert search
    answered = [(study, trial) for study, trial in proposed if study.trials[trial.number].state is not TrialState.FAIL]
    assert len(answered) >= len(search)
    for ours, (study, trial) in zip(search, answered, strict=False):
        assert isinstance(study.sampler, kind)
        values = study.user_attrs["values"]
        shown = {name: values[name][place] for name, place in trial.params.items()}
        assert shown == {name: ours.configuration[name] for name in shown}
        before = [t for t in trials if t.number < ours.number]
        assert_holds(study, before)
    assert any(t.outcome is not None and t.outcome.pool is Pool.HOST for t in search), "no failure was told"


def assert_holds(study: optuna.Study, before: list[Any]) -> None:
    """The study holds what was tried: failures as broken constraints, speeds as values."""
    by_number = {t.user_attrs["number"]: t for t in study.trials if "number" in t.user_attrs}
    assert set(by_number) <= {t.number for t in before}
    assert len(by_number) == len(before)
    for ours in before:
        there = by_number[ours.number]
        assert there.state is TrialState.COMPLETE
        failed = any(value > 0 for value in there.constraints.values())
        assert failed == (ours.outcome is not None and not ours.fits)
        if ours.feasible:
            assert there.value == pytest.approx(ours.tokens_per_hour)
            assert math.isclose(sum(there.user_attrs["phases"].values()), ours.speed_cycles()[0].seconds, rel_tol=0.2)
        assert bool(there.user_attrs.get("oom")) == failed


@pytest.mark.usefixtures("own", "simulated")
@pytest.mark.parametrize("name", ["nowhere_at_all:Any", "patient:Hasty", "tpee"])
def test_a_sampler_that_cannot_be_used_is_bad_input(name: str, simulated: Path) -> None:
    result = run(simulated, name)
    assert result.exit_code != 0
    assert getattr(result.exception, "exit_code", None) == 2
    assert isinstance(named_sampler("grey"), StudySampler)

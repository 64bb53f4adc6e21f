"""``autotune export --optuna``: a storage that Optuna's own programs open."""

from __future__ import annotations

import io
import json
import sqlite3
from pathlib import Path
from typing import Any

import optuna
import optuna_dashboard
import pytest
from optuna.importance import PedAnovaImportanceEvaluator
from optuna.trial import TrialState

from autotune.proposals.optuna_storage import write_storage
from tests.support import factories


@pytest.fixture
def file(tmp_path: Path, autotune: Any, study: Any) -> Path:
    found = tmp_path / "study.db"
    code, out, err = autotune("export", "--optuna", str(found))
    assert (code, err) == (0, "")
    assert "trials   3" in out
    assert f"open     optuna-dashboard sqlite:///{found}" in out
    return found


def ask(app: Any, path: str) -> tuple[str, Any]:
    """A GET of the dashboard, without a port."""
    said: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET", "PATH_INFO": path, "SERVER_NAME": "here", "SERVER_PORT": "80", "QUERY_STRING": "",
        "wsgi.input": io.BytesIO(), "wsgi.errors": io.StringIO(), "wsgi.url_scheme": "http",
    }  # fmt: skip
    body = b"".join(app(environ, lambda status, headers, exc_info=None: said.append(status)))
    return said[0], json.loads(body)


def test_the_storage_holds_what_the_search_ran(file: Path) -> None:
    made = optuna.load_study(study_name="first", storage=f"sqlite:///{file}")
    baseline, faster, failed = made.trials
    assert [t.state for t in made.trials] == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.FAIL]
    assert faster.params["micro_batch_size"] == 4
    assert faster.value is not None
    assert baseline.value is not None
    assert faster.value == pytest.approx(2 * baseline.value)
    assert made.best_trial.number == faster.number
    assert failed.user_attrs["oom"] is True
    assert failed.user_attrs["reason"] == "OOM"
    assert faster.user_attrs["phases"]
    assert faster.datetime_start is not None


def test_the_dashboard_shows_it(file: Path) -> None:
    app = optuna_dashboard.wsgi(f"sqlite:///{file}")
    status, listed = ask(app, "/api/studies")
    assert status.startswith("200")
    (summary,) = listed["study_summaries"]
    assert summary["study_name"] == "first"
    status, detail = ask(app, f"/api/studies/{summary['study_id']}")
    assert status.startswith("200")
    assert [t["state"] for t in detail["trials"]] == ["Complete", "Complete", "Fail"]
    assert detail["objective_names"] == ["tokens/hour"]


def test_optuna_draws_it(file: Path) -> None:
    made = optuna.load_study(study_name="first", storage=f"sqlite:///{file}")
    history = optuna.visualization.plot_optimization_history(made)
    assert len(history.data[0].x) == 2
    parallel = optuna.visualization.plot_parallel_coordinate(made)
    assert len(parallel.data) >= 2
    assert optuna.visualization.plot_slice(made).data
    importance = optuna.visualization.plot_param_importances(made, evaluator=PedAnovaImportanceEvaluator())
    assert set(importance.data[0].y) == {"micro_batch_size", "gradient_checkpointing"}


def test_a_stopped_trial_is_pruned_and_one_that_did_not_pass_breaks_a_constraint(tmp_path: Path) -> None:
    trials = [
        factories.finished(0),
        factories.stopped(1, configuration=factories.configuration(micro_batch_size=2)),
        factories.finished(2, configuration=factories.configuration(micro_batch_size=4), worst_case_passed=False),
    ]
    assert write_storage(factories.study(), trials, tmp_path / "a.db") == 3
    made = optuna.load_study(study_name="first", storage=f"sqlite:///{tmp_path / 'a.db'}")
    assert [t.state for t in made.trials] == [TrialState.COMPLETE, TrialState.PRUNED, TrialState.COMPLETE]
    assert made.trials[1].intermediate_values == {1: trials[1].at_most}
    assert [all(v <= 0 for v in t.constraints.values()) for t in made.trials] == [True, True, False]
    assert made.best_trial.number == 0


@pytest.mark.parametrize(("name", "says"), [("there.db", "is there already"), ("no/where.db", "there is no folder")])
def test_nothing_is_written_over(tmp_path: Path, autotune: Any, study: Any, name: str, says: str) -> None:
    (tmp_path / "there.db").write_text("mine")
    code, _, err = autotune("export", "--optuna", str(tmp_path / name))
    assert code == 2
    assert says in err
    assert (tmp_path / "there.db").read_text() == "mine"


def test_a_disk_that_fails_is_one_sentence_and_leaves_nothing(
    tmp_path: Path, autotune: Any, study: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's error is wrapped in others, as SQLAlchemy and Optuna do."""
    made = optuna.create_study

    def full(**words: Any) -> Any:
        made(**words)
        try:
            raise sqlite3.OperationalError("database or disk is full")
        except sqlite3.OperationalError as error:
            raise RuntimeError("(sqlite3.OperationalError)") from error

    with monkeypatch.context() as patch:
        patch.setattr(optuna, "create_study", full)
        code, _, err = autotune("export", "--optuna", str(tmp_path / "new.db"))
    assert code == 5
    assert "new.db could not be written: database or disk is full" in " ".join(err.split())
    assert list(tmp_path.glob("*new.db*")) == []
    assert autotune("export", "--optuna", str(tmp_path / "new.db"))[0] == 0

"""Writes a stored study as an Optuna storage, for optuna-dashboard and ``optuna.visualization``; reads nothing back."""

from __future__ import annotations

import contextlib
import secrets
import sqlite3
import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial
from optuna.trial import TrialState as OptunaState

from autotune.domain import Study, Trial, TrialState
from autotune.errors import MachineError, UsageError
from autotune.proposals.translation import NUMBER, evidence, quiet, user_attributes
from search_spaces.space import SearchSpace

METRIC = "tokens/hour"
_STATES = {
    TrialState.COMPLETE: OptunaState.COMPLETE,
    TrialState.PRUNED: OptunaState.PRUNED,
    TrialState.FAIL: OptunaState.FAIL,
}


def write_storage(study: Study, trials: Sequence[Trial], path: Path) -> int:
    """Writes the finished trials of the search to the SQLite file ``path``; returns their number.

    The objective is tokens/hour. A trial that ran but did not pass violates a constraint, one stopped early is PRUNED,
    a failed one is FAIL; user attributes state the reason. Raises ``UsageError`` if the file exists or its folder does
    not, and ``MachineError`` if it cannot be written.
    """
    if path.exists():
        raise UsageError(f"--optuna {path} is there already; name another file")
    if not path.parent.is_dir():
        raise UsageError(f"--optuna {path}: there is no folder {path.parent}")
    searched = [t for t in trials if t.kind.is_searched and t.state in _STATES]
    shapes = distributions(SearchSpace.from_json(study.spec.space).values, searched)
    partial = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        _fill(partial, study, searched, shapes)
        partial.rename(path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # what went wrong before says more
            partial.unlink(missing_ok=True)
        cause = _of_disk(error)
        if cause is None:
            raise
        raise MachineError(f"--optuna {path} could not be written: {cause}") from error
    return len(searched)


def _fill(path: Path, study: Study, searched: Sequence[Trial], shapes: Mapping[str, BaseDistribution]) -> None:
    with quiet():
        made = optuna.create_study(
            storage=f"sqlite:///{path.absolute()}", study_name=study.spec.name, direction="maximize"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        made.set_metric_names([METRIC])
    made.set_user_attr("framework", study.spec.framework)
    made.set_user_attr("model", study.spec.workload.model)
    made.add_trials([frozen(trial, shapes) for trial in sorted(searched, key=lambda t: t.number)])


def _of_disk(error: BaseException | None) -> OSError | sqlite3.Error | None:
    """Returns the disk or SQLite error that caused an error of Optuna or its driver; ``None`` without one."""
    while error is not None and not isinstance(error, OSError | sqlite3.Error):
        error = error.__cause__
    return error


def distributions(searched: Mapping[str, Sequence[Any]], trials: Sequence[Trial]) -> dict[str, BaseDistribution]:
    """Returns one distribution for each searched knob, over the values of the space and of the trials."""
    found: dict[str, BaseDistribution] = {}
    for name, values in searched.items():
        run = (t.configuration[name] for t in trials if name in t.configuration)
        every = list(dict.fromkeys((*values, *run)))
        numbers = all(isinstance(v, int | float) for v in every)
        found[name] = CategoricalDistribution(tuple(sorted(every) if numbers else every))
    return found


def frozen(trial: Trial, shapes: Mapping[str, BaseDistribution]) -> FrozenTrial:
    """Converts a trial to Optuna's form; omits knobs that its configuration does not set."""
    configuration = trial.configuration
    params = {name: configuration[name] for name in shapes if name in configuration}
    state = _STATES[trial.state]
    complete = state is OptunaState.COMPLETE
    value = trial.tokens_per_hour if complete else None
    if complete and value is None:
        state = OptunaState.FAIL
    made = optuna.create_trial(
        state=state,
        value=value,
        params=params,
        distributions={name: shapes[name] for name in params},
        user_attrs=_attributes(trial),
        constraints={"feasible": 0.0 if trial.feasible else 1.0} if state is OptunaState.COMPLETE else None,
        intermediate_values={1: trial.at_most} if trial.at_most is not None else None,
    )
    made.datetime_start = _moment(trial.started_at) or made.datetime_start
    made.datetime_complete = _moment(trial.finished_at) or made.datetime_complete
    return made


def _attributes(trial: Trial) -> dict[str, Any]:
    """Returns a trial's user attributes: phases, memory and bound, failure reason, and proposer."""
    known = evidence([trial])
    found = user_attributes(known[0]) if known else {}
    found |= {NUMBER: trial.number, "kind": trial.kind.value, "proposed_by": trial.source}
    outcome = trial.outcome
    if outcome is not None and outcome.reason is not None:
        found |= {"reason": outcome.reason.value, "phase": outcome.phase}
    return found


def _moment(seconds: float | None) -> datetime | None:
    """Converts UTC seconds to Optuna's times, which are local and have no time zone."""
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).astimezone().replace(tzinfo=None)

"""The grey-box sampler as anybody's Optuna sampler."""

from __future__ import annotations

import contextlib
import io
import math
import re
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import optuna
import pytest
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from autotune.proposals.samplers.grey_box import GreyBoxSampler
from tests.support import forecasting
from tests.support.forecasting import CANDIDATES, KNOBS, total
from tests.support.waiting import PATIENCE_S

ROOT = Path(__file__).parents[3]
SPACE: dict[str, BaseDistribution] = {n: CategoricalDistribution(tuple(v)) for n, v in KNOBS.items()}  # type: ignore[arg-type]
BEST = min(total(c) for c in CANDIDATES)
Objective = Callable[[optuna.Trial], float]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield
    optuna.logging.set_verbosity(before)


def machine(trial: optuna.Trial, *, phases: bool = True) -> float:
    """Seconds of the invented machine; says what they are spent on."""
    asked = forecasting.Configuration({n: trial.suggest_categorical(n, list(v)) for n, v in KNOBS.items()})  # type: ignore[call-overload]
    found = forecasting.seconds(asked)
    if phases:
        trial.set_user_attr("phases", found)
    return sum(found.values())


def run(
    sampler: optuna.samplers.BaseSampler, trials: int, objective: Objective = machine, direction: str = "minimize"
) -> optuna.Study:
    study = optuna.create_study(sampler=sampler, direction=direction)
    study.optimize(objective, n_trials=trials)
    return study


def until_within(sampler: optuna.samplers.BaseSampler, trials: int, share: float = 0.05) -> int:
    """Trials until one is that close to the best; ``trials`` and one more if none is."""

    def found(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        if trial.value is not None and trial.value <= BEST * (1 + share):
            study.stop()

    study = optuna.create_study(sampler=sampler)
    study.optimize(machine, n_trials=trials, callbacks=[found])
    return len(study.trials) + (study.best_value > BEST * (1 + share))


def test_phases_find_the_best_in_fewer_trials() -> None:
    trials = 24
    grey = [until_within(GreyBoxSampler(seed=seed, search_space=SPACE), trials) for seed in range(10)]
    tpe = [until_within(optuna.samplers.TPESampler(seed=seed), trials) for seed in range(10)]
    assert statistics.median(grey) <= 0.75 * statistics.median(tpe)
    assert statistics.median(grey) < trials


def test_it_says_once_that_it_has_no_phases_and_works_without() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        study = run(GreyBoxSampler(seed=0), 16, lambda t: machine(t, phases=False))
    said = [str(w.message) for w in caught if "falls back" in str(w.message)]
    assert len(said) == 1
    assert "no trial has the user attribute 'phases'" in said[0]
    chance = run(optuna.samplers.RandomSampler(seed=0), 16, lambda t: machine(t, phases=False))
    assert study.best_value < chance.best_value


def test_with_phases_it_says_nothing_unless_they_are_not_the_objective() -> None:
    def other(trial: optuna.Trial) -> float:
        return machine(trial) ** 3

    for objective, times in ((machine, 0), (other, 1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            run(GreyBoxSampler(seed=0), 9, objective)
        assert sum("do not tell the objective" in str(w.message) for w in caught) == times


def test_to_maximise_a_rate_is_to_minimise_the_time() -> None:
    down = run(GreyBoxSampler(seed=4), 12)
    up = run(GreyBoxSampler(seed=4), 12, lambda t: 3600.0 / machine(t), "maximize")
    assert [t.params for t in up.trials] == [t.params for t in down.trials]


def test_fixed_distributions_are_the_define_by_run_ones_once_known() -> None:
    study = optuna.create_study(sampler=GreyBoxSampler(seed=2))
    for _ in range(10):
        trial = study.ask(SPACE)
        asked = forecasting.Configuration(trial.params)
        trial.set_user_attr("phases", forecasting.seconds(asked))
        study.tell(trial, total(asked))
    given = run(GreyBoxSampler(seed=2, search_space=SPACE), 10)
    assert [t.params for t in given.trials[1:]] != []
    assert len({repr(t.params) for t in given.trials}) == len({repr(t.params) for t in study.trials}) == 10


@pytest.mark.parametrize("kept", [1, 7, 11])
def test_a_resumed_study_is_the_uninterrupted_one(kept: int) -> None:
    whole = run(GreyBoxSampler(seed=5), 14)
    resumed = optuna.create_study(sampler=GreyBoxSampler(seed=5))
    resumed.add_trials(whole.trials[:kept])
    resumed.optimize(machine, n_trials=14 - kept)
    assert [t.params for t in resumed.trials] == [t.params for t in whole.trials]


def test_nothing_illegal_and_nothing_twice() -> None:
    def legal(params: dict[str, object]) -> bool:
        return int(str(params["micro_batch_size"])) * int(str(params["logprob_rows"])) <= 8

    sampler = GreyBoxSampler(seed=1, search_space=SPACE, legal=legal)  # type: ignore[arg-type]
    study = run(sampler, 20)
    assert all(legal(t.params) for t in study.trials)
    assert len({repr(sorted(t.params.items())) for t in study.trials}) == 20
    with pytest.raises(ValueError, match="`legal` allowed no point"):
        run(GreyBoxSampler(search_space=SPACE, legal=lambda _: False), 1)


def test_a_used_up_space_begins_again() -> None:
    study = run(GreyBoxSampler(seed=0), 9, lambda t: float(t.suggest_int("x", 0, 3)) + 1.0)
    assert {t.params["x"] for t in study.trials} == {0, 1, 2, 3}
    assert len(study.trials) == 9


@pytest.mark.parametrize("ending", ["fail", "pruned", "constraint", "complete"])
def test_trials_that_ran_out_of_memory_teach_where_not_to_go(ending: str) -> None:
    """More rows are faster, and above 4 do not fit: told by whichever means, the second half seldom asks for that."""

    def objective(trial: optuna.Trial) -> float:
        rows = trial.suggest_categorical("rows", [1, 2, 3, 4, 5, 6, 7, 8])
        other = trial.suggest_float("other", 0.0, 1.0)
        trial.set_user_attr("peak_bytes", 1e9 * rows)
        value = 9.0 - rows + other
        if rows <= 4:
            return value
        if ending == "constraint":
            trial.set_constraint("memory", 1.0)
            return value
        trial.set_user_attr("oom", True)
        if ending == "complete":
            return value
        raise optuna.TrialPruned if ending == "pruned" else MemoryError

    study = optuna.create_study(sampler=GreyBoxSampler(seed=3, memory_limit=4.5e9))
    study.optimize(objective, n_trials=22, catch=(MemoryError,))
    late = [t.params["rows"] > 4 for t in study.trials[11:]]
    assert sum(late) <= 3


def test_values_nobody_can_use_are_no_lessons() -> None:
    def objective(trial: optuna.Trial) -> float:
        x = trial.suggest_float("x", -1.0, 1.0)
        trial.set_user_attr("phases", {"a": float("nan")} if x < 0 else "nonsense")
        if x < -0.8:
            raise optuna.TrialPruned
        return math.inf if x > 0.9 else x * x - 0.5

    study = run(GreyBoxSampler(seed=0), 25, objective)
    assert study.best_value < -0.45


def test_a_pruned_trial_bounds_what_it_could_have_reached() -> None:
    """Minimising: at best 9 there, so the sampler does not go back beside it."""
    study = optuna.create_study(sampler=GreyBoxSampler(seed=1, n_startup_trials=1))
    shape = {"x": FloatDistribution(0.0, 1.0)}
    for x in (0.0, 0.1, 0.2, 0.3):
        study.add_trial(optuna.create_trial(params={"x": x}, distributions=shape, value=5.0 - x))
    for x in (0.55, 0.6, 0.65, 0.7, 0.8, 0.95):
        study.add_trial(
            optuna.create_trial(
                state=TrialState.PRUNED, params={"x": x}, distributions=shape, user_attrs={"bound": 30.0}
            )
        )
    assert study.ask(shape).params["x"] < 0.5


def test_of_points_as_good_the_one_without_a_restart() -> None:
    engines = CategoricalDistribution(("a", "b", "c"))
    shapes: dict[str, BaseDistribution] = {"engine": engines, "n": IntDistribution(1, 3)}
    study = optuna.create_study(
        sampler=GreyBoxSampler(seed=1, n_startup_trials=1, restart=lambda p: p["engine"], cycles=2)
    )
    for engine in ("a", "b", "c"):
        attrs = {"phases": {"x": 5.0}, "startup_s": 60.0}
        study.add_trial(
            optuna.create_trial(params={"engine": engine, "n": 1}, distributions=shapes, value=5.0, user_attrs=attrs)
        )
    assert study.ask(shapes).params["engine"] == "c"


def test_several_objectives_are_refused() -> None:
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=GreyBoxSampler(search_space=SPACE))
    with pytest.raises(ValueError, match="several objectives"):
        study.ask(SPACE)


def test_numbers_are_kept_to_their_steps_and_bounds() -> None:
    shapes: dict[str, BaseDistribution] = {
        "a": IntDistribution(3, 17, step=7),
        "b": FloatDistribution(0.1, 0.7, step=0.2),
        "c": FloatDistribution(1e-5, 1e-1, log=True),
        "d": IntDistribution(1, 100_000, log=True),
    }
    study = optuna.create_study(sampler=GreyBoxSampler(seed=0, search_space=shapes))
    for _ in range(9):
        trial = study.ask(shapes)
        assert all(d._contains(d.to_internal_repr(trial.params[n])) for n, d in shapes.items())
        study.tell(trial, trial.params["a"] + abs(math.log10(trial.params["c"]) + 3))


def _script() -> str:
    found = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "sampler.md").read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


def test_the_script_of_the_page_is_short_and_finds_the_best() -> None:
    script = _script()
    assert len(script.splitlines()) <= 20
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(script, "docs/sampler.md", "exec"), {"__name__": "__main__"})  # noqa: S102
    assert "'rows': 8, 'graphs': True" in shown.getvalue()


def test_the_script_needs_no_torch() -> None:
    blocked = "import sys\nsys.modules['torch'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", blocked + _script()],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "'graphs': True" in done.stdout

"""Peers that need packages of their own: DeepSpeed's tuner, SMAC3 and Ax. See requirements/search-peers.in.

They think of a whole grid of values. What they ask for that is no row left is moved to the nearest one, and they are
told what was tried. Rows are given to them as places along each knob, in order where the knob has one.
"""

from __future__ import annotations

import importlib
import math
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.domain import Trial
from autotune.proposals.candidate_grid import Mask, Point
from benchmarks.search.world import World

BUDGET = 100
"""Trials SMAC is told it has: a quarter of them are its initial design. It can be asked for more."""
RANKER: Mapping[str, float | int | str] = {
    "max_depth": 3, "gamma": 0.0001, "min_child_weight": 1, "subsample": 1.0, "eta": 0.3, "lambda": 1.0, "alpha": 0,
    "objective": "rank:pairwise", "verbosity": 0, "nthread": 1,
}  # fmt: skip
"""Constants of DeepSpeed's ModelBasedTuner and XGBoostCostModel (deepspeed/autotuning/tuner/model_based_tuner.py and
cost_model.py, DeepSpeed 0.19), but for ``nthread``."""


class DeepSpeed:
    """The order of DeepSpeed's model-based tuner: any row first; from then on what a pairwise ranker of boosted trees,
    fitted anew after each trial, puts first of the rows that are left, the last of equals.

    The exploration its code means to do one time in five never comes to pass there (another row is drawn only while the
    one the ranker chose has been tried), so there is none here. A failed trial is told as DeepSpeed tells it: with
    performance 0. Its ranker sees numeric settings only; here every knob has a place, and it sees all.
    """

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._chance = np.random.default_rng([seed, 1])
        self._features = np.array(world.places.places(np.arange(len(world.configurations))), dtype=np.float32)
        self._places = {c: i for i, c in enumerate(world.configurations)}
        self._xgboost = importlib.import_module("xgboost")

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        free = np.flatnonzero(left)
        if len(history) == 1:
            return int(self._chance.choice(free))
        return int(free[np.argsort(self._scores(history)[free])[-1]])

    def _scores(self, history: Sequence[Trial]) -> NDArray[np.float32]:
        tried = self._chance.permutation([self._places[t.configuration] for t in history])
        speeds = {self._places[t.configuration]: _speed(t) for t in history}
        found = np.array([speeds[int(i)] for i in tried], dtype=np.float32)
        data = self._xgboost.DMatrix(self._features[tried], found / max(float(found.max()), 1e-9))
        model = self._xgboost.train(dict(RANKER), data)
        scores: NDArray[np.float32] = model.predict(self._xgboost.DMatrix(self._features))
        return scores


class Smac:
    """SMAC3's facade for hyperparameters (random forest, expected improvement), by ask and tell.

    A failed trial is told as MEMORYOUT or CRASHED, at the worst cost measured: SMAC's own default is infinite, which
    its forest cannot be fitted to. While it waits for a trial it asked for it cannot be told of another, so what was
    tried in its place is told as what it asked for.
    """

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._folder = tempfile.TemporaryDirectory(prefix="smac-")
        smac = importlib.import_module("smac")
        self._history = importlib.import_module("smac.runhistory.dataclasses")
        self._status = importlib.import_module("smac.runhistory.enumerations").StatusType
        scenario = smac.Scenario(
            _config_space(world, seed), deterministic=True, n_trials=BUDGET, seed=seed,
            output_directory=self._folder.name,
        )  # fmt: skip
        facade = smac.HyperparameterOptimizationFacade
        self._smac = facade(scenario, target_function=_unused, logging_level=False, overwrite=True)
        self._asked: Any = None
        self._reported: list[Trial] = []

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        if self._asked is not None:
            self._smac.tell(self._asked, self._value(history))
        self._asked = self._smac.ask()
        wanted = dict(self._asked.config)
        return _nearest(self._world, tuple(int(wanted[d.name]) for d in self._world.places.dimensions), left)

    def _value(self, history: Sequence[Trial]) -> Any:
        trial = history[-1]
        if trial.feasible:
            return self._history.TrialValue(cost=_cost(trial), status=self._status.SUCCESS)
        oom = trial.outcome is not None and trial.outcome.pool is not None
        status = self._status.MEMORYOUT if oom else self._status.CRASHED
        return self._history.TrialValue(cost=_worst(history), status=status)


class Ax:
    """Ax's own choice for such a space: Sobol points, then BoTorch's expected improvement under a constraint.

    A failed trial is told with the worst value measured and as breaking the constraint ``held``: an abandoned one would
    teach nothing. What was tried instead of what it asked for is attached, and that abandoned.
    """

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        client = importlib.import_module("ax.api.client").Client(random_seed=seed)
        configs = importlib.import_module("ax.api.configs")
        client.configure_experiment(
            parameters=[
                configs.ChoiceParameterConfig(
                    name=d.name, parameter_type="int", values=list(range(len(d.values))), is_ordered=d.ordered
                )
                for d in world.places.dimensions
            ]
        )
        client.configure_optimization(objective="-cost", outcome_constraints=["held >= 0.5"])
        self._client = client
        self._asked: int | None = None

    def propose(self, history: Sequence[Trial], left: Mask) -> int:
        if self._asked is None:
            start = self._client.attach_trial(parameters=self._parameters(self._world.baseline))
            self._tell(start, history)
        else:
            self._tell(self._asked, history)
        index, wanted = next(iter(self._client.get_next_trials(max_trials=1).items()))
        point = tuple(int(wanted[d.name]) for d in self._world.places.dimensions)
        row = _nearest(self._world, point, left)
        self._asked = index
        if self._world.places.at(point) != row:
            self._client.mark_trial_abandoned(trial_index=index)
            self._asked = self._client.attach_trial(parameters=self._parameters(row))
        return row

    def _parameters(self, row: int) -> dict[str, int]:
        point = self._world.places.places(np.array([row])).tolist()[0]
        return {d.name: place for d, place in zip(self._world.places.dimensions, point, strict=True)}

    def _tell(self, index: int, history: Sequence[Trial]) -> None:
        trial = history[-1]
        cost = _cost(trial) if trial.feasible else _worst(history)
        self._client.complete_trial(trial_index=index, raw_data={"cost": cost, "held": float(trial.feasible)})


def _config_space(world: World, seed: int) -> Any:
    module = importlib.import_module("ConfigSpace")
    space = module.ConfigurationSpace(seed=seed)
    for dimension in world.places.dimensions:
        places = list(range(len(dimension.values)))
        kind = module.OrdinalHyperparameter if dimension.ordered else module.CategoricalHyperparameter
        space.add(kind(dimension.name, places))
    return space


def _unused(config: Any, seed: int = 0) -> float:  # noqa: ARG001
    """SMAC asks for a function even where it is only asked and told."""
    raise AssertionError("trials are replayed, not run")


def _nearest(world: World, point: Point, left: Mask) -> int:
    row = world.places.at(point)
    return row if row is not None and left[row] else world.places.nearest(point, left)


def _speed(trial: Trial) -> float:
    return (trial.tokens_per_hour or 0.0) if trial.feasible else 0.0


def _cost(trial: Trial) -> float:
    """Less is better: seconds of a token, by their logarithm."""
    return -math.log(trial.tokens_per_hour or 1.0)


def _worst(history: Sequence[Trial]) -> float:
    """The cost of the slowest measured; 0 before anything was."""
    return max((_cost(t) for t in history if t.feasible), default=0.0)

"""Samplers without autotune's models: Optuna's TPE, random and grid search, and a class of the user's own."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import optuna

from autotune.errors import UsageError
from autotune.proposals.samplers.base import CandidateSampler, StudySampler, Turn

STARTUP_TRIALS = 6
"""Random trials before TPE's estimator is used."""


class TpeSampler(StudySampler):
    """Optuna's multivariate TPE with constraints. A draw outside the candidates is reported as FAIL, which TPE ignores,
    and repeated."""

    name = "tpe"
    asks = 8

    DRAWS = 100
    """Points the estimator weighs for one suggestion; more than Optuna's 24, because a trial costs minutes."""

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        return optuna.samplers.TPESampler(
            n_startup_trials=STARTUP_TRIALS,
            n_ei_candidates=self.DRAWS,
            multivariate=True,
            constant_liar=True,  # what runs beside counts as slow, so that it is not proposed again
            seed=turn.seed,
        )


@dataclass(frozen=True)
class PlainSampler(StudySampler):
    """Selects one of the remaining candidates without regard to any trial."""

    name: str
    place: Callable[[Turn, int], int]
    """Returns the index of the chosen candidate among the remaining ones."""

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        places = np.flatnonzero(turn.field.left)
        return CandidateSampler(turn.field.grid, int(places[self.place(turn, len(places))]))


RANDOM = PlainSampler("random", lambda turn, count: turn.seed % count)
"""Random choice, the baseline of sampler comparisons. The seed is a digest, uniform over 32 bits already."""
GRID = PlainSampler("grid", lambda *_: 0)
"""Takes the remaining candidates in their order."""


@dataclass(frozen=True)
class OwnSampler(StudySampler):
    """An ``optuna.samplers.BaseSampler`` of the user's, created for each proposal, with ``seed`` if its constructor
    takes one: a resumed study proposes as an uninterrupted one would."""

    name: str
    make: Callable[..., optuna.samplers.BaseSampler]
    seeded: bool
    asks: int = 8

    def sampler(self, turn: Turn) -> optuna.samplers.BaseSampler:
        return self.make(seed=turn.seed) if self.seeded else self.make()


def own_sampler(name: str) -> OwnSampler:
    """Returns the class ``module:Class``, also from the working directory. Raises ``UsageError`` if it does not exist,
    cannot be imported, is not an Optuna sampler, or needs arguments."""
    module, _, wanted = name.partition(":")
    found = getattr(_imported(name, module), wanted, None)
    if found is None:
        raise UsageError(f"--sampler {name}: module {module} has no class {wanted}")
    if not (isinstance(found, type) and issubclass(found, optuna.samplers.BaseSampler)):
        raise UsageError(f"--sampler {name}: {wanted} is not a subclass of optuna.samplers.BaseSampler")
    parameters = inspect.signature(found).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [n for n in needed if n != "seed"]
    if needed:
        raise UsageError(
            f"--sampler {name}: its constructor needs {' and '.join(needed)}; "
            "give a class that is made without arguments, or with `seed` alone"
        )
    return OwnSampler(name, found, any(p.name == "seed" for p in parameters))


def _imported(name: str, module: str) -> object:
    here = os.getcwd()
    if here not in sys.path:
        # At the end: a file of the user's never stands in the way of an installed package.
        sys.path.append(here)
    try:
        return importlib.import_module(module)  # noqa: TID251 - the user names it
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UsageError(f"--sampler {name}: there is no module {module} in {here} or on PYTHONPATH") from None
        raise UsageError(f"--sampler {name}: importing {module} failed: {error}") from None
    except Exception as error:
        raise UsageError(f"--sampler {name}: importing {module} failed: {type(error).__name__}: {error}") from None

"""Ask an Optuna study for a candidate: draws that are none are told as FAIL and drawn again."""

from __future__ import annotations

from collections.abc import Mapping

import optuna
from optuna.distributions import BaseDistribution

from autotune.proposals.lattice import Lattice, Mask, Point


def asked(study: optuna.Study, shapes: Mapping[str, BaseDistribution], lattice: Lattice, left: Mask, times: int) -> int:
    """The first of ``times`` draws that is a candidate of ``left``, else the one nearest to the first draw."""
    draws: list[Point] = []
    for _ in range(times):
        trial = study.ask(dict(shapes))
        draws.append(tuple(int(trial.params[d.name]) for d in lattice.dimensions))
        index = lattice.at(draws[-1])
        if index is not None and left[index]:
            return index
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    return lattice.nearest(draws[0], left)

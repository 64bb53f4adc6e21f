"""Estimates the speeds of nodes from configurations that ran on several of them. Pure.

The logarithm of a process's speed is the sum of effects of its configuration, its node, and the process (``noise``).
Nodes have a normal prior, configurations none; the posterior is that of a linear model (Henderson's mixed model
equations, Biometrics 31, 1975). It puts figures of different nodes on one level. A confirmed gain does not use it,
because both halves of a round run on one node.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from autotune.domain import Trial, TrialKind
from autotune.statistics.noise import recorded_process

NODE_SPREAD = 0.2
"""Prior standard deviation of nodes, in logarithms; presumed, because no recording has two nodes."""
FREE = 10.0
"""Prior standard deviation of configurations, in logarithms: wide, because nothing is presumed of them."""


@dataclass(frozen=True)
class NodeEffect:
    """Effect of one node: log tokens/hour above the mean of all nodes."""

    log: float
    variance: float
    """Variance of ``log``."""


def effects(trials: Sequence[Trial]) -> Mapping[str, NodeEffect]:
    """Estimates the effect of each node; empty if all trials ran on one.

    Only CONFIRM and VERIFY trials are used. Search trials contribute nothing, because their configurations ran once,
    and the first baseline ran on a machine that had been idle for minutes.
    """
    names = sorted({t.node for t in trials if t.node})
    if len(names) < 2:
        return {}
    import numpy as np

    measured = [t for t in trials if _tells(t)]
    configurations = list(dict.fromkeys(t.configuration for t in measured))
    free, rows = len(configurations), range(len(measured))
    known = np.zeros((len(measured), free + len(names)))
    known[rows, [configurations.index(t.configuration) for t in measured]] = 1.0
    known[rows, [free + names.index(t.node) for t in measured]] = 1.0
    spreads = np.array([FREE] * free + [NODE_SPREAD] * len(names))
    noise = recorded_process(on_gpu=any(t.on_gpu for t in measured)).variance
    covariance = np.linalg.inv(known.T @ known / noise + np.diag(spreads**-2.0))
    logs = np.array([math.log(t.tokens_per_hour or 1.0) for t in measured])
    mean = covariance @ known.T @ (logs - logs.sum() / max(1, len(measured))) / noise
    apart = np.eye(len(names)) - 1.0 / len(names)
    variances = np.diag(apart @ covariance[free:, free:] @ apart)
    return {
        n: NodeEffect(float(log), float(v)) for n, log, v in zip(names, apart @ mean[free:], variances, strict=True)
    }


def _tells(trial: Trial) -> bool:
    apart = trial.kind in (TrialKind.CONFIRM, TrialKind.VERIFY) and not trial.emulated
    return apart and bool(trial.node) and trial.feasible and trial.tokens_per_hour is not None


class Levels:
    """Adds the node effects to a study's trials. Cached: an unchanged effect keeps a finished trial the same object."""

    def __init__(self) -> None:
        self._measured: tuple[tuple[int, int], ...] = ()
        self._effects: Mapping[str, NodeEffect] = {}
        self._made: dict[int, tuple[Trial, Trial]] = {}

    def level(self, trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
        """Returns ``trials`` with the effects of their nodes (``Trial.node_log``); the same tuple if all ran on one."""
        nodes = {t.node for t in trials if t.node}
        if len(nodes) < 2:
            return trials
        measured = tuple((t.number, t.attempt) for t in trials if _tells(t))
        if measured != self._measured or nodes != set(self._effects):
            self._measured, self._effects, self._made = measured, effects(trials), {}
        return tuple(self.one(t) for t in trials)

    def one(self, trial: Trial) -> Trial:
        """Returns a trial with the latest effect of its node."""
        found = self._effects.get(trial.node)
        if found is None:
            return trial
        before = self._made.get(trial.number)
        if before is None or before[0] is not trial:
            made = trial.with_(node_log=found.log, node_variance=found.variance)
            before = self._made[trial.number] = trial, made
        return before[1]


def levelled(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Returns the trials with the effects of their nodes, without a cache; see ``Levels.level``."""
    return Levels().level(tuple(trials))


def unlike(here: Sequence[Trial], there: Sequence[Trial]) -> float:
    """Returns the variance that uncertain node effects add to the difference of two figures; 0 if all ran on one node.
    Trials outside the cluster have no measured effect, so both sides then count as unmeasured."""
    names = {t.node for t in (*here, *there)}
    if len(names) < 2:
        return 0.0
    if "" in names:
        return 2.0 * NODE_SPREAD**2
    return sum(max((t.node_variance for t in side), default=0.0) for side in (here, there))

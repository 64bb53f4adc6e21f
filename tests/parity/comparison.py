"""How far apart the updates of two configurations are. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Update:
    """What a configuration did in its updates."""

    losses: Array
    """(updates,): the loss of a whole update, over its micro-batches and ranks."""
    gradients: Array
    """(updates, parameters): before clipping."""
    step: Array
    """(parameters,): weights after the last update less those before the first."""

    @classmethod
    def load(cls, path: Path) -> Update:
        with np.load(path) as saved:
            return cls(*(saved[name].astype(np.float64) for name in ("losses", "gradients", "step")))


@dataclass(frozen=True)
class Tolerance:
    """Largest differences at which two updates count as the same; each is the worst over the updates."""

    loss: float
    """Relative, but never finer than the same share of 0.01, because a GRPO loss may be near zero."""
    gradient: float
    """|difference| ÷ |reference|, Euclidean."""
    cosine: float
    """1 - cosine of the gradients."""
    step: float
    """Of the weights' movement, as ``gradient``."""


@dataclass(frozen=True)
class Difference:
    """As ``Tolerance``."""

    loss: float
    gradient: float
    cosine: float
    step: float

    def broken(self, tolerance: Tolerance) -> list[str]:
        """A sentence for each tolerance that does not hold; what is not a number holds none."""
        return [
            f"{name} differs by {value:.2e}, tolerance {limit:.0e}"
            for name, value, limit in (
                ("loss", self.loss, tolerance.loss),
                ("gradient", self.gradient, tolerance.gradient),
                ("direction of the gradient", self.cosine, tolerance.cosine),
                ("step", self.step, tolerance.step),
            )
            if not value <= limit
        ]


LEAST_LOSS = 0.01


def compare(update: Update, reference: Update) -> Difference:
    """Raises ``ValueError`` where there is nothing to compare: other shapes, or a reference that does not move."""
    if update.gradients.shape != reference.gradients.shape or update.losses.shape != reference.losses.shape:
        raise ValueError(f"{update.gradients.shape} beside {reference.gradients.shape}")
    norms = np.linalg.norm(reference.gradients, axis=1)
    if not norms.min() > 0 or not np.linalg.norm(reference.step) > 0:
        raise ValueError("the reference has no gradient, or takes no step")
    scale = np.maximum(np.abs(reference.losses), LEAST_LOSS)
    return Difference(
        loss=_worst(np.abs(update.losses - reference.losses) / scale),
        gradient=_worst(np.linalg.norm(update.gradients - reference.gradients, axis=1) / norms),
        cosine=_worst([1 - _cosine(u, r) for u, r in zip(update.gradients, reference.gradients, strict=True)]),
        step=float(np.linalg.norm(update.step - reference.step) / np.linalg.norm(reference.step)),
    )


def _worst(values: Sequence[float] | Array) -> float:
    return float(np.max(np.asarray(values)))


def _cosine(one: Array, other: Array) -> float:
    return float(one @ other / max(np.linalg.norm(one) * np.linalg.norm(other), np.finfo(np.float64).tiny))

"""Parts of a memory peak, the moments at which it may occur, and the ledger that formulas write bytes to."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import Column


class Part(StrEnum):
    """A summand of the peak."""

    PROCESSES = "processes"
    """Imports, CUDA contexts, and processes that load data or compute rewards."""
    WEIGHTS = "weights"
    """Trained and frozen weights, a reference model, and copies in the precision of the products."""
    GRADIENTS = "gradients"
    """Gradients, and the buckets in which ranks exchange gradients and weights."""
    OPTIMIZER = "optimizer"
    """Optimizer state, and temporaries of its step."""
    ACTIVATIONS = "activations"
    """Activations, attention scores included."""
    LOGITS = "logits"
    GENERATION = "generation"
    """Keys, values and logits of generation by transformers."""
    ROLLOUT = "rollout engine"
    """Weights, cache and buffers of a rollout engine."""
    SYNC = "weight sync"
    """Weights that are whole, and buffers, while trained weights go to the engine."""
    OFFLOADED = "offloaded"
    """State and activations that wait in host memory."""
    ALLOCATOR = "allocator"
    """Gaps between tensors in the memory that an allocator has reserved."""


class Moment(StrEnum):
    """A moment of a cycle at which memory may peak; the largest is the peak."""

    GENERATE = "generate"
    SYNC = "sync"
    """Trained weights go to the engine, whose weights are awake and whose cache may sleep."""
    LOGPROB = "logprob"
    UPDATE = "update"
    """The backward pass begins: activations and logits are there."""
    STEP = "step"
    """The optimizer steps: the activations are gone, and its temporaries are there."""


PARTS, MOMENTS = tuple(Part), tuple(Moment)
PLACE = {part: place for place, part in enumerate(PARTS)}
WHEN = {moment: place for place, moment in enumerate(MOMENTS)}

Matrix = NDArray[np.float64]
"""Bytes by configuration, moment and part; with the pool as a first axis where there are several."""


class Ledger:
    """Bytes of one training rank: in its own memory, and for a GPU also in the host memory of its process."""

    def __init__(self, count: int) -> None:
        self.own: Matrix = np.zeros((count, len(MOMENTS), len(PARTS)))
        self.beside: Matrix = np.zeros_like(self.own)

    def add(self, part: Part, amount: Column | float, *moments: Moment) -> None:
        """Adds bytes of the rank's own memory at ``moments``; at all moments if none is given."""
        self.own[:, [WHEN[moment] for moment in moments or MOMENTS], PLACE[part]] += np.reshape(amount, (-1, 1))

    def add_beside(self, part: Part, amount: Column | float) -> None:
        """Adds bytes of host memory of a GPU's process, at all moments."""
        self.beside[:, :, PLACE[part]] += np.reshape(amount, (-1, 1))

"""What earlier studies measured over their own priors, as observations a new study's model begins with. Pure.

A power prior (Ibrahim and Chen, Statistical Science 15, 2000), with the weight put as a variance: every row of an
earlier study is taken with ``ROW_SD`` of scatter beside its noise, which some three trials of a study's own outweigh.
What its phases take altogether is not carried (``LEVEL_SD``): the first trial tells.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.proposals.forecasts import Column

ROW_SD, ROW_SD_OF_DOUBLING = 0.25, 0.05
"""Standard deviation, in log seconds, between a row there and here; more for each doubling between the studies."""
LEVEL_SD = 2.0
"""Of what a phase takes there altogether, over what it takes here."""
ENOUGH = 40
"""Measured configurations from which a study needs no other's."""
DOUBT = 1.0
"""Log probability by which going without has to be ahead before earlier studies are left aside (natural logarithm)."""


@dataclass(frozen=True)
class Carried:
    """Of one phase; one array element for each different row of each earlier study."""

    own: Mapping[str, Column]
    """By knob, as ``PhaseRows.own``."""
    values: Column
    """Logarithm of measured over prior seconds."""
    noise: Column
    """Variance each value is taken with."""
    study: NDArray[np.intp]
    """Which earlier study it is of: 0, 1, ..."""
    studies: int
    """How many there are."""
    evidence: dict[float, float] = field(default_factory=dict, compare=False)
    """Logarithm of the probability of ``values`` by themselves, by the standard deviation of the constant; filled as it
    is asked for, because it is the same for every fit."""


def row_variance(distance: float) -> float:
    """Beside its noise, of a row carried over so many doublings."""
    return (ROW_SD + ROW_SD_OF_DOUBLING * distance) ** 2

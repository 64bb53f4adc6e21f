"""Student's t, the normal distribution and the derivatives of log gamma, by scipy.

Each function imports scipy when it is called: the import takes longer than a short command.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


NORMAL95 = 1.96
"""Standard deviations to either side that hold 95 % of a normal distribution."""


def t95(degrees: float) -> float:
    """Returns the 97.5 % quantile of Student's t: 12.706 for up to one degree of freedom, 1.960 for infinitely many."""
    return student_quantile(0.975, min(max(1.0, degrees), 1e6))


@functools.lru_cache(maxsize=4096)
def student_quantile(probability: float, degrees: float) -> float:
    """Returns the quantile of Student's t. Raises ``ValueError`` unless 0 < probability < 1 and degrees > 0."""
    from scipy import special

    if not 0.0 < probability < 1.0 or degrees <= 0:
        raise ValueError(f"no quantile {probability} of Student's t with {degrees} degrees of freedom")
    return float(special.stdtrit(degrees, probability))


def digamma(x: float) -> float:
    """Returns the derivative of log gamma, for x > 0."""
    from scipy import special

    return float(special.psi(x))


def trigamma(x: float) -> float:
    """Returns the second derivative of log gamma, for x > 0."""
    from scipy import special

    return float(special.zeta(2.0, x))


def inverse_trigamma(value: float) -> float:
    """Returns the x > 0 whose ``trigamma`` is ``value`` > 0."""
    from scipy import optimize

    # 1 / x < trigamma(x) < 1 / (x - 1/2), and the second is exact to value² / 12 of it.
    low, high = 1.0 / value, 0.5 + 1.0 / value
    return high if value < 1e-5 else float(optimize.brentq(lambda x: trigamma(x) - value, low, high))


def normal_below(values: Array) -> Array:
    """Returns the standard normal distribution function of each value."""
    from scipy import special

    found: Array = special.ndtr(values)
    return found


def normal_hazard(values: Array) -> Array:
    """Returns density over distribution function of the standard normal (the inverse Mills ratio of -x)."""
    from scipy import special

    found: Array = math.sqrt(2.0 / math.pi) / special.erfcx(-values / math.sqrt(2.0))
    return found

"""Student's t, the normal distribution and a fit of variances, by scipy.

Each function imports scipy when it is called: the import takes longer than a short command.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
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


def fit_variances(variances: Sequence[float], degrees: Sequence[float]) -> tuple[float, float] | None:
    """Fits a scaled inverse chi-squared distribution to variances with their degrees; returns its scale and degrees.

    Smyth (2004), section 6.2 (limma's ``fitFDist``). ``None`` if the variances differ no more than by chance.
    """
    import numpy as np
    from scipy import special

    half = np.asarray(degrees) / 2.0
    logs = np.log(variances) - special.psi(half) + np.log(half)
    excess = float(np.var(logs, ddof=1) - special.zeta(2.0, half).mean())
    if excess <= 0.0:
        return None
    found = 0.5 + 1.0 / excess
    for _ in range(30):  # trigamma(found) = excess; 1 / trigamma is nearly a line (limma, trigammaInverse)
        value = special.zeta(2.0, found)
        found += value * (value / excess - 1.0) / (2.0 * special.zeta(3.0, found))
    return math.exp(float(logs.mean() + special.psi(found)) - math.log(found)), 2.0 * found


def normal_density(values: Array) -> Array:
    """Returns the density of the standard normal distribution."""
    import numpy as np

    found: Array = np.exp(-0.5 * np.square(values)) / math.sqrt(2.0 * math.pi)
    return found


def normal_below(values: Array) -> Array:
    """Returns the distribution function of the standard normal distribution."""
    from scipy import special

    found: Array = special.ndtr(values)
    return found


def normal_hazard(values: Array) -> Array:
    """Returns density / distribution function of the standard normal (inverse Mills ratio); about -x far below 0."""
    import numpy as np
    from scipy import special

    found: Array = np.exp(-0.5 * np.square(values) - special.log_ndtr(values)) / math.sqrt(2.0 * math.pi)
    return found

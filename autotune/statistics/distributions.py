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


@functools.lru_cache(maxsize=1)
def _normal_table(per_unit: int, far: int) -> Array:
    """Tabulates the distribution function from ``-far`` on; scipy's import takes longer than all lookups."""
    import numpy as np

    points = range(-far * per_unit, far * per_unit + 2)
    return np.array([0.5 * math.erfc(-point / per_unit / math.sqrt(2.0)) for point in points])


def normal_density(values: Array) -> Array:
    """Returns the density of the standard normal distribution."""
    import numpy as np

    found: Array = np.exp(-0.5 * np.square(values)) / math.sqrt(2.0 * math.pi)
    return found


def normal_below(values: Array, per_unit: int = 400, far: int = 10) -> Array:
    """Returns the standard normal distribution function, exact to 12 digits, by Hermite's interpolation of a table."""
    import numpy as np

    along = (np.clip(np.asarray(values, dtype=np.float64), -far, far) + far) * per_unit
    place = along.astype(np.intp)
    table, t = _normal_table(per_unit, far), along - place
    low, high = (normal_density((place + step) / per_unit - far) / per_unit for step in (0, 1))
    rise = t * t * (3.0 - 2.0 * t) * (table[place + 1] - table[place])
    found: Array = table[place] + rise + t * (1.0 - t) * (low * (1.0 - t) - high * t)
    return found


def normal_hazard(values: Array) -> Array:
    """Returns density over distribution function of the standard normal; about -x far below."""
    import numpy as np

    values = np.asarray(values, dtype=np.float64)
    ratio = away = np.maximum(-values, 4.0)
    for term in range(24, 0, -1):  # Laplace's continued fraction of the inverse Mills ratio
        ratio = away + term / ratio
    near = np.clip(values, -4.0, 38.0)
    return np.where(values < -4.0, ratio, normal_density(near) / normal_below(near))

"""Student's t: the quantiles of two-sided 95 % intervals, and a spread with the degrees of freedom it has."""

from __future__ import annotations

from dataclasses import dataclass

# Two-sided 95 % quantiles of Student's t for 1..30 degrees of freedom (NIST/SEMATECH e-Handbook
# of Statistical Methods, section 1.3.6.7.2); above that the normal quantile is within 2 %.
_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
_NORMAL95 = 1.960


@dataclass(frozen=True)
class Noise:
    """Spread of log tokens/hour between processes of one configuration."""

    sigma: float
    degrees: int

    @property
    def t(self) -> float:
        """Two-sided 95 % quantile."""
        return t95(self.degrees)


def t95(degrees: int) -> float:
    """Student's t, two-sided 95 %."""
    return _T95[max(1, degrees) - 1] if degrees <= len(_T95) else _NORMAL95

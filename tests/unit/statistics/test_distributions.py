"""Quantiles and special functions, against scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from autotune.statistics.distributions import digamma, inverse_trigamma, student_below, student_quantile, t95, trigamma

DEGREES = st.floats(1.0, 500.0)


@given(st.floats(1e-6, 1 - 1e-6), DEGREES)
def test_quantiles_of_students_t(probability: float, degrees: float) -> None:
    assert student_quantile(probability, degrees) == pytest.approx(
        stats.t.ppf(probability, degrees), rel=1e-6, abs=1e-9
    )


@given(st.floats(-50.0, 50.0), DEGREES)
def test_the_share_below_a_value(value: float, degrees: float) -> None:
    assert student_below(value, degrees) == pytest.approx(stats.t.cdf(value, degrees), rel=1e-6, abs=1e-12)


@given(st.floats(0.05, 1e4))
def test_digamma_and_trigamma(x: float) -> None:
    assert digamma(x) == pytest.approx(special.digamma(x), rel=1e-8, abs=1e-8)
    assert trigamma(x) == pytest.approx(special.polygamma(1, x), rel=1e-8)


@given(st.floats(1e-4, 1e4))
def test_the_inverse_of_trigamma(value: float) -> None:
    assert trigamma(inverse_trigamma(value)) == pytest.approx(value, rel=1e-6)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (-0.1, 3), (0.5, 0), (0.5, -2)])
def test_what_has_no_quantile_is_refused(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(probability, degrees)


def test_t_quantiles_fall_towards_the_normal() -> None:
    values = [t95(n) for n in range(1, 80)]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(12.706, abs=5e-4)
    assert t95(math.inf) == pytest.approx(1.960, abs=5e-4)


@pytest.mark.parametrize(("degrees", "quantile"), [(30, 2.042), (31, 2.040), (40, 2.021), (60, 2.000)])
def test_t_quantiles_have_no_step(degrees: int, quantile: float) -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2."""
    assert t95(degrees) == pytest.approx(quantile, abs=5e-4)

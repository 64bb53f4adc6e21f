"""Quantiles and special functions the standard library lacks; scipy is no dependency of the tool."""

from __future__ import annotations

import functools
import math


@functools.lru_cache(maxsize=4096)
def t95(degrees: float) -> float:
    """Student's t, two-sided 95 %: 12.706 with one degree of freedom, or fewer, and 1.960 with infinitely many."""
    return student_quantile(0.975, min(max(1.0, degrees), 1e6))


_SMALL = 1e-300
_FRACTION_STEPS = 500
_ASYMPTOTIC = 8.0
"""Above this argument the first terms of the expansions at infinity are exact to 1e-9."""


def student_quantile(probability: float, degrees: float) -> float:
    """The value Student's t with ``degrees`` > 0 degrees of freedom stays below with ``probability``.

    Raises:
        ValueError: the probability is not between 0 and 1, or there are no degrees of freedom.
    """
    if not 0.0 < probability < 1.0 or degrees <= 0:
        raise ValueError(f"no quantile {probability} of Student's t with {degrees} degrees of freedom")
    if probability < 0.5:
        return -student_quantile(1.0 - probability, degrees)
    low, high = 0.0, 1.0
    while student_below(high, degrees) < probability:
        low, high = high, 2.0 * high
    for _ in range(80):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if student_below(middle, degrees) < probability else (low, middle)
    return 0.5 * (low + high)


def student_below(value: float, degrees: float) -> float:
    """The probability that Student's t is at most ``value``."""
    tail = 0.5 * _beta_share(degrees / (degrees + value * value), 0.5 * degrees, 0.5)
    return 1.0 - tail if value >= 0 else tail


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function (Press et al., Numerical Recipes, section 6.4)."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    logarithm = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    if x < (a + 1.0) / (a + b + 2.0):
        return math.exp(logarithm) * _fraction(x, a, b) / a
    return 1.0 - math.exp(logarithm) * _fraction(1.0 - x, b, a) / b


def _fraction(x: float, a: float, b: float) -> float:
    """The continued fraction of the incomplete beta function, by Lentz's method."""
    c, d = 1.0, 1.0 / _off_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d
    for m in range(1, _FRACTION_STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1.0) * (a + 2 * m))
        d, c = 1.0 / _off_zero(1.0 + even * d), _off_zero(1.0 + even / c)
        value *= d * c
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1.0))
        d, c = 1.0 / _off_zero(1.0 + odd * d), _off_zero(1.0 + odd / c)
        value *= d * c
        if abs(d * c - 1.0) < 1e-14:
            break
    return value


def _off_zero(value: float) -> float:
    return value if abs(value) > _SMALL else _SMALL


@functools.lru_cache(maxsize=1024)  # thousands of trials have the same few degrees of freedom
def digamma(x: float) -> float:
    """Derivative of log gamma, for x > 0."""
    shift = 0.0
    while x < _ASYMPTOTIC:
        shift -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    return shift + math.log(x) - 0.5 / x - y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y / 132))))


@functools.lru_cache(maxsize=1024)  # thousands of trials have the same few degrees of freedom
def trigamma(x: float) -> float:
    """Second derivative of log gamma, for x > 0."""
    shift = 0.0
    while x < _ASYMPTOTIC:
        shift += 1.0 / (x * x)
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1 / 6 - y * (1 / 30 - y * (1 / 42 - y * (1 / 30 - y * 5 / 66))))
    return shift + 1.0 / x + 0.5 * y + series / x


def inverse_trigamma(value: float) -> float:
    """The x > 0 whose ``trigamma`` is ``value`` > 0."""
    low, high = 1e-8, 1.0
    while trigamma(high) > value and high < 1e12:
        low, high = high, 2.0 * high
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if trigamma(middle) > value else (low, middle)
    return 0.5 * (low + high)

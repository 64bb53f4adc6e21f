"""Quantiles and special functions, against closed forms and printed tables."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest

from autotune.statistics.distributions import fit_variances, normal_hazard, student_quantile, t95


def test_variances_drawn_from_a_scaled_inverse_chi_squared_distribution_give_it_back() -> None:
    chance = np.random.default_rng(3)
    true = 0.04 * 9.0 / chance.chisquare(9.0, 4000)
    scale, degrees = fit_variances(true * chance.chisquare(4.0, 4000) / 4.0, [4.0] * 4000) or (0.0, 0.0)
    assert scale == pytest.approx(0.04, rel=0.1)
    assert degrees == pytest.approx(9.0, rel=0.15)
    assert fit_variances([0.01] * 10, [4.0] * 10) is None


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (-0.1, 3), (0.5, 0), (0.5, -2)])
def test_what_has_no_quantile_is_refused(probability: float, degrees: float) -> None:
    with pytest.raises(ValueError, match="no quantile"):
        student_quantile(probability, degrees)


def test_t_quantiles_fall_towards_the_normal() -> None:
    """NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.6.7.2."""
    values = [t95(n) for n in range(1, 80)]
    assert values == sorted(values, reverse=True)
    assert (t95(30), t95(31)) == pytest.approx((2.042, 2.040), abs=5e-4)
    assert values[0] == t95(0.3) == pytest.approx(12.706, abs=5e-4)
    assert t95(math.inf) == pytest.approx(1.960, abs=5e-4)


def test_far_below_the_mean_the_hazard_keeps_its_order() -> None:
    steps = normal_hazard(np.linspace(-60.0, 20.0, 4001))
    assert np.all(np.diff(steps) < 0)
    assert np.all(np.abs(np.diff(steps) + 0.02 * (np.linspace(-60.0, 20.0, 4000) < -30)) < 0.021)
    assert normal_hazard(np.array([-1e4, 1e4])) == pytest.approx([1e4, 0.0])


def test_scipy_is_imported_when_a_function_is_called() -> None:
    code = (
        "import sys\n"
        "import autotune.statistics.evidence, autotune.statistics.early_stopping, autotune.wiring\n"
        "from autotune.statistics.distributions import t95\n"
        "before = 'scipy' in sys.modules\n"
        "t95(3.0)\n"
        "print(before, 'scipy' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["False", "True"]

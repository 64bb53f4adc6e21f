"""The limits of the numerics: what lies within, what outside, and that each sentence holds its figure."""

from __future__ import annotations

import math

import pytest

from trainer.child.contract import FailureReason, Phase, limits
from trainer.child.failures import NotFiniteError, QualityError, classify


def test_the_cosine_is_that_of_noise_at_a_right_angle() -> None:
    """sqrt(3) times the noise, at a right angle to the gradient: the cosine of 30 degrees."""
    assert pytest.approx(math.cos(math.radians(30))) == limits.GRADIENT_COSINE


def test_mismatch() -> None:
    assert limits.mismatch_problem(1.0) is None
    assert limits.mismatch_problem(1.1) is None
    said = limits.mismatch_problem(1.34)
    assert said is not None
    assert "1.34" in said
    assert "1.1 " in said


@pytest.mark.parametrize(
    ("cosine", "ratio", "figure"),
    [
        (0.992, 0.951, None),  # FP8 emulated, the bundled model
        (0.995, 0.991, None),
        (0.95, 0.225, "0.225"),  # a scale of the gradient off by 4: the direction is kept
        (0.73, 1.94, "0.730"),  # a scale of the weights off by 4
        (-0.05, 3.2, "-0.050"),
        (0.99, 1.7, "1.7"),
        (math.nan, math.nan, "not finite"),
        (0.99, math.inf, "not finite"),
    ],
)
def test_gradient(cosine: float, ratio: float, figure: str | None) -> None:
    said = limits.gradient_problem(cosine, ratio)
    assert (said is None) == (figure is None)
    assert figure is None or (said is not None and figure in said)


def test_a_broken_guard_ends_as_quality_with_its_own_words() -> None:
    """Were it a CRASH, the search would learn nothing of the configuration and the user would look for a bug."""
    result = classify(QualityError("the cosine is 0.4, and 0.866 is the limit", Phase.UPDATE), Phase.GENERATE)
    assert (result.ok, result.reason, result.phase) == (False, FailureReason.QUALITY, Phase.UPDATE)
    assert result.message == "the cosine is 0.4, and 0.866 is the limit"
    assert classify(NotFiniteError("not finite", Phase.LOGPROB), None).reason is FailureReason.NAN

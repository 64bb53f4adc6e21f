"""Common parts of all shapes of the JSON.

Units are in the names; times are UTC in ISO 8601; shares are 0 to 1; unknown is ``null``.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Share = Annotated[float, Field(description="0 to 1.")]
Seconds = Annotated[float, Field(description="Seconds.")]
Bytes = Annotated[int, Field(description="Bytes.")]
Rate = Annotated[float, Field(description="Distinct completion tokens per hour, over all GPUs of the trial.")]
Time = Annotated[str, Field(description="UTC, ISO 8601.", examples=["2026-11-20T12:00:00.000Z"])]
Knob = bool | int | float | str


class Shape(BaseModel):
    """Base of all shapes; refuses fields that are not described."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Gain(Shape):
    """Ratio of throughputs minus one, 0.25 is 25 % faster; the interval is two-sided."""

    value: float | None
    low: float | None
    high: float | None
    pairs: int = Field(description="Number of A/B rounds behind the gain; 0: search trials only.")
    cycles: int = Field(description="Timed cycles of the side with fewer.")
    level: float = Field(0.95, description="Confidence level of the interval; 0.999 on several nodes.")

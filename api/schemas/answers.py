"""Shapes of a study's answer."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import Bytes, Gain, Knob, Rate, Shape, Time
from api.schemas.why import Why


class LengthFigure(Shape):
    """Tokens/hour at one distribution of completion lengths."""

    at: str = Field(description="`1x`: the recorded lengths; `2x`: twice those, cut at the maximum; `maximum`.")
    tokens_per_hour: Rate | None = Field(description="`null`: not measured.")
    mean_completion_tokens: float | None
    cycles: int = Field(description="Measured at these lengths.")


class Row(Shape):
    """One configuration with its evidence."""

    title: str
    configuration: dict[str, Knob]
    changes: list[str] = Field(examples=[["micro_batch_size: 2 -> 4"]])
    tokens_per_hour: Rate | None
    tokens_per_hour_low: Rate | None
    tokens_per_hour_high: Rate | None
    gpus: int = Field(description="Held by the trials, a rollout server's included; 0 on a CPU.")
    tokens_per_hour_per_gpu: Rate | None = Field(description="`null` on a CPU.")
    maximum_length_tokens_per_hour: Rate | None
    at_lengths: list[LengthFigure] = Field(description="At the recorded lengths, at twice those, at the maximum.")
    gain: Gain | None = Field(
        description="In the study's objective over the baseline; `null` if this is the reference itself."
    )
    objective: str = Field(description="What the study ranks by: `tokens-per-hour`, or `tokens-per-gpu-hour`.")
    gain_per_hour: Gain | None = Field(description="Of tokens/hour.")
    gain_per_gpu_hour: Gain | None = Field(description="Of tokens per GPU-hour; `null` on a CPU.")
    confirmed: bool
    worst_case_passed: bool
    phase_shares: dict[str, float]
    limit: str = Field(description="What limits it.")
    host_peak_bytes: Bytes | None
    device_peak_bytes: Bytes | None
    headroom_share: float | None = Field(description="1 - peak / limit of the tightest pool.")
    trials: list[int] = Field(description="Numbers of the supporting trials.")


class Recommendation(Shape):
    """Recommendation of a study."""

    study: str
    rows: list[Row] = Field(description="First: same numerics as the baseline. Second: if more may change.")
    baseline: str = Field(description="`ok`, or how it failed.")
    reference: int | None = Field(description="Number of the trial gains are stated over.")
    ended_by: str
    notes: list[str]
    fingerprint: str
    created_at: Time | None


class Answer(Shape):
    """The recommendation, or the best so far."""

    study: str
    source: str = Field(description="`recommendation`, or `best_so_far` where none was given on these trials.")
    recommendation: Recommendation | None = Field(description="`null` while no trial has succeeded.")
    why: Why | None = Field(
        description="What limits it, what each changed knob contributes, and what was ruled out by what, by the trials "
        "that have ended; `null` where nothing is recommended."
    )

"""Shapes of a study's recommendation, of its reasons, and of the files that train with it."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import Bytes, Gain, Knob, Rate, Shape, Time
from autotune.insights.why import RulingCause


class KnobChange(Shape):
    """Change of one knob; `null`: not set."""

    knob: str
    before: Knob | None
    after: Knob | None


class Contribution(Shape):
    """A ratio of throughputs minus one, with its two-sided 95 % interval."""

    gain: float | None
    low: float | None
    high: float | None
    proven: bool = Field(description="The interval excludes 0.")


class KnobShare(Contribution):
    """Contribution of some changes to the gain."""

    changes: list[KnobChange] = Field(description="Several changes if every trial has all or none of them.")
    words: str = Field(examples=["micro_batch_size 4: +42 % (+31 to +54 %)"])


class KnobShares(Shape):
    """Contribution of each changed knob to the gain, by one model of all trials."""

    knobs: list[KnobShare] = Field(description="Largest first; the product of 1 + `gain` is that of `together`.")
    together: Contribution
    elsewhere_share: float | None = Field(description="Gain in phases that no changed knob acts on.")
    trials: int = Field(description="Number of trials that the model is fitted to.")
    words: str = Field(examples=["together +134 % by all 15 trials; no single knob is proven"])


class FailedNeighbour(Shape):
    """A trial that differs from the row in one knob and has no tokens/hour."""

    change: KnobChange = Field(description="Change from the recommended row to the trial.")
    trial: int
    cause: str | None = Field(description="Cause of the failure; `null` if the trial was stopped early.")
    at_least: float | None = Field(description="Least gain of the row over a trial that was stopped early.")


class WhyRow(Shape):
    """Reasons for one row of the recommendation."""

    title: str
    limits: list[str] = Field(description="The row's bottleneck, then further changes that failed in trials.")
    shares: KnobShares | None = Field(description="`null` if the row changes no knob.")
    failed_neighbours: list[FailedNeighbour]


class RuledOut(Shape):
    """A reason why configurations are not recommended."""

    by: RulingCause = Field(strict=False)
    name: str = Field(description="The rule's name, or the cause in a few words.")
    count: int = Field(description="Combinations if `by` is `legality` or `memory`, else trials; causes may overlap.")
    exact: bool = Field(description="False: `count` is an estimate, as the space is too large to enumerate.")
    sentence: str | None
    trials: list[int] = Field(description="Numbers of the trials that showed the cause.")


class Why(Shape):
    """Reasons for the recommendation."""

    rows: list[WhyRow] = Field(description="One for each row of the recommendation, in its order.")
    ruled_out: list[RuledOut]
    combinations: int = Field(description="Number of combinations of the space, legal or not.")
    legal: int
    tried: int = Field(description="Number of combinations that were run.")
    exact: bool = Field(description="`combinations` and `legal` are counts, not estimates.")
    began: list[str] = Field(description="Earlier studies whose trials the search used from the start.")


class LengthFigure(Shape):
    """Tokens/hour at one distribution of completion lengths."""

    at: str = Field(description="`1x`: the recorded lengths; `2x`: twice those, cut at the maximum; `maximum`.")
    tokens_per_hour: Rate | None = Field(description="`null`: not measured.")
    mean_completion_tokens: float | None
    cycles: int = Field(description="Number of cycles measured at these lengths.")


class Row(Shape):
    """One configuration with its evidence."""

    title: str
    configuration: dict[str, Knob]
    changes: list[str] = Field(examples=[["micro_batch_size: 2 -> 4"]])
    tokens_per_hour: Rate | None
    tokens_per_hour_low: Rate | None
    tokens_per_hour_high: Rate | None
    gpus: int = Field(description="GPUs of one trial, including those of a rollout server; 0 on a CPU.")
    tokens_per_hour_per_gpu: Rate | None = Field(description="`null` on a CPU.")
    maximum_length_tokens_per_hour: Rate | None
    at_lengths: list[LengthFigure] = Field(description="At the recorded lengths, at twice those, at the maximum.")
    gain: Gain | None = Field(description="Gain over the baseline in `objective`; `null` for the baseline itself.")
    objective: str = Field(description="Figure that ranks trials: `tokens-per-hour` or `tokens-per-gpu-hour`.")
    gain_per_hour: Gain | None = Field(description="Gain in tokens/hour.")
    gain_per_gpu_hour: Gain | None = Field(description="Gain in tokens per GPU-hour; `null` on a CPU.")
    confirmed: bool
    worst_case_passed: bool
    phase_shares: dict[str, float]
    limit: str = Field(description="A sentence on the bottleneck.")
    host_peak_bytes: Bytes | None
    device_peak_bytes: Bytes | None
    headroom_share: float | None = Field(description="1 - peak / limit, of the memory pool where that is smallest.")
    trials: list[int] = Field(description="Numbers of the supporting trials.")


class Recommendation(Shape):
    """Recommendation of a study."""

    study: str
    rows: list[Row] = Field(description="Row 1 has the baseline's numerics and learning; row 2 may change them.")
    baseline: str = Field(description="`ok`, or the reason why the baseline failed.")
    reference: int | None = Field(description="Number of the trial that gains are relative to.")
    ended_by: str
    notes: list[str]
    fingerprint: str
    created_at: Time | None


class Answer(Shape):
    """The recommendation, or the best so far."""

    study: str
    source: str = Field(description="`recommendation`, or `best_so_far` if these trials have none yet.")
    recommendation: Recommendation | None = Field(description="`null` while no trial has succeeded.")
    why: Why | None = Field(description="Reasons from the finished trials; `null` without a recommendation.")


class File(Shape):
    """One file of an export."""

    name: str = Field(description="Name without a folder.", examples=["grpo.yaml"])
    text: str
    executable: bool


class Command(Shape):
    """The command that trains. `{here}` stands for the folder with the files."""

    argv: list[str]
    folder: str = Field(description="Working directory of the command; empty: any.")
    environment: dict[str, str] = Field(description="Variables to set; `PYTHONPATH` is prepended to the caller's.")


class Export(Shape):
    """All files except the prompts. Interpreter, model and data have their paths on the study's machine."""

    study: str
    row: Row = Field(description="The exported configuration with its evidence.")
    files: list[File]
    command: Command
    seams: dict[str, Knob] = Field(description="Knobs the framework has no key for; the launcher sets them.")
    launcher: str | None = Field(description="A sentence on why the export has a launcher.")
    native: Row | None = Field(description="Best configuration without a launcher, if this one needs a launcher.")
    native_sentence: str | None
    diff: str | None = Field(description="Difference from the user's own configuration file, if any.")
    prompts: str | None = Field(description="File of prompts that the command needs and that is not sent.")
    server: bool = Field(description="True if `server.sh` must start a rollout server first.")

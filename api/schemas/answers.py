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

    changes: list[KnobChange] = Field(description="Several where no trial had one of them without the others.")
    words: str = Field(examples=["micro_batch_size 4: +42 % (+31 to +54 %)"])


class KnobShares(Shape):
    """Contribution of each changed knob to the gain, by one model of all trials."""

    knobs: list[KnobShare] = Field(description="Largest first; 1 + `gain` multiply to that of `together`.")
    together: Contribution
    elsewhere_share: float | None = Field(description="Gain in phases that no changed knob acts on.")
    trials: int = Field(description="That the model rests on.")
    words: str = Field(examples=["together +134 % by all 15 trials; no single knob is proven"])


class FailedNeighbour(Shape):
    """A trial that differs from the row in one knob and has no tokens/hour."""

    change: KnobChange = Field(description="From the answer to that trial.")
    trial: int
    cause: str | None = Field(description="How it failed; `null` if it was stopped because it could not win.")
    at_least: float | None = Field(description="Gain of the answer over a trial that was stopped, at least.")


class WhyRow(Shape):
    """Reasons for one row of the recommendation."""

    title: str
    limits: list[str] = Field(description="What limits it; then which step further a trial could not hold.")
    shares: KnobShares | None = Field(description="`null` where no knob is changed.")
    failed_neighbours: list[FailedNeighbour]


class RuledOut(Shape):
    """A reason why configurations are not recommended."""

    by: RulingCause = Field(strict=False)
    name: str = Field(description="The rule, or the cause in few words.")
    count: int = Field(description="Combinations where `by` is `legality` or `memory`, else trials; they may overlap.")
    exact: bool = Field(description="False: an estimate, because the space is too large to be looked at whole.")
    sentence: str | None
    trials: list[int] = Field(description="Those that showed it.")


class Why(Shape):
    """Reasons for the recommendation."""

    rows: list[WhyRow] = Field(description="One for each row of the recommendation, in its order.")
    ruled_out: list[RuledOut]
    combinations: int = Field(description="Different combinations of the space, legal or not.")
    legal: int
    tried: int = Field(description="Combinations that were run.")
    exact: bool = Field(description="`combinations` and `legal` are counts, not estimates.")
    began: list[str] = Field(description="What the search began with: the earlier studies whose trials it was given.")


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
    gain: Gain | None = Field(description="Over the baseline in the study's objective; `null` for the baseline itself.")
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
    why: Why | None = Field(description="Reasons by the trials that have ended; `null` where nothing is recommended.")


class File(Shape):
    """One file of an export."""

    name: str = Field(description="Without a folder.", examples=["grpo.yaml"])
    text: str
    executable: bool


class Command(Shape):
    """The command that trains. `{here}` stands for the folder with the files."""

    argv: list[str]
    folder: str = Field(description="Where it runs; empty: wherever it is started.")
    environment: dict[str, str] = Field(description="`PYTHONPATH` goes in front of the caller's own.")


class Export(Shape):
    """All files except the prompts. Interpreter, model and data have their paths on the study's machine."""

    study: str
    row: Row = Field(description="What is exported, with its evidence.")
    files: list[File]
    command: Command
    seams: dict[str, Knob] = Field(description="Knobs the framework has no key for; the launcher sets them.")
    launcher: str | None = Field(description="Why there is one, in a sentence.")
    native: Row | None = Field(description="The best that needs no launcher, where this one does.")
    native_sentence: str | None
    diff: str | None = Field(description="Against the user's own configuration, where the study began with one.")
    prompts: str | None = Field(description="File the command needs that is not sent: the study's prompts.")
    server: bool = Field(description="A rollout server has to be started first, by `server.sh`.")

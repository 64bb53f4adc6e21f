"""Why a recommendation is what it is: the same as `autotune best --json` prints under `why`."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import Gain, Knob, Shape
from autotune.insights.ruled_out import RulingCause


class KnobChange(Shape):
    """One knob; `null` is not set."""

    knob: str
    before: Knob | None
    after: Knob | None


class Contrast(Shape):
    """Two measured configurations, and what going from the first to the second gave."""

    changes: list[KnobChange]
    gain: Gain
    before_trials: list[int]
    after_trials: list[int]
    phase_shares: dict[str, float | None] = Field(
        description="By phase, the change of its time for a token as a share of the first one's whole time for a token."
    )


class Fate(Shape):
    """A trial one knob away that has no figure."""

    change: KnobChange = Field(description="From the answer to that trial.")
    trial: int
    cause: str | None = Field(description="How it failed; `null` if it was stopped because it could not win.")
    at_least: float | None = Field(description="Gain of the answer over a trial that was stopped, at least.")


class KnobReason(Shape):
    """What is known of one knob's value in the answer."""

    knob: str
    value: Knob | None
    changed: bool = Field(description="It differs from the configuration gains are stated over.")
    contrasts: list[Contrast] = Field(description="Towards the answer, from configurations that differ in it alone.")
    together: Contrast | None = Field(
        description="Where there is no such step from the reference's value: the step with that of few more knobs."
    )
    elsewhere: list[Contrast] = Field(description="The same step between two other configurations.")
    fates: list[Fate]
    words: list[str] = Field(
        description="The same in sentences.",
        examples=[["micro_batch_size 2 -> 4: +42.0 % (95 % interval +39.0 % to +45.0 %), #0 -> #7"]],
    )


class WhyRow(Shape):
    """Of one row of the recommendation."""

    title: str
    limits: list[str] = Field(description="What limits it; then which step further a trial could not hold.")
    knobs: list[KnobReason] = Field(description="What was changed first, then what gave most.")


class RuledOut(Shape):
    """One reason why something is not the answer."""

    by: RulingCause = Field(strict=False)
    name: str = Field(description="The rule, or the cause in few words.")
    count: int = Field(description="Combinations where `by` is `legality` or `memory`, else trials; they may overlap.")
    exact: bool = Field(description="False: an estimate, because the space is too large to be looked at whole.")
    sentence: str | None
    trials: list[int] = Field(description="Those that showed it.")


class Why(Shape):
    """Why the recommendation is what it is."""

    rows: list[WhyRow] = Field(description="One for each row of the recommendation, in its order.")
    ruled_out: list[RuledOut]
    combinations: int = Field(description="Different combinations of the space, legal or not.")
    legal: int
    tried: int = Field(description="Combinations that were run.")
    exact: bool = Field(description="`combinations` and `legal` are counts, not estimates.")
    began: list[str] = Field(description="What the search began with: the earlier studies whose trials it was given.")

"""Shapes of the reasons for a recommendation: `why` of `autotune best --json`."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import Knob, Shape
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
    elsewhere_share: float | None = Field(
        description="Ratio minus one of what changed in phases that no changed knob acts on; in no share."
    )
    trials: int = Field(description="That the model rests on.")
    words: str = Field(examples=["together +134 % by all 15 trials; no single knob is proven"])


class FailedNeighbour(Shape):
    """A trial that differs in one knob and has no figure."""

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
    """A reason why configurations are not the answer."""

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

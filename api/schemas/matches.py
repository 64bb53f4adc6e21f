"""Which studies are near to what was asked for, and what they answer; or what is predicted, where none answers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.answers import Neighbour, Recommendation, Row
from api.schemas.base import Shape
from api.schemas.plans import Accuracy, Load, Machine, Prediction
from api.schemas.studies import Study


class Difference(Shape):
    """In what a study is not what was asked for."""

    name: str
    wanted: str | int | float
    study: str | int | float | None
    distance: float = Field(description="A factor of 2 in a number is 1.")
    sentence: str = Field(examples=["gpus 1 instead of 8: 3 doublings"])


class Item(Shape):
    """A study, how far it is from what was asked for, and its answer."""

    match: Literal["exact", "nearest"] = Field(description="`exact`: nothing that was asked for differs.")
    distance: float = Field(description="Sum over the differences; 0 where nothing differs.")
    differences: list[Difference] = Field(description="Largest first.")
    study: Study
    source: str
    row: Row = Field(description="What to train with: within `max_memory_bytes`, where that was given.")
    recommendation: Recommendation = Field(description="All the study hands back, whatever its memory.")
    neighbours: list[Neighbour] = Field(description="Of the row's configuration; the 50 with the largest gain.")


class PredictedItem(Shape):
    """What the models expect of what was asked for; nothing of it was run."""

    match: Literal["predicted"]
    distance: float | None = Field(
        description="Of the nearest study here, which has no answer to this; `null`: there is no study."
    )
    differences: list[Difference] = Field(description="Of that study; largest first.")
    accuracy: Accuracy
    presumed: list[str] = Field(description="What was not said or is not known, in sentences.")
    load: Load
    machine: Machine
    best: list[Prediction] = Field(description="With the same learning as the framework's defaults; best first.")
    permitted: Prediction | None = Field(description="The best that rounds or learns differently, if it is better.")
    framework_defaults: Prediction
    likely_to_fit: int = Field(description="Combinations that are; of `looked_at`.")
    looked_at: int


class Matches(Shape):
    """Measured items, nearest first; or one predicted item, never both."""

    items: list[Annotated[Item | PredictedItem, Field(discriminator="match")]]
    next_cursor: str | None = Field(description="For `cursor` of the next page; `null` at the end.")
    reason: str = Field(description="Why these, or why none, in a sentence.")

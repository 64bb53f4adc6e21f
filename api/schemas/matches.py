"""Shapes of studies similar to a query with their recommendations, or of a prediction if none has one.

Intervals of predictions are 95 % ones.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from api.schemas.answers import KnobShares, Recommendation, Row
from api.schemas.base import Bytes, Knob, Rate, Seconds, Shape
from api.schemas.studies import Study
from api.schemas.trials import Change


class Difference(Shape):
    """A property in which a study differs from the query."""

    name: str
    wanted: str | int | float
    study: str | int | float | None
    distance: float = Field(description="A factor of 2 in a number is 1.")
    sentence: str = Field(examples=["gpus 1 instead of 8: 3 doublings"])


class Item(Shape):
    """A study, its distance from the query, and its recommendation."""

    match: Literal["exact", "nearest"] = Field(description="`exact`: nothing that was asked for differs.")
    distance: float = Field(description="Sum over the differences; 0 where nothing differs.")
    differences: list[Difference] = Field(description="Largest first.")
    study: Study
    source: str
    row: Row = Field(description="What to train with: within `max_memory_bytes`, where that was given.")
    recommendation: Recommendation = Field(description="All the study hands back, whatever its memory.")
    shares: KnobShares | None = Field(description="Of the row's changes; `null` where there is none.")


class Accuracy(Shape):
    """Accuracy of predictions for this kind of GPU, measured on trials recorded here."""

    sentence: str = Field(examples=["not yet compared with a recorded table on this GPU"])
    recorded_trials: int = Field(description="Configurations compared; 0: none.")


class Load(Shape):
    """The training that a prediction is for."""

    model: str
    family: str
    parameters: int
    active_parameters: int = Field(description="Those a token goes through.")
    framework: str
    rows_per_update: int
    num_generations: int
    max_prompt_tokens: int
    max_completion_tokens: int
    mean_completion_tokens: float = Field(description="Presumed.")
    lora_rank: int | None


class Machine(Shape):
    """GPUs of one kind."""

    gpu: str
    gpu_memory_bytes: Bytes = Field(description="Of one, as far as it may be used.")
    gpus: int = Field(description="Of each node.")
    nodes: int


class Prediction(Shape):
    """A configuration with its forecast."""

    predicted: Literal[True]
    configuration: dict[str, Knob]
    changes: dict[str, Change] = Field(description="Knobs that differ from the framework's defaults.")
    tokens_per_hour: Rate
    tokens_per_hour_low: Rate
    tokens_per_hour_high: Rate
    cycle_seconds: Seconds
    phase_seconds: dict[str, float]
    peak_bytes: float = Field(description="Bytes of the fullest GPU at the worst case; median.")
    peak_bytes_low: float
    peak_bytes_high: float
    peak_moment: str = Field(description="When that peak is: generate, sync, logprob, update or step.")
    parts_bytes: dict[str, float] = Field(description="Of that peak.")
    capacity_bytes: Bytes
    host_bytes_of_a_node: float
    fits_probability: float = Field(description="That the peak stays below the GPU's memory.")
    limit: str


class PredictedItem(Shape):
    """Forecast for the query by the models; nothing was run."""

    match: Literal["predicted"]
    distance: float | None = Field(description="Distance of the nearest study here; `null` without any study.")
    differences: list[Difference] = Field(description="Of that study; largest first.")
    accuracy: Accuracy
    presumed: list[str] = Field(description="What was not said or is not known, in sentences.")
    load: Load
    machine: Machine
    best: list[Prediction] = Field(description="With the same numerics as the framework's defaults; best first.")
    permitted: Prediction | None = Field(description="The best that rounds or learns differently, if it is better.")
    framework_defaults: Prediction
    likely_to_fit: int = Field(description="Combinations that are; of `looked_at`.")
    looked_at: int


class Matches(Shape):
    """Measured items, nearest first; or one predicted item, never both."""

    items: list[Annotated[Item | PredictedItem, Field(discriminator="match")]]
    far: list[Item] = Field(description="Items of another kind of device or size of model; do not take them over.")
    next_cursor: str | None = Field(description="For `cursor` of the next page; `null` at the end.")
    reason: str = Field(description="Why these, or why none, in a sentence.")

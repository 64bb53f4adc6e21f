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
    distance: float = Field(description="Distance of this property; 1 for a factor of 2 in a number.")
    sentence: str = Field(examples=["gpus 1 instead of 8: 3 doublings"])


class Item(Shape):
    """A study, its distance from the query, and its recommendation."""

    match: Literal["exact", "nearest"] = Field(description="`exact`: no requested property differs.")
    distance: float = Field(description="Sum over the differences; 0 without any.")
    differences: list[Difference] = Field(description="Largest first.")
    study: Study
    source: str
    row: Row = Field(description="The configuration to train with; within `max_memory_bytes`, if given.")
    recommendation: Recommendation = Field(description="The whole recommendation, whatever its memory.")
    shares: KnobShares | None = Field(description="Shares of the row's changes in the gain; `null` without any.")


class Accuracy(Shape):
    """Accuracy of predictions for this kind of GPU, measured on trials recorded here."""

    sentence: str = Field(examples=["not yet compared with a recorded table on this GPU"])
    recorded_trials: int = Field(description="Number of configurations compared.")


class Load(Shape):
    """The training that a prediction is for."""

    model: str
    family: str
    parameters: int
    active_parameters: int = Field(description="Parameters that are active for one token.")
    framework: str
    rows_per_update: int
    num_generations: int
    max_prompt_tokens: int
    max_completion_tokens: int
    mean_completion_tokens: float = Field(description="Assumed mean completion length, in tokens.")
    lora_rank: int | None


class Machine(Shape):
    """GPUs of one kind."""

    gpu: str
    gpu_memory_bytes: Bytes = Field(description="Usable memory of one GPU, in bytes.")
    gpus: int = Field(description="GPUs of each node.")
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
    peak_bytes: float = Field(description="Median prediction of the fullest GPU's bytes in the worst case.")
    peak_bytes_low: float
    peak_bytes_high: float
    peak_moment: str = Field(description="Moment of the peak: generate, sync, logprob, update or step.")
    parts_bytes: dict[str, float] = Field(description="Parts of the peak, in bytes by name.")
    capacity_bytes: Bytes
    host_bytes_of_a_node: float
    fits_probability: float = Field(description="Probability that the peak stays below the GPU's memory.")
    limit: str


class PredictedItem(Shape):
    """Forecast for the query by the models; nothing was run."""

    match: Literal["predicted"]
    distance: float | None = Field(description="Distance of the nearest stored study; `null` without any study.")
    differences: list[Difference] = Field(description="Differences of the nearest study; largest first.")
    accuracy: Accuracy
    presumed: list[str] = Field(description="A sentence for each assumption about a property that was not given.")
    load: Load
    machine: Machine
    best: list[Prediction] = Field(description="Configurations with the defaults' numerics; best first.")
    permitted: Prediction | None = Field(description="Best configuration with other numerics or learning, if faster.")
    framework_defaults: Prediction
    likely_to_fit: int = Field(description="Number of the `looked_at` configurations that probably fit.")
    looked_at: int


class Matches(Shape):
    """Measured items, nearest first; or one predicted item, never both."""

    items: list[Annotated[Item | PredictedItem, Field(discriminator="match")]]
    far: list[Item] = Field(description="Items of another kind of device or another model size; do not use them.")
    next_cursor: str | None = Field(description="`cursor` of the next page; `null` on the last page.")
    reason: str = Field(description="A sentence on why these items, or none, are listed.")

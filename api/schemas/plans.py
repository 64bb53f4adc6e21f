"""What is predicted of a training nobody ran; intervals are 95 % ones."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.schemas.base import Bytes, Knob, Rate, Seconds, Shape
from api.schemas.trials import Change


class Accuracy(Shape):
    """How predictions like these compared with trials recorded here on such a GPU."""

    sentence: str = Field(examples=["not yet compared with a recorded table on this GPU"])
    recorded_trials: int = Field(description="Configurations compared; 0: none.")


class Load(Shape):
    """The training predicted for."""

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
    """One configuration with what is expected of it."""

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

"""Assumed seconds until a process has timed its first cycle, by the components that it has to start. Pure."""

from __future__ import annotations

from autotune.domain import Configuration
from autotune.proposals.forecasts import Task
from search_spaces.knobs import defaults
from search_spaces.knobs.build import ENGINES

BASE_S = {"cpu": 8.0, "cuda": 20.0}
"""Seconds for interpreter, imports and model; presumed."""
ENGINE_S = {"cpu": 8.0, "cuda": 45.0}
"""Seconds of vLLM's start; performance figures for an 8B model on an H100 are 44 to 101 s with compilation."""
SERVER_S = 20.0
COMPILED_S = {"cpu": 46.0, "cuda": 25.0}
"""Seconds of vLLM's compilation and graphs."""
TRAINER_COMPILES_S = 90.0
SHARDED_S = 10.0
NODES_S = 10.0
"""Seconds until the launchers of several nodes have met; presumed."""
WARM_UP = 1.5
"""Duration of the warm-up as a multiple of a cycle's."""


def first_cycle_s(task: Task, configuration: Configuration, cycle_s: float) -> float:
    """Returns the assumed seconds until the first timed cycle; a cycle takes ``cycle_s``."""
    own, device = task.resources, "cpu" if task.resources.device == "cpu" else "cuda"
    values = {**defaults(own.framework, own.device), **configuration}
    engine = values.get("rollout_engine") in ENGINES
    sharded = values.get("zero_stage") in (1, 2, 3) or values.get("fsdp") in ("fsdp1", "fsdp2")
    needed = (
        (ENGINE_S[device], engine),
        (SERVER_S, engine and values.get("rollout_mode") == "server"),
        (COMPILED_S[device], engine and values.get("enforce_eager") is not True),
        (TRAINER_COMPILES_S, values.get("torch_compile") is True),
        (SHARDED_S, sharded),
        (NODES_S, own.nodes > 1),
    )
    start_s = BASE_S[device] + sum(seconds for seconds, is_needed in needed if is_needed)
    return start_s + WARM_UP * cycle_s

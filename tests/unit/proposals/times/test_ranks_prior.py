"""What ranks send each other: how the prior's seconds must move with ZeRO's stage, micro-batches, types and device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.domain import Configuration
from autotune.machine.data_sheets import Hardware
from autotune.proposals.forecasts import Task
from autotune.proposals.times import SHEETS, PhaseTimes
from autotune.proposals.times.roofline import SEEN
from search_spaces.configuration import ModelFacts, Resources
from tests.support.predicted_cycles import predicted

SMALL = ModelFacts(14_060_256, 12, 224, 4, 2, 32_768, 256)
LLAMA_8B = ModelFacts(8_030_261_248, 32, 4096, 32, 8, 128_256, 131_072)
ROWS = 8
SLOW_BF16 = Hardware("cpu", {"fp32": 1.4e11, "bf16": 1.3e9}, 3e10, 3e-6)
"""A CPU without instructions for bf16, as one was measured."""


def two_ranks() -> Task:
    held = Resources(cpu_cores=2, cpu_ranks=2, rows_per_update=ROWS, num_generations=2, model=SMALL)
    return Task(held, ROWS, 16, 32, lengths=(4, 8, 13, 18, 14, 2, 6, 4))


def on_gpus(model: ModelFacts = LLAMA_8B) -> Task:
    held = Resources(gpus=8, device="cuda", rows_per_update=64, num_generations=8, model=model)
    return Task(held, 64, 256, 1024, lengths=(300,) * 60 + (1024,) * 4)


def cpu(stage: int, micro: int = 4, **knobs: Any) -> Configuration:
    return made(ROWS // 2 // micro, stage, micro, **{"precision": "fp32", **knobs})


def gpu(stage: int, micro: int = 2, **knobs: Any) -> Configuration:
    return made(64 // 8 // micro, stage, micro, **{"precision": "bf16", **knobs})


def made(batches: int, stage: int, micro: int, **knobs: Any) -> Configuration:
    fixed = {
        "micro_batch_size": micro,
        "gradient_accumulation_steps": batches,
        "steps_per_generation": batches,
        "num_generations": 2,
        "master_weights": "fp32",
        "gradient_checkpointing": False,
        "rollout_engine": "transformers",
        "zero_stage": stage,
    }
    return Configuration({**fixed, **knobs})


def phases(task: Task, configuration: Configuration, hardware: Hardware | None = None) -> dict[str, float]:
    found = PhaseTimes(hardware).fitted(task, ()).forecast([configuration]).phases
    return {name: float(column[0]) for name, column in found.items()}


def test_a_small_model_is_gathered_once_a_micro_batch_and_a_large_one_twice() -> None:
    sheet = SHEETS["H100"]
    slow = replace(sheet, link=1e9)
    for model, times in ((replace(LLAMA_8B, parameters=400_000_000), 1), (LLAMA_8B, 2)):
        task = on_gpus(model)
        more, less = (phases(task, gpu(3), h)["update"] for h in (slow, sheet))
        weights = float(model.parameters or 0)
        # Four micro-batches: weights to gather for each, gradients to scatter for each, all in bf16.
        moved = SEEN * 4 * (times + 1) * 2.0 * weights * 7 / 8
        assert more - less == pytest.approx(moved / slow.link - moved / sheet.link, rel=1e-6)


def test_gpus_hide_no_more_of_ddp_than_of_zero() -> None:
    """Both overlap there, and neither was measured: with one micro-batch as much is sent, so it takes as long."""
    task = on_gpus()
    slow = replace(SHEETS["H100"], link=1e9)
    wire = {}
    for stage in (0, 1, 2):
        one = gpu(stage, 8, reduce_precision="bf16")
        wire[stage] = phases(task, one, slow)["update"] - phases(task, one, SHEETS["H100"])["update"]
    assert wire[1] == pytest.approx(wire[0], rel=1e-6)
    assert wire[2] == pytest.approx(wire[0], rel=1e-6)


def test_deepspeed_trains_in_the_lower_type_without_casting() -> None:
    task = on_gpus()
    assert phases(task, gpu(1))["generate"] < phases(task, gpu(0))["generate"]
    wide: dict[str, Any] = {"precision": "fp32"}
    assert phases(task, gpu(1, **wide))["generate"] == pytest.approx(phases(task, gpu(0, **wide))["generate"])


def test_waiting_is_of_the_type_that_is_computed_in() -> None:
    """A CPU that takes a hundred times as long in bf16 makes nobody wait who trains in fp32."""
    task = two_ranks()
    fast = replace(SLOW_BF16, flops={"fp32": 1.4e11, "bf16": 1.4e11})
    assert phases(task, cpu(0), SLOW_BF16)["wait"] == pytest.approx(phases(task, cpu(0), fast)["wait"])
    low: dict[str, Any] = {"precision": "bf16"}
    assert phases(task, cpu(0, **low), SLOW_BF16)["wait"] > 10 * phases(task, cpu(0, **low), fast)["wait"]


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_slower_wire_never_makes_a_cycle_shorter(stage: int) -> None:
    task = on_gpus()
    slow = replace(SHEETS["H100"], link=1e9)
    assert predicted(task, slow, gpu(stage)).seconds > predicted(task, SHEETS["H100"], gpu(stage)).seconds

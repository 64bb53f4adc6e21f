"""The prior by phase: one published figure, and how it must move with the batch, the lengths and the device."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import Configuration
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.reading import Columns
from autotune.proposals.times import SHEETS, PhaseTimes
from autotune.proposals.times.features import OF_BATCH, batch_facts, facts_of
from autotune.proposals.times.lengths import heavy_tailed
from search_spaces.configuration import ModelFacts, Resources
from tests.support import timed_machine as made
from tests.support.predicted_cycles import predicted

LLAMA_8B = ModelFacts(8_030_261_248, 32, 4096, 32, 8, 128_256, 131_072)
ROWS, MEAN, LIMIT, PROMPT = 2048, 1019, 4096, 127
MEASURED_S = 92.8
"""NeMo-RL's performance page: Llama 8B, 16 H100, 2048 samples a step of 1019 tokens, 4096 at most, synchronous."""


def gpus(gpus: int = 8, nodes: int = 1, model: ModelFacts = LLAMA_8B, rows: int = ROWS, **changes: Any) -> Task:
    held = Resources(gpus=gpus, nodes=nodes, device="cuda", rows_per_update=rows, num_generations=8, model=model)
    base = Task(held, rows, 2 * PROMPT, LIMIT, {"beta": 0.01}, None, heavy_tailed(256, LIMIT, MEAN), float(PROMPT))
    return replace(base, **changes)


def on_gpus(ranks: int, rows: int = ROWS, micro: int = 2, **knobs: Any) -> Configuration:
    batches = rows // ranks // micro
    return Configuration(
        {
            "micro_batch_size": micro,
            "gradient_accumulation_steps": batches,
            "steps_per_generation": batches,
            "num_generations": 8,
            "precision": "bf16",
            "master_weights": "fp32",
            "gradient_checkpointing": False,
            "rollout_engine": "vllm",
            "rollout_mode": "colocate",
            "enforce_eager": False,
            **knobs,
        }
    )


def test_the_published_step_is_met_within_a_quarter() -> None:
    """One point, on which the efficiencies were chosen: a regression test of the formulas, no validation."""
    about = gpus(nodes=2)
    packed = replace(about, resources=replace(about.resources, framework="verl"))
    found = predicted(packed, SHEETS["H100"], on_gpus(16, remove_padding=True, tensor_parallel_size=1))
    assert abs(math.log(found.seconds / MEASURED_S)) < math.log(1.25)
    assert found.low < MEASURED_S < found.high
    assert math.isclose(sum(found.phases.values()), found.seconds)
    assert found.phases["generate"] > found.phases["logprob"]
    tokens = found.tokens_per_hour * found.seconds / 3600.0
    assert tokens == pytest.approx(ROWS * MEAN, rel=0.02)
    padded = predicted(about, SHEETS["H100"], on_gpus(16))
    assert padded.phases["update"] > 2 * found.phases["update"], "rows padded to the longest of 2048"


@pytest.mark.parametrize("name", sorted(SHEETS))
def test_more_work_takes_longer_on_every_device(name: str) -> None:
    few = gpus(rows=256)
    base = predicted(few, SHEETS[name], on_gpus(8, 256))
    assert 0 < base.low < base.seconds < base.high
    longer = replace(few, lengths=tuple(min(LIMIT, 2 * n) for n in few.lengths))
    more = gpus(rows=512)
    larger = replace(LLAMA_8B, parameters=2 * 8_030_261_248)
    for other in (
        predicted(longer, SHEETS[name], on_gpus(8, 256)),
        predicted(more, SHEETS[name], on_gpus(8, 512)),
        predicted(gpus(rows=256, model=larger), SHEETS[name], on_gpus(8, 256)),
        predicted(few, SHEETS[name], on_gpus(8, 256, gradient_checkpointing=True)),
        predicted(few, SHEETS[name], on_gpus(8, 256, enforce_eager=True)),
        predicted(few, SHEETS[name], on_gpus(8, 256, rollout_engine="transformers")),
    ):
        assert other.seconds > base.seconds


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.integers(1, 128), min_size=8, max_size=8),
    st.integers(0, 7),
    st.integers(1, 64),
    st.sampled_from(made.configurations()),
)
def test_a_longer_row_never_takes_less_time(
    lengths: list[int], row: int, by: int, configuration: Configuration
) -> None:
    longer = [n + by if i == row else n for i, n in enumerate(lengths)]
    model = PhaseTimes(made.CPU)
    one, other = (
        model.fitted(made.task(lengths=tuple(some)), ()).forecast([configuration]) for some in (lengths, longer)
    )
    assert other.log_seconds[0] >= one.log_seconds[0] - 1e-9
    for phase in one.phases:
        assert other.phases[phase][0] >= one.phases[phase][0] - 1e-9, phase


def seconds(configuration: Configuration, about: Task | None = None) -> dict[str, float]:
    return dict(predicted(about or made.task(), made.CPU, configuration).phases)


def plain(**knobs: Any) -> Configuration:
    return next(iter(made.configurations())).with_(**{"rollout_engine": "transformers", **knobs})


def test_which_phases_occur() -> None:
    """TRL's rule: log-probs are computed again where generation and update may differ, and for the reference."""
    assert seconds(plain())["logprob"] == seconds(plain())["sync"] == 0.0
    beside = seconds(plain(rollout_engine="vllm"))
    assert beside["logprob"] > 0
    assert beside["sync"] > 0
    uncorrected = made.task(passthrough={"vllm_importance_sampling_correction": False})
    assert seconds(plain(rollout_engine="vllm"), uncorrected)["logprob"] == 0.0
    reference = made.task(passthrough={"beta": 0.04})
    assert seconds(plain(), reference)["logprob"] == pytest.approx(beside["logprob"])
    assert seconds(plain(rollout_engine="vllm"), reference)["logprob"] == pytest.approx(2 * beside["logprob"])
    assert beside["wait"] == 0.0


def test_each_knob_moves_its_own_phases() -> None:
    base, saved = seconds(plain()), seconds(plain(gradient_checkpointing=False))
    assert 1.0 < base["update"] / saved["update"] <= 8 / 6 + 1e-9
    assert {p for p in base if base[p] != saved[p]} == {"update"}
    small = seconds(plain(micro_batch_size=8, gradient_accumulation_steps=1, steps_per_generation=1))
    assert small["update"] < base["update"]
    assert small["generate"] == pytest.approx(base["generate"]), "rows of a generation are the same"
    split = seconds(plain(steps_per_generation=1))
    assert split["generate"] > base["generate"], "eight generations of one row each"
    assert base["update"] > seconds(plain(optimizer="adamw_8bit"))["update"]
    assert base["update"] < seconds(plain(logprob_token_chunk=16))["update"], "tiles of few tokens read the head often"


def test_a_split_of_gpus_gives_the_engine_its_own() -> None:
    about = gpus(rows=512, gpus=8)
    served = on_gpus(
        6, 504, rollout_mode="server", rollout_gpus=2, rollout_data_parallel_size=2, gradient_accumulation_steps=42
    )
    both, apart = (predicted(about, SHEETS["L20"], c) for c in (on_gpus(8, 512), served))
    assert apart.phases["generate"] > both.phases["generate"], "two engines instead of eight"
    assert apart.phases["update"] > both.phases["update"], "six ranks instead of eight"
    fewer = predicted(about, SHEETS["L20"], served.with_(rollout_data_parallel_size=1))
    assert fewer.phases["generate"] > apart.phases["generate"]


def test_iterations_serve_one_generation() -> None:
    once, twice = made.task(), made.task(passthrough={"num_iterations": 2})
    a, b = seconds(plain(), once), seconds(plain(), twice)
    assert b["generate"] == pytest.approx(a["generate"])
    assert b["update"] == pytest.approx(2 * a["update"], rel=0.01)


def test_every_sheet_foretells_something_of_this_world() -> None:
    for name, sheet in SHEETS.items():
        found = predicted(gpus(rows=512), sheet, on_gpus(8, 512))
        assert 5.0 < found.seconds < 3600.0, name


class Watched(dict[str, Any]):
    """A configuration that remembers what was asked of it."""

    def __init__(self, values: Any) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, name: str, otherwise: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, otherwise)


def test_every_knob_the_batch_follows_from_is_listed() -> None:
    """It is computed once for configurations that agree on ``OF_BATCH``."""
    for device in (made.task(), gpus()):
        for configuration in (plain(), plain(rollout_engine="vllm", rollout_mode="server", rollout_gpus=1)):
            for training in ({}, {"training_engine": "megatron"}):
                watched = Watched({**configuration, **training})
                batch_facts(device, watched)
                assert watched.asked <= set(OF_BATCH)
                assert watched.asked


def facts(task: Task, *asked: Any) -> dict[str, Column]:
    c = Columns(tuple(Configuration(values) for values in asked), task.resources.framework, task.resources.device)
    return facts_of(task, c)


def test_the_engines_own_log_probs_save_the_pass_that_computes_them() -> None:
    for beta, passes in ((None, (1.0, 0.0)), (0.04, (2.0, 1.0))):
        task = made.task(passthrough={} if beta is None else {"beta": beta})
        asked = [plain(rollout_engine="vllm", engine_logprobs=reused) for reused in (False, True)]
        assert tuple(facts(task, *asked)["logprob_passes"]) == passes


def test_facts_of_many_are_those_of_each_alone() -> None:
    """Whatever the others say: values are worked on once for all configurations that share them."""
    changes: list[dict[str, Any]] = [
        {}, {"zero_stage": 3}, {"precision": "fp32"}, {"master_weights": "bf16"}, {"micro_batch_size": 1},
        {"num_generations": 2}, {"gradient_checkpointing": True}, {"logprob_rows": 1}, {"optimizer": "adafactor"},
        {"rollout_engine": "vllm"}, {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1},
        {"rollout_engine": "vllm", "tensor_parallel_size": 2}, {"rollout_engine": "vllm", "max_num_seqs": 4},
        {"rollout_engine": "vllm", "rollout_mode": "colocate", "sleep_level": 2}, {"optimizer": "lion_8bit"},
        {"rollout_engine": "vllm", "kv_cache_dtype": "fp8"}, {"continuous_batching": True}, {"remove_padding": True},
        {"rollout_engine": "vllm", "enforce_eager": True}, {"offload_optimizer": "cpu"}, {"fsdp": "fsdp2"},
    ]  # fmt: skip
    for task in (made.task(), gpus()):
        asked = [{**plain(), **change} for change in changes]
        together = facts(task, *asked)
        for place, values in enumerate(asked):
            assert {n: c[place] for n, c in together.items()} == {n: c[0] for n, c in facts(task, values).items()}
        assert sum(len(set(column)) > 1 for column in together.values()) > 15


@pytest.mark.parametrize(
    ("framework", "keys", "adapters"),
    [
        ("trl", {}, False),
        ("trl", {"use_peft": True}, True),
        ("ms_swift", {}, True),
        ("ms_swift", {"tuner_type": "full"}, False),
    ],
)
def test_adapters_are_known_by_what_the_framework_does_unless_told(
    framework: str, keys: dict[str, Any], adapters: bool
) -> None:
    about = gpus()
    task = replace(about, passthrough=keys, resources=replace(about.resources, framework=framework))
    found = float(facts(task, on_gpus(8))["trainable"][0])
    assert (found < 0.01) is adapters
    assert adapters or found == 1.0


def test_larger_adapters_take_longer_to_update() -> None:
    def seconds(**keys: Any) -> float:
        task = replace(gpus(), passthrough={"use_peft": True, **keys})
        return float(predicted(task, SHEETS["H100"], on_gpus(8)).phases["update"])

    assert seconds(lora_r=8) < seconds(lora_r=512, lora_target_modules="all-linear") < seconds(use_peft=False)

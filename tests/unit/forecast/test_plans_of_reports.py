"""What ``plan`` says of runs that people reported: of those that ran out of memory, and of those that held.

Each file of ``tests/fixtures/cases/plan`` is one public report or example: model, GPUs, lengths, knobs and the outcome.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from autotune.domain import Configuration
from autotune.forecast.answer import Machine, Predicted
from autotune.forecast.architecture import architecture
from autotune.forecast.gpus import gpu_of
from autotune.forecast.question import OF_MEGATRON, PlanRequest, Question
from autotune.forecast.with_models import forecasts_for
from search_spaces.space import SearchSpace
from tests.support.published_models import PUBLISHED, QWEN3_30B_A3B, family

REPORTS = sorted((Path(__file__).parents[2] / "fixtures" / "cases" / "plan").glob("*.yaml"))
MODELS: dict[str, dict[str, Any]] = {
    **{name.lower(): config for name, (config, _) in PUBLISHED.items()},
    "qwen2.5-14b": family("qwen2", (5120, 13824, 48, 40, 8, 152064), tie_word_embeddings=False),
    "qwen2.5-72b": family("qwen2", (8192, 29568, 80, 64, 8, 152064), tie_word_embeddings=False),
    "qwen3-0.6b": family("qwen3", (1024, 3072, 28, 16, 8, 151936), head_dim=128, tie_word_embeddings=True),
    "qwen3-1.7b": family("qwen3", (2048, 6144, 28, 16, 8, 151936), head_dim=128, tie_word_embeddings=True),
    "qwen2.5-3b": family("qwen2", (2048, 11008, 36, 16, 2, 151936), tie_word_embeddings=True),
    "qwen3-30b-a3b": QWEN3_30B_A3B,
    "qwen3-235b-a22b": {
        **QWEN3_30B_A3B,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 94,
        "num_attention_heads": 64,
        "moe_intermediate_size": 1536,
    },
    "smollm3-3b": family("llama", (2048, 11008, 36, 16, 4, 128256), tie_word_embeddings=True),
    "llama-3.2-1b": family("llama", (2048, 8192, 16, 32, 8, 128256), tie_word_embeddings=True),
}
LOAD = ("rows_per_update", "num_generations", "max_prompt_length", "max_completion_length", "lora_rank")


def question(report: dict[str, Any]) -> Question:
    """What the report asks, of every configuration that it leaves open."""
    kind = gpu_of(report["gpu"], report.get("gpu_memory"))
    machine = Machine(kind.name, kind.memory, report["gpus"], report.get("nodes", 1))
    knobs = {name: value if isinstance(value, list) else [value] for name, value in report["knobs"].items()}
    fixed = {n: v[0] for n, v in knobs.items() if len(v) == 1 and n != "micro_batch_size"}
    space = SearchSpace({n: tuple(v) for n, v in knobs.items() if n not in fixed}, Configuration(fixed))
    wanted = PlanRequest(
        report["model"], architecture(MODELS[report["model"]]), report.get("framework", "trl"),
        **{name: report[name] for name in LOAD if name in report},
    )  # fmt: skip
    return Question(wanted.load(machine), machine, kind, "report", space)


def predictions(report: dict[str, Any]) -> list[Predicted]:
    """Of all of them."""
    asked = question(report)
    found = asked.space.candidates(asked.baseline(), asked.resources, same_learning=False)
    assert found, "the report's own configuration is legal"
    forecasts = forecasts_for(asked)
    table = forecasts.table(found)
    return [forecasts.predicted(table, place) for place in range(len(found))]


@pytest.mark.parametrize("path", REPORTS, ids=lambda path: path.stem)
def test_what_ran_out_of_memory_is_not_likely_to_fit_and_what_held_is(path: Path) -> None:
    report = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = predictions(report)
    assert report["outcome"] in ("held", "out of memory")
    if report["outcome"] == "held":
        assert all(one.fits >= 0.5 for one in found), [(f"{one.fits:.0%}", one.limit()) for one in found]
    else:
        assert all(one.fits <= 0.5 for one in found), [(f"{one.fits:.0%}", one.limit()) for one in found]
    if "moment" in report:
        assert report["moment"] in {one.moment for one in found}


def test_a_plan_with_megatron_says_that_no_trial_has_measured_it() -> None:
    reports = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in REPORTS]
    said = {r["knobs"].get("training_engine", "torch"): question(r).notes for r in reports}
    assert OF_MEGATRON in said["megatron"]
    assert OF_MEGATRON not in said["torch"]
    assert sum(r["knobs"].get("training_engine") == "megatron" for r in reports) == 4


def test_the_same_on_smaller_gpus_or_split_less_is_not_likely_to_fit() -> None:
    """A model of 32 billion parameters takes 2 + 4 + 12 bytes of each on 8 GPUs without data-parallel ranks: 69 GiB."""
    report = yaml.safe_load((REPORTS[0].parent / "megatron-32b-eight-h20-verl.yaml").read_text(encoding="utf-8"))
    assert [one.fits < 0.5 for one in predictions({**report, "gpu": "a100"})] == [True]
    halved = {**report["knobs"], "training_tensor_parallel_size": 4}
    assert [one.fits < 0.5 for one in predictions({**report, "knobs": halved})] == [True]


def test_there_are_reports_of_both_kinds_for_every_framework() -> None:
    reports = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in REPORTS]
    assert {r.get("framework", "trl") for r in reports} == {"trl", "open_r1", "ms_swift", "verl"}
    assert {r["outcome"] for r in reports} == {"held", "out of memory"}

"""No answer of a plan lies outside the space it was asked of: for every key and value of public spaces."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from autotune.domain import Configuration, Pool, Trial
from autotune.errors import UsageError
from autotune.forecast import planner
from autotune.forecast.answer import Accuracy, Machine
from autotune.forecast.architecture import architecture
from autotune.forecast.forecasting import Forecasts
from autotune.forecast.gpus import gpu_named
from autotune.forecast.question import PlanRequest, Question
from autotune.frameworks import framework_named
from autotune.proposals.forecasts import PeakForecast, Task, TimeForecast
from autotune.proposals.memory import Breakdown, Moment
from autotune.specification.build import planned
from search_spaces.frameworks import SHORT, resolved
from search_spaces.knobs import KNOBS
from search_spaces.legality.case import Case
from search_spaces.legality.knob_rules import inactive_value_of
from search_spaces.published import PUBLISHED as PUBLISHED_BASELINES
from search_spaces.space import SearchSpace
from tests.support.published_models import PUBLISHED

CASES = Path(__file__).parents[2] / "fixtures" / "cases" / "plan"
MODEL = architecture(PUBLISHED["Qwen2.5-7B"][0])
FREE = frozenset(
    {"gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "zero_reduce_bucket", "logprob_rows"}
)

MOST_COMBINATIONS = 1_000_000
"""Of a space that is narrowed whole, too; of a preset each value is asked for alone."""


def public_spaces() -> Iterator[tuple[str, str, int, tuple[int | None, int | None], Mapping[str, Any]]]:
    """(Name, framework, GPUs, rows per update and completions of a prompt, knobs) of reports, baselines, presets."""
    for path in sorted(CASES.glob("*.yaml")):
        report = yaml.safe_load(path.read_text(encoding="utf-8"))
        sizes = report.get("rows_per_update"), report.get("num_generations")
        yield path.stem, report.get("framework", "trl"), report["gpus"], sizes, report["knobs"]
    for path in sorted(CASES.glob("*/space.yaml")):
        case = yaml.safe_load((path.parent / "case.yaml").read_text(encoding="utf-8"))
        words = case["options"].split()
        asked = dict(itertools.pairwise(words))
        rows, group = (
            int(asked[word]) if word in asked else None for word in ("--rows-per-update", "--num-generations")
        )
        knobs = yaml.safe_load(path.read_text(encoding="utf-8"))["knobs"]
        yield path.parent.name, case["framework"], int(asked.get("--gpus", 1)), (rows, group), knobs
    for one in PUBLISHED_BASELINES.values():
        knobs = {name: value for name, value in one.configuration.items() if not KNOBS[name].derived}
        yield one.name, one.framework, one.gpus, (one.rows_per_update, None), knobs
    for framework, (preset, gpus) in itertools.product(SHORT, (("single-gpu", 1), ("node-8gpu", 8))):
        space, _ = planned(SearchSpace.load(preset), framework_named(resolved(framework)))
        yield f"{preset}-{framework}", framework, gpus, (None, None), space.as_json()["knobs"]


SPACES = {name: rest for name, *rest in public_spaces()}


def asked(framework: str, gpus: int, sizes: tuple[int | None, int | None], knobs: Mapping[str, Any]) -> Question:
    kind, name = gpu_named("h100"), resolved(framework)
    space, _ = planned(SearchSpace.from_json({"knobs": dict(knobs)}), framework_named(name))
    machine = Machine(kind.name, kind.memory, gpus)
    wanted = PlanRequest("m", MODEL, name, *sizes)
    return Question(wanted.load(machine, space), machine, kind, "space", space)


def drawn(configurations: Sequence[Configuration], most: float) -> np.ndarray:
    """A number of each, the same for the same, and of no sense."""
    return np.array([most * zlib.crc32(repr(sorted(c.items())).encode()) / 2**32 for c in configurations])


class Times:
    """Any configuration may be the fastest, and by so little that a plan would rather put it back to what is usual."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> Times:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        seconds = 10.0 + drawn(configurations, 0.05)
        return TimeForecast(np.log(seconds), np.full(len(seconds), 0.3), {"update": seconds})


class FewRows(Times):
    """The smaller the micro-batch the faster, by much."""

    def forecast(self, configurations: Sequence[Configuration]) -> TimeForecast:
        seconds = np.array([10.0 + 5.0 * float(c["micro_batch_size"]) for c in configurations])
        return TimeForecast(np.log(seconds), np.full(len(seconds), 0.3), {"update": seconds})


class Peaks:
    """Half of all fit."""

    def fitted(self, task: Task, trials: Sequence[Trial]) -> Peaks:
        return self

    def forecast(self, configurations: Sequence[Configuration]) -> PeakForecast:
        peak = drawn(configurations, 160.0 * 2**30)
        return PeakForecast(peak, np.full(len(peak), 0.1), (peak <= 80 * 2**30).astype(np.float64))

    def breakdown(self, _: Configuration) -> tuple[Breakdown, ...]:
        return (Breakdown(Pool.DEVICE, Moment.UPDATE, 0.0, {}),) * 2


def forecasts(question: Question, times: Times | None = None) -> Forecasts:
    return Forecasts(times or Times(), Peaks(), question.tokens, 80 * 2**30)


def outside(question: Question, knobs: Mapping[str, Any], found: Configuration) -> dict[str, object]:
    """Knobs of ``found`` with a value that ``knobs`` do not list, where they act."""
    case = Case(found, question.resources)
    listed = {**question.space.values_in(question.resources), **{n: (v,) for n, v in question.space.fixed.items()}}
    strange = {}
    for name in knobs:
        value = found.get(name)
        allowed = [*listed.get(name, ()), *(["unset"] if name not in listed else [])]
        if name == "steps_per_generation" and "accumulation" in allowed:
            allowed.append(found["gradient_accumulation_steps"])
        if name == "logprob_rows":  # more would act the same
            allowed += [found["micro_batch_size"] * found["steps_per_generation"], found["micro_batch_size"]]
        if (
            value not in allowed
            and not ("unset" in allowed and value is None)
            and inactive_value_of(name, case) is None
        ):
            strange[name] = value
    return strange


def narrowed(knobs: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The space, and the space with each key at each of its values, or between two of which none need be usual."""
    yield knobs
    large = math.prod(len(v) for v in knobs.values() if isinstance(v, list)) > MOST_COMBINATIONS
    numbers = {n: v for n, v in knobs.items() if isinstance(v, int | float) and not isinstance(v, bool) and v > 0}
    between = {n: [v, round(0.9 * v, 3) if isinstance(v, float) else 2 * v] for n, v in numbers.items()}
    yield {**knobs, **{n: v for n, v in between.items() if n in FREE}}
    yield from ({**knobs, name: values} for name, values in between.items() if name in FREE)
    for name, listed in knobs.items():
        values = [value for value in (listed if isinstance(listed, list) else [listed]) if value != "unset"]
        yield from ({**knobs, name: value} for value in values if isinstance(listed, list) and not large)
        yield from ({name: value} for value in values if not isinstance(listed, dict))


def test_there_are_enough_of_them() -> None:
    assert len(SPACES) >= 50
    assert {resolved(framework) for framework, *_ in SPACES.values()} == {"trl", "open_r1", "ms_swift", "verl"}


@pytest.mark.parametrize("name", SPACES)
def test_every_answer_lies_in_the_space(name: str) -> None:
    framework, gpus, sizes, knobs = SPACES[name]
    answered = 0
    for each in narrowed(knobs):
        try:
            question = asked(framework, gpus, sizes, each)
            plan = planner.plan(question, forecasts, Accuracy(""))
        except UsageError:
            continue  # nothing of it is legal, and that is said
        answered += 1
        for found in (*plan.best, *filter(None, [plan.permitted])):
            assert outside(question, each, found.configuration) == {}, each
    assert answered


@pytest.mark.parametrize("steps", [1, [1, 2], [2, 4]])
def test_a_number_of_steps_is_no_share_of_the_accumulation(steps: object) -> None:
    """The same share of another accumulation learns alike, and is not what was listed."""
    knobs = {"rollout_engine": "vllm", "steps_per_generation": steps, "micro_batch_size": [1, 2, 4, 8]}
    question = asked("trl", 8, (512, 8), knobs)
    plan = planner.plan(question, lambda asked: forecasts(asked, FewRows()), Accuracy(""))
    listed = steps if isinstance(steps, list) else [steps]
    assert {found.configuration["steps_per_generation"] for found in plan.best} <= {*listed}

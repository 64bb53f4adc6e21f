"""How the workload of a study is settled: a stored study first, then what the machine does now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import StudySpec
from autotune.specification import sizing
from autotune.specification.build import load_space
from autotune.specification.request import CPU_SIZE, Request, with_defaults
from autotune.specification.sizing import Open, Sized, Sizing
from tests.support import factories as f
from tests.support.not_none import not_none
from tests.unit.specification.test_fewer_layers import _model as a_model
from trainer.child.contract import Result

IDLE, SLOW, HOPELESS = 1.3e11, 2.5e10, 1e9
FACTS = {"parameters": 134_515_008, "layers": 30, "hidden_size": 576, "vocabulary": 49_152}


class Python:
    """An interpreter on a machine of so many FLOP/s; ``None``: it cannot be measured."""

    def __init__(self, flops: float | None, reward: tuple[float, float] | None = None) -> None:
        self.flops = flops
        self.reward = reward
        self.measured = 0
        self.prepared: list[str] = []

    def present_speed(self, device: str = "") -> Result:
        self.measured += 1
        if self.flops is None:
            return Result(ok=False, message="no torch")
        rates = {"fp32": self.flops, "bf16": self.flops}
        return Result(ok=True, data={"device": "cpu", "name": "cpu", "flops": rates, "bandwidth": self.flops / 10})

    def kept(self, command: str, payload: Mapping[str, Any]) -> bool:
        return True

    def prepare(self, payload: Mapping[str, Any], **_: Any) -> Result:
        self.prepared.append(payload["model"])
        data = {"count": 1, "found": 1, "longest_prompt": 60, "mean_prompt": 40.0, "model": FACTS}
        return Result(ok=True, data=data if self.reward is None else {**data, "reward_s": self.reward})


def machine() -> Any:
    return f.resources(rows_per_update=0, num_generations=0, max_prompt_length=0, max_completion_length=0)


def settled(
    python: Python,
    tmp_path: Path,
    request: Request | None = None,
    *,
    budget_s: float | None = 600.0,
    there: StudySpec | None = None,
    measured: bool = True,
) -> Sized:
    bundled = tmp_path / "bundled"
    request = request or Request()
    settle = sizing_of(python, tmp_path, request, budget_s, None if there is None else (there, measured))
    whole = with_defaults(request, CPU_SIZE, str(bundled))
    return settle.settle(whole, Open.of(request, machine(), str(bundled)))


def sizing_of(
    python: Python,
    tmp_path: Path,
    request: Request | None = None,
    budget_s: float | None = 600.0,
    there: tuple[StudySpec, bool] | None = None,
) -> Sizing:
    bundled = tmp_path / "bundled"
    if not bundled.is_dir():
        a_model(bundled, layers=30)
    return Sizing(
        python=python,  # type: ignore[arg-type]
        found=Result(ok=True, data={"packages": {}}),
        machine=machine(),
        space=load_space(request or Request(), machine()),
        budget_s=budget_s,
        talk=lambda _: None,
        models=tmp_path / "models",
        stored=lambda name: there,
        speed=lambda *_: pytest.fail("that is the GPU's"),
    )


def size(found: Sized) -> tuple[int, int]:
    return found.request.rows_per_update, found.request.max_completion_length


def as_stored(found: Sized) -> StudySpec:
    """The study that begins with what was settled."""
    request = found.request
    work = f.workload(
        model=request.model,
        rows_per_update=request.rows_per_update,
        max_completion_length=request.max_completion_length,
    )
    return f.study_spec(workload=work, protocol=request.protocol)


def test_a_slow_machine_begins_with_a_smaller_workload_and_says_so(tmp_path: Path) -> None:
    idle, slow = settled(Python(10 * IDLE), tmp_path), settled(Python(SLOW), tmp_path)
    assert size(idle) == (8, 32)
    assert "the default" in idle.words
    assert size(slow) < (8, 32)
    assert "chosen because the default is too large" in slow.words


def test_the_same_command_on_a_calmer_machine_keeps_the_workload_that_was_chosen(tmp_path: Path) -> None:
    first = settled(Python(SLOW), tmp_path)
    calm = Python(10 * IDLE)
    again = settled(calm, tmp_path, there=as_stored(first), budget_s=6000.0)
    assert again.request == first.request
    assert calm.measured == 0, "a study that is there is not measured for"
    assert "as the study began" in again.words


def test_a_study_whose_baseline_has_not_ended_is_forecast_anew_and_keeps_its_size(tmp_path: Path) -> None:
    first, calm = settled(Python(SLOW), tmp_path), Python(10 * IDLE)
    again = settled(calm, tmp_path, there=as_stored(first), measured=False)
    assert again.request == first.request
    assert calm.measured == 1
    assert [one for one, _ in again.plan.steps] == [one for one, _ in first.plan.steps]
    assert again.plan.pace.cycle_s < first.plan.pace.cycle_s
    assert settled(calm, tmp_path, there=as_stored(first)).plan is None, "a trial has ended: nothing may change"


def test_a_study_that_was_corrected_keeps_its_size_and_its_cycles(tmp_path: Path) -> None:
    first = settled(Python(10 * IDLE), tmp_path)
    plan = not_none(first.plan).corrected(100.0, 8.0, 60.0, 500.0)
    settle = sizing_of(Python(10 * IDLE), tmp_path)
    whole = with_defaults(Request(), CPU_SIZE, str(tmp_path / "bundled"))
    sized = settle.by_plan(whole, plan, first.written)
    assert (sized.request.protocol.recorded, sized.request.protocol.max_repeats) == (2, 0)
    assert size(sized) < size(first)
    again = settled(Python(10 * IDLE), tmp_path, there=as_stored(sized), measured=False)
    assert again.request == sized.request
    assert len(not_none(again.plan).steps) == 1


@pytest.mark.parametrize(("cost", "seconds"), [((2.0, 0.0), 2.0), ((1.0, 0.5), 5.0)])
def test_the_seconds_of_a_reward_belong_to_the_forecast(
    tmp_path: Path, cost: tuple[float, float], seconds: float
) -> None:
    plain, slow = (not_none(settled(Python(10 * IDLE, reward), tmp_path).plan) for reward in (None, cost))
    assert (plain.workload.rows, slow.workload.rows) == (8, 8)
    assert slow.pace.cycle_s == pytest.approx(plain.pace.cycle_s + seconds)
    assert slow.pace.start_s == pytest.approx(plain.pace.start_s + seconds), "the warm-up calls it too"


def test_a_study_with_the_default_continues_with_it_on_a_busy_machine(tmp_path: Path) -> None:
    first = settled(Python(10 * IDLE), tmp_path)
    again = settled(Python(HOPELESS), tmp_path, there=as_stored(first))
    assert (again.request, again.words) == (first.request, "")
    unmeasured = settled(Python(HOPELESS), tmp_path, there=as_stored(first), measured=False)
    assert "6 trials need a budget of" in unmeasured.words


def test_only_where_nothing_else_helps_the_model_is_cut_and_the_study_keeps_its_name(tmp_path: Path) -> None:
    python = Python(HOPELESS)
    found = settled(python, tmp_path)
    model = Path(found.request.model)
    assert model.parent == tmp_path / "models"
    assert python.prepared == [str(tmp_path / "bundled"), str(model)], "prompts are those of the model that runs"
    assert found.request.name == sizing.study_name(with_defaults(Request(), CPU_SIZE, str(tmp_path / "bundled")))
    assert "the first 7 of the model's 30 layers" in found.words
    assert "6 trials need a budget of" in found.words
    again = settled(Python(10 * IDLE), tmp_path, there=as_stored(found))
    assert again.request == found.request


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({"rows_per_update": 16}, {"rows_per_update": 16}),
        ({"max_completion_length": 48}, {"max_completion_length": 48}),
        ({"baseline": {"micro_batch_size": 8}}, {"rows_per_update": 8}),
    ],
)
def test_what_was_said_is_never_changed(tmp_path: Path, changes: dict[str, Any], kept: dict[str, int]) -> None:
    found = settled(Python(HOPELESS), tmp_path, Request(**changes))
    assert {name: getattr(found.request, name) for name in kept} == kept
    assert "6 trials need a budget of" in found.words


@pytest.mark.parametrize(
    "request_",
    [
        Request(rows_per_update=16, max_completion_length=48),
        Request(data="prompts.jsonl", rewards=(f.reward(),)),
        Request(task="gsm_symbolic"),
    ],
)
def test_a_workload_of_the_users_own_is_only_warned_about(tmp_path: Path, request_: Request) -> None:
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "3 + 4"}\n')
    if request_.data:
        request_ = replace(request_, data=str(tmp_path / request_.data))
    slow, fast = (settled(Python(speed), tmp_path, request_) for speed in (HOPELESS, 100 * IDLE))
    assert slow.request == fast.request
    assert slow.words.startswith("a cycle of this workload takes about")
    assert "6 trials need a budget of" in slow.words
    assert fast.words == ""


def test_without_a_limit_of_time_or_a_figure_nothing_is_chosen(tmp_path: Path) -> None:
    unasked = Python(SLOW)
    assert size(settled(unasked, tmp_path, budget_s=None)) == (8, 32)
    assert unasked.measured == 0
    blind = settled(Python(None), tmp_path)
    assert (size(blind), blind.words) == ((8, 32), "")


@pytest.mark.parametrize(
    ("request_", "gpus", "found"),
    [
        (Request(), 0, Open(rows=True, tokens=True, model=True)),
        (Request(model="/bundled"), 0, Open(rows=True, tokens=True, model=True)),
        (Request(model="/mine"), 0, Open(rows=True, tokens=True)),
        (Request(), 1, Open(rows=True, tokens=True)),
        (Request(), 4, Open(tokens=True)),
        (Request(rows_per_update=8), 0, Open(tokens=True, model=True)),
        (Request(baseline={"num_generations": 8}), 0, Open(tokens=True, model=True)),
        (Request(task="chain_sum"), 0, Open()),
        (Request(config="beta: 0"), 0, Open()),
        (Request(published="trl:example"), 0, Open()),
        (Request(dataset={"dataset_name": "org/prompts"}), 0, Open()),
    ],
)
def test_only_what_nobody_said_is_open(request_: Request, gpus: int, found: Open) -> None:
    assert Open.of(request_, replace(machine(), gpus=gpus), "/bundled") == found

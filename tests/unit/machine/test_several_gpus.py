"""A study on several GPUs: who trains, how many rows an update has, what is counted over all of them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from autotune import wiring
from autotune.documents.recommendation import row_json
from autotune.domain import Budget, Configuration, Resources
from autotune.errors import UsageError
from autotune.machine import gpu_choice, hardware
from autotune.machine.nvml import Gpu
from autotune.recommendation.recommend import recommend
from autotune.settings import read_settings
from autotune.specification import build
from autotune.specification.interpreter import Interpreter
from autotune.specification.request import Request, ResolvedRequest, gpu_size
from autotune.specification.resolve import resolve_request
from autotune.store import open_store
from autotune.study import schedule
from autotune.study.budget import Ledger
from autotune.wording.sentences import speed_words
from search_spaces import legality
from search_spaces.batch import batch_of, served_by
from search_spaces.space import SearchSpace
from tests.support import factories as f
from tests.support.fakes import FakeClock
from tests.support.imports import of
from tests.support.not_none import not_none
from tests.support.trl_fields import RECORDED
from trainer.child.contract import Result

GIB = 1 << 30
SERVER: dict[str, Any] = {"rollout_engine": "vllm", "rollout_mode": "server"}


def gpus(count: int) -> tuple[Gpu, ...]:
    return tuple(Gpu(n, f"GPU-{n}", "Example 80GB", 80 * GIB, 0, (9, 0), "580.1") for n in range(count))


def machine(count: int, **changes: Any) -> Resources:
    return replace(hardware.resources(gpus=gpus(count)), **changes)


def asked(rows: int, **knobs: Any) -> ResolvedRequest:
    return ResolvedRequest(model="/m", rows_per_update=rows, max_completion_length=256, baseline=knobs)


def baseline(count: int, rows: int, space: str | None = None, **knobs: Any) -> Configuration:
    """What trial 0 of a study of ``count`` GPUs is, which must be legal."""
    request, resources = asked(rows, **knobs), machine(count, rows_per_update=rows, num_generations=8)
    found = build.baseline_of(request, build.load_space(replace(request, space=space), resources), resources)
    build.check_baseline(request, found, resources)
    return found


@pytest.fixture
def visible(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes so many GPUs visible, less what ``CUDA_VISIBLE_DEVICES`` hides; the environment is put back."""
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def make(count: int) -> None:
        def look() -> tuple[Gpu, ...]:
            chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
            return gpus(count) if chosen is None else tuple(g for g in gpus(count) if str(g.index) in chosen.split(","))

        monkeypatch.setattr(hardware, "visible_gpus", look)

    return make


@pytest.mark.parametrize(
    ("count", "preset"), [(0, "cpu"), (1, "single-gpu"), (2, "node-8gpu"), (4, "node-8gpu"), (8, "node-8gpu")]
)
def test_the_preset_is_that_of_so_many_gpus(count: int, preset: str) -> None:
    assert build.load_space(Request(), machine(count)) == SearchSpace.load(preset)
    assert build.load_space(Request(space="cpu"), machine(count)) == SearchSpace.load("cpu")


def test_a_study_holds_every_visible_gpu_and_its_trials_see_those_alone(visible: Any) -> None:
    said: list[str] = []
    visible(8)
    assert gpu_choice.usable_resources(said.append).gpus == 8
    assert said == []
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0,1,2,3,4,5,6,7"
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID", "or CUDA would count them otherwise than the guard does"


def test_a_subset_of_a_subset(visible: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    visible(8)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,4,6")
    assert gpu_choice.usable_resources(said.append, 2).gpus == 2
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "2,4"
    assert said == [
        "of 3 visible GPUs, 2 will be used: 2, 4, Example 80GB (80.0 GiB); CUDA_VISIBLE_DEVICES can choose others"
    ]
    assert len(hardware.describe()["gpus"]) == 2, "the fingerprint is of the GPUs held"


def test_no_gpu_is_a_cpu_study_on_a_machine_that_has_some(visible: Any) -> None:
    visible(2)
    found = gpu_choice.usable_resources(lambda _: None, 0)
    assert (found.gpus, found.device) == (0, "cpu")
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert build.ranked(found, 1).training_processes == 1
    assert hardware.describe()["gpus"] == []


def test_ranks_are_not_for_gpus() -> None:
    with pytest.raises(UsageError, match="--gpus N holds N"):
        build.ranked(machine(4), 2)


def test_continuing_a_study_takes_as_many_gpus_as_it_holds(visible: Any, tmp_path: Any) -> None:
    visible(2)
    spec = f.study_spec(resources=f.resources(gpus=4, device="cuda"))
    with pytest.raises(UsageError, match="study 'first' holds 4 GPUs: 2 GPUs are visible"):
        wiring.present_fingerprint(spec, read_settings(environ={"AUTOTUNE_HOME": str(tmp_path)}), lambda _: None)


@pytest.mark.parametrize(
    ("count", "rows", "knobs", "ranks", "micro", "accumulation"), of("gpus_of_a_rollout_server_do_not_train")
)
def test_gpus_of_a_rollout_server_do_not_train(
    count: int, rows: int, knobs: dict[str, Any], ranks: int, micro: int, accumulation: int | None
) -> None:
    """Open-R1's 3 + 1 and Swift's 7 + 1; a mode without vLLM is no server."""
    if accumulation is None:
        with pytest.raises(UsageError, match="nearest legal: num_generations 13"):
            baseline(count, rows, **knobs)
        return
    found = baseline(count, rows, **knobs)
    batch = batch_of(found, machine(count))
    assert (batch.ranks, batch.micro, batch.accumulation) == (ranks, micro, accumulation)


def test_rows_that_seven_gpus_cannot_share_are_the_nearest_they_can_and_said() -> None:
    found, resources = baseline(8, 512, **served_by(1)), machine(8, rows_per_update=512)
    assert batch_of(found, resources).rows == 504
    (note,) = legality.notes(found, resources)
    assert note == "504 rows per update instead of 512 (-1.6 %), because 7 training GPUs cannot share 512."


def test_more_than_five_per_cent_off_is_refused() -> None:
    with pytest.raises(UsageError, match="512 rows per update cannot be made of micro-batches of 16 rows on 7"):
        baseline(8, 512, **served_by(1), micro_batch_size=16)


@pytest.mark.parametrize(("given", "size", "replicas"), [(1, 1, 1), (2, 1, 2), (4, 1, 4), (4, 2, 2), (4, 4, 1)])
def test_replicas_nobody_named_fill_the_servers_gpus(given: int, size: int, replicas: int) -> None:
    found = baseline(8, 512, **served_by(given), tensor_parallel_size=size)
    assert found["rollout_data_parallel_size"] == replicas
    resources = machine(8, rows_per_update=512)
    again = SearchSpace.load("node-8gpu").complete(found, resources)
    assert again == found, "completing twice changes nothing more"


def test_replicas_somebody_named_are_not_touched() -> None:
    with pytest.raises(UsageError, match="1 × 1 replicas = 1 is not rollout_gpus 2"):
        baseline(8, 512, **served_by(2), rollout_data_parallel_size=1)


@pytest.mark.parametrize(
    ("count", "ranks", "rows"),
    [
        (1, 1, 64),
        (2, 2, 64),
        (2, 1, 64),
        (3, 3, 96),
        (4, 4, 96),
        (4, 3, 96),
        (4, 2, 96),
        (8, 8, 448),
        (8, 7, 448),
        (8, 5, 80),
    ],
)
def test_a_default_number_of_rows_can_be_shared_by_all_and_by_all_but_one(count: int, ranks: int, rows: int) -> None:
    assert gpu_size(count, ranks).rows_per_update == rows


@pytest.mark.parametrize(("count", "splits"), [(2, {(1, 1)}), (4, {(3, 1), (2, 2)}), (8, {(7, 1), (4, 4)})])
def test_a_study_nobody_gave_rows_can_try_open_r1s_and_swifts_splits(count: int, splits: set[tuple[int, int]]) -> None:
    """3 + 1 and 7 + 1, learning as the baseline does: else the headline gain could never come from one."""
    rows = gpu_size(count, count).rows_per_update
    resources, space = machine(count, rows_per_update=rows, num_generations=8), SearchSpace.load("node-8gpu")
    found = space.candidates(baseline(count, rows), resources, same_learning=True, limit=3000)
    served = {(count - int(c["rollout_gpus"]), int(c["rollout_gpus"])) for c in found if c["rollout_mode"] == "server"}
    assert splits <= served


CONFIG = """\
model_name_or_path: org/model
dataset_name: org/data
reward_funcs: [accuracy_reward]
use_vllm: true
vllm_mode: server
per_device_train_batch_size: 4
gradient_accumulation_steps: 2
num_generations: 8
max_completion_length: 64
"""


def configured(count: int, monkeypatch: pytest.MonkeyPatch, **knobs: Any) -> ResolvedRequest:
    monkeypatch.setattr(Interpreter, "known_fields", lambda *_: None)
    monkeypatch.setattr(Interpreter, "describe", lambda *_: Result(ok=True, data=RECORDED))
    request = Request(config=CONFIG, config_name="grpo.yaml", folder="/", baseline=knobs)
    return resolve_request(request, Interpreter("/env/bin/python", None), machine(count))  # type: ignore[arg-type]


def test_a_configuration_with_a_server_must_be_told_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file does not say it, and the rows of the user's update depend on it."""
    with pytest.raises(UsageError) as refused:
        configured(4, monkeypatch)
    assert str(refused.value) == (
        "grpo.yaml, line 5: vllm_mode server: say with --rollout-gpus how many of the 4 GPUs are its; the others train."
    )
    with pytest.raises(UsageError, match="one is held; write vllm_mode: colocate"):
        configured(1, monkeypatch)


def test_its_rows_are_those_of_the_gpus_that_train(monkeypatch: pytest.MonkeyPatch) -> None:
    request = configured(4, monkeypatch, **served_by(1))
    assert request.rows_per_update == 3 * 4 * 2
    resources = machine(4, rows_per_update=24, num_generations=8)
    found = build.baseline_of(request, SearchSpace.load("node-8gpu"), resources)
    build.check_baseline(request, found, resources)
    assert (found["rollout_mode"], found["rollout_gpus"], found["gradient_accumulation_steps"]) == ("server", 1, 2)


@pytest.mark.parametrize(
    ("knobs", "rows"),
    [
        ({}, 64),
        ({**SERVER, "rollout_gpus": 1, "gradient_accumulation_steps": 9}, 63),
        ({**SERVER, "rollout_gpus": 4}, 32),
        ({"rollout_gpus": 4}, 64),
    ],
)
def test_a_trial_has_the_rows_its_own_split_makes(knobs: dict[str, Any], rows: int) -> None:
    """The child compares them with what TRL makes of the batch; a trial told the wrong number ends at once."""
    study = f.study(spec=f.study_spec(resources=machine(8, rows_per_update=64)))
    own = Configuration({"micro_batch_size": 1, "gradient_accumulation_steps": 8, **knobs})
    assert study.rows(own) == rows


def test_tokens_are_counted_over_every_gpu_held_and_each_ones_share_stands_beside() -> None:
    """3 + 1 against 4 + 0: both hold four GPUs, so both are divided by four."""
    spec = f.study_spec(resources=machine(4, rows_per_update=8), space=SearchSpace.load("node-8gpu").as_json())
    split = f.configuration(**served_by(1))
    trials = [f.finished(0), f.finished(1, cycle_seconds=5.0, configuration=split)]
    found = not_none(recommend(spec, trials, "x"))
    row = next(r for r in found.rows if r.configuration == split)
    whole = trials[1].tokens_per_hour or 0.0
    assert row.gpus == 4
    assert row.tokens_per_hour == pytest.approx(whole)
    assert row.tokens_per_hour_per_gpu == pytest.approx(whole / 4)
    assert "k or " in speed_words(row)
    assert " tokens/s for each of 4 GPUs" in speed_words(row)
    assert row_json(row)["tokens_per_hour_per_gpu"] == pytest.approx(whole / 4)


def test_a_single_gpu_or_a_cpu_needs_no_share() -> None:
    assert "each" not in speed_words(f.recommendation_row(gpus=1))
    assert "each" not in speed_words(f.recommendation_row())
    assert row_json(f.recommendation_row())["tokens_per_hour_per_gpu"] is None


def test_rows_that_deviate_are_told_with_the_answer() -> None:
    spec = f.study_spec(resources=machine(8, rows_per_update=512))
    split = Configuration({"micro_batch_size": 8, "gradient_accumulation_steps": 9, **served_by(1)})
    found = not_none(recommend(spec, [f.finished(0), f.finished(1, cycle_seconds=5.0, configuration=split)], "x"))
    assert any("504 rows per update instead of 512" in note for note in found.notes)


@pytest.mark.parametrize(("count", "hours"), [(1, 1.0), (4, 4.0), (8, 8.0)])
def test_an_hour_of_wall_time_is_an_hour_of_every_gpu_held(count: int, hours: float) -> None:
    """Those that wait for the others too: nobody else can use them."""
    store, clock = open_store(":memory:"), FakeClock()
    study = store.create_study(f.study_spec(resources=machine(count)), clock.now())
    ledger = Ledger(store, clock, study.id, study.spec.resources.gpus)
    clock.sleep(3600.0)
    ledger.persist(force=True)
    assert store.spent(study.id)[1] == pytest.approx(hours * 3600.0)
    step = schedule.next_step(study, (), Budget(gpu_hours=hours / 2), ledger.spent(), None)  # type: ignore[arg-type]
    assert step == schedule.StudyEnd("the GPU-hour budget is used up")

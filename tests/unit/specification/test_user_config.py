"""A TRL configuration beside the command line: what the baseline and the workload become."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune import frameworks
from autotune.domain import RewardSpec
from autotune.errors import UsageError
from autotune.frameworks import TrlFramework
from autotune.specification.request import CPU_SIZE, Request, ResolvedRequest, packages_of, study_name, with_defaults
from autotune.specification.user_config import with_config
from tests.support.imports import of
from trainer.frameworks.common.config_entries import Imported
from trainer.frameworks.common.fields import Field

FIELDS = {
    "per_device_train_batch_size": Field("per_device_train_batch_size", "int", 8),
    "gradient_accumulation_steps": Field("gradient_accumulation_steps", "int", 1),
    "max_completion_length": Field("max_completion_length", "int | none", 256),
}
FILE = RewardSpec("file", "score", "/r.py")


def imported(**changes: Any) -> Imported:
    base = Imported(
        knobs={},
        passthrough={"beta": 0.1},
        model="org/name",
        dataset={"dataset_name": "data"},
        rewards=("accuracy_reward",),
        max_completion_length=None,
        lines={"beta": 3, "model_name_or_path": 1},
        text="beta: 0.1",
    )
    return replace(base, **changes)


def asked(**changes: Any) -> Request:
    return replace(Request(folder="/work", config="beta: 0.1", config_name="grpo.yaml"), **changes)


def joined(request: Request, file: Imported, ranks: int = 1) -> ResolvedRequest:
    return with_defaults(with_config(request, file, FIELDS, ranks), CPU_SIZE, bundled="/bundled")


def test_a_file_that_says_nothing_of_the_batch_means_trls_defaults() -> None:
    whole = joined(asked(), imported())
    assert (whole.rows_per_update, whole.max_completion_length, whole.max_prompt_length) == (8, 256, None)
    assert whole.baseline == {"micro_batch_size": 8, "gradient_accumulation_steps": 1}
    assert (whole.model, dict(whole.dataset)) == ("org/name", {"dataset_name": "data"})
    assert whole.rewards == (RewardSpec("trl", "accuracy_reward"),)
    assert whole.passthrough == {"beta": 0.1}


def test_rows_follow_from_the_files_batch_and_the_ranks() -> None:
    file = imported(knobs={"micro_batch_size": 4, "gradient_accumulation_steps": 3}, max_completion_length=64)
    whole = joined(asked(), file, ranks=2)
    assert (whole.rows_per_update, whole.max_completion_length) == (24, 64)


@pytest.mark.parametrize(
    ("knobs", "rows", "expected"),
    [
        ({}, 4, {"micro_batch_size": 4, "gradient_accumulation_steps": 1}),
        ({}, 64, {"micro_batch_size": 8, "gradient_accumulation_steps": 8}),
        ({"micro_batch_size": 2}, 16, {"micro_batch_size": 2, "gradient_accumulation_steps": 8}),
        ({"gradient_accumulation_steps": 2}, 32, {"micro_batch_size": 8, "gradient_accumulation_steps": 4}),
    ],
)
def test_another_batch_on_the_command_line_changes_the_accumulation(
    knobs: dict[str, int], rows: int, expected: dict[str, int]
) -> None:
    whole = joined(asked(rows_per_update=rows), imported(knobs=knobs))
    assert whole.rows_per_update == rows
    assert whole.baseline == expected


def test_options_go_before_the_file() -> None:
    file = imported(passthrough={"reward_weights": [0.5, 0.5]}, rewards=("a.b", "c.d"), max_completion_length=64)
    request = asked(
        model="/models/other", data="/prompts.jsonl", rewards=(FILE,), max_completion_length=32,
        baseline={"micro_batch_size": 2},
    )  # fmt: skip
    whole = joined(request, file)
    assert (whole.model, whole.data, dict(whole.dataset)) == ("/models/other", "/prompts.jsonl", {})
    assert (whole.rewards, whole.max_completion_length) == ((FILE,), 32)
    assert whole.baseline["micro_batch_size"] == 2
    assert "reward_weights" not in whole.passthrough  # they were the weights of the file's rewards


@pytest.mark.parametrize(
    ("request_changes", "own"),
    [
        ({}, True),
        ({"data": "/sample.jsonl"}, True),
        ({"rewards": (FILE,)}, True),
        ({"data": "/sample.jsonl", "rewards": (FILE,)}, False),
        ({"task": "chain_sum"}, False),
    ],
)
def test_an_export_trains_on_the_files_own_dataset_unless_another_reward_has_other_prompts(
    request_changes: dict[str, Any], own: bool
) -> None:
    """Who tunes on a sample of the prompts does not want to train on the sample."""
    assert joined(asked(**request_changes), imported()).trains_on_own_data is own
    assert not joined(asked(**{"data": "/p.jsonl", **request_changes}), imported(dataset={})).trains_on_own_data


def test_a_revision_stays_with_the_model_that_it_is_of() -> None:
    file = imported(passthrough={"model_revision": "step-100"})
    assert joined(asked(), file).passthrough == {"model_revision": "step-100"}
    assert joined(asked(model="org/name"), file).passthrough == {"model_revision": "step-100"}
    assert joined(asked(model="other/name"), file).passthrough == {}


def test_a_task_brings_its_own_reward() -> None:
    whole = joined(asked(task="chain_sum"), imported())
    assert whole.rewards == (RewardSpec("reasoning_gym", "chain_sum"),)
    assert whole.max_prompt_length == 96


@pytest.mark.parametrize(
    ("file", "said"),
    [
        (imported(model=None), "grpo.yaml names no model: add model_name_or_path"),
        (imported(dataset={}), "grpo.yaml names no dataset: add dataset_name"),
        (imported(rewards=()), "grpo.yaml gives prompts but no reward: add --reward"),
        (imported(passthrough={"reward_weights": [1.0, 2.0]}), "reward_weights holds 2 weights for 1 reward"),
        (imported(model="no such model"), "grpo.yaml, line 1: there is no model folder"),
    ],
)
def test_what_a_file_lacks_is_said_with_its_name(file: Imported, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        joined(asked(), file)


def test_without_a_file_the_bundled_model_and_task_are_taken() -> None:
    whole = with_defaults(Request(), CPU_SIZE, bundled="/bundled")
    assert (whole.model, whole.task, whole.rows_per_update) == ("/bundled", "chain_sum", 8)
    with pytest.raises(UsageError, match="--model; `make start` in a checkout"):
        with_defaults(Request(), CPU_SIZE, bundled="")


def test_prompts_without_a_reward_say_what_to_add() -> None:
    with pytest.raises(UsageError, match=r"--data gives prompts but no reward: add --reward my_reward\.py:score"):
        with_defaults(Request(model="/m", data="/p.jsonl"), CPU_SIZE, bundled="")


def test_packages_the_workload_needs() -> None:
    assert packages_of(Request(passthrough={"use_peft": True, "load_in_4bit": True})) == ("peft", "bitsandbytes")
    assert packages_of(Request(passthrough={"use_peft": False, "beta": 0.1})) == ()


@pytest.mark.parametrize(("changes", "name"), of("study_names"))
def test_study_names(changes: dict[str, Any], name: str) -> None:
    assert study_name(replace(Request(model="org/My-Model"), **changes)) == name


class Other(TrlFramework):
    """A framework that states more in its files than TRL does."""

    reads_datasets = False
    unset_completion = 512

    def launched(self, imported: Imported) -> int:
        return 8


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frameworks, "FRAMEWORKS", {"trl": Other})


@pytest.mark.usefixtures("other")
def test_a_file_for_more_processes_keeps_its_rows_on_fewer() -> None:
    file = imported(knobs={"micro_batch_size": 4, "gradient_accumulation_steps": 2}, dataset={})
    whole = joined(asked(data="/p.jsonl"), file, ranks=2)
    assert whole.rows_per_update == 64
    assert whole.baseline == {"micro_batch_size": 4, "gradient_accumulation_steps": 8}
    assert joined(asked(data="/p.jsonl", rows_per_update=32), file, ranks=2).rows_per_update == 32


@pytest.mark.usefixtures("other")
def test_lengths_a_file_states_or_its_framework_has_are_taken() -> None:
    file = imported(dataset={}, max_prompt_length=77)
    request = asked(data="/p.jsonl")
    whole = with_defaults(with_config(request, file, {}, 1), CPU_SIZE, bundled="")
    assert (whole.max_prompt_length, whole.max_completion_length) == (77, 512)
    assert joined(asked(data="/p.jsonl", max_prompt_length=9), file).max_prompt_length == 9


@pytest.mark.usefixtures("other")
def test_prompts_that_cannot_be_read_are_asked_for() -> None:
    with pytest.raises(UsageError, match=r"grpo\.yaml: the prompts of a TRL configuration are not read yet; .*--data"):
        joined(asked(), imported())
    assert joined(asked(data="/p.jsonl"), imported()).data == "/p.jsonl"


@pytest.mark.parametrize("framework", ["ms_swift", "verl"])
def test_ranks_that_share_a_sequence_share_its_rows(framework: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ms-swift multiplies the accumulation it is told (``grpo_trainer.py:159``) where verl counts prompts: in both the
    knobs count rows of 4 ranks here, and 8 GPUs have no more."""
    monkeypatch.setattr(frameworks, "FRAMEWORKS", dict.fromkeys(("ms_swift", "verl"), TrlFramework))
    knobs = {"micro_batch_size": 2, "gradient_accumulation_steps": 16, "sequence_parallel_size": 2}
    whole = with_config(asked(framework=framework), imported(knobs=knobs), FIELDS, 8)
    assert whole.rows_per_update == 4 * 2 * 16
    assert whole.baseline == knobs
    fewer = with_config(asked(framework=framework, rows_per_update=64), imported(knobs=knobs), FIELDS, 8)
    assert (fewer.rows_per_update, fewer.baseline["gradient_accumulation_steps"]) == (64, 8)

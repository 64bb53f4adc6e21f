"""Several training processes on a CPU: who they are, and what they may not be asked."""

from __future__ import annotations

from typing import Any

import pytest

from autotune.domain.differences import differing
from autotune.errors import UsageError
from autotune.specification import build
from search_spaces.batch import batch_of, training_gpus
from search_spaces.configuration import Configuration, Resources
from search_spaces.legality import check
from tests.support import factories

CPU = Resources(cpu_cores=4, cpu_ranks=2)
GPU = Resources(gpus=2, device="cuda", compute_capability=(9, 0), cpu_ranks=2)


def said(resources: Resources, **values: Any) -> dict[str, str]:
    return {violation.rule: violation.sentence for violation in check(Configuration(values), resources)}


def test_ranks_of_a_cpu_train_and_on_gpus_every_gpu_does() -> None:
    assert Resources().training_processes == 1
    assert CPU.training_processes == 2
    assert GPU.training_processes == 2
    assert Resources(gpus=4, nodes=2, cpu_ranks=7).training_processes == 8
    assert Resources(cpu_ranks=3, nodes=2).training_processes == 6


def test_the_batch_is_of_all_ranks() -> None:
    values = {"micro_batch_size": 3, "gradient_accumulation_steps": 5}
    assert batch_of(values, CPU).rows == 30
    assert batch_of(values, Resources()).rows == 15


def test_a_rollout_server_takes_no_rank_from_a_cpu() -> None:
    assert training_gpus({"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": 1}, CPU) == 2


def test_groups_are_whole_over_all_ranks() -> None:
    found = said(CPU, micro_batch_size=1, gradient_accumulation_steps=1, num_generations=4)
    assert "2 training processes × micro-batch 1 = 2 is not divisible by num_generations 4" in found["whole_groups"]


def test_two_studies_with_other_ranks_are_two_studies() -> None:
    one, two = (factories.study_spec(resources=factories.resources(cpu_ranks=n)) for n in (1, 2))
    assert one.digest != two.digest
    assert differing(one.identity(), two.identity()) == ["resources.cpu_ranks: 1 -> 2"]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_that_are_asked_for_are_had(ranks: int) -> None:
    assert build.ranked(Resources(cpu_cores=4), ranks).training_processes == ranks


def test_nothing_said_is_one_rank() -> None:
    assert build.ranked(Resources(cpu_cores=4), None) == Resources(cpu_cores=4)


@pytest.mark.parametrize("ranks", [0, -1, 5])
def test_more_ranks_than_cores_or_none_at_all_are_refused(ranks: int) -> None:
    with pytest.raises(UsageError, match=rf"--ranks {ranks}: expected a number from 1 to 4; this machine has 4 cores"):
        build.ranked(Resources(cpu_cores=4), ranks)


def test_on_a_gpu_machine_every_gpu_trains() -> None:
    with pytest.raises(UsageError, match="--ranks is for runs on a CPU"):
        build.ranked(Resources(gpus=1, device="cuda", cpu_cores=8), 2)

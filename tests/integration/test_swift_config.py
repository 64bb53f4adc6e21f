"""What is exported to Megatron-SWIFT against ms-swift 4.6 itself: its own parser and its own checks.

Megatron-Core is stood in for (``tests/support/swift_megatron_checks.py``); nothing is trained.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
import yaml

from tests.support.megatron_examples import EXAMPLES
from tests.support.swift_megatron_cases import Combination, legal, some
from tests.support.swift_trials import swift_python
from trainer.frameworks import ms_swift
from trainer.frameworks.common.fields import words_of

ROOT = Path(__file__).resolve().parents[2]
CHECKS = ROOT / "tests" / "support" / "swift_megatron_checks.py"
LEGAL, WILD = 120, 200
REASONS = {
    "must be divisible by dp_size": "swift_megatron_prompts",
    "must be divisible by micro_batch_size": "swift_megatron_prompts",
    "must be divisible by num_generations": "whole_groups",
    "per_device_num_rollout_prompt (0) must be >= 1": "whole_groups",
    "per_device_generation_batch_size (0) must be >= 1": "swift_megatron_rows",
    "pipeline_model_parallel_size must be greater than 1": "swift_megatron_stages",
}
"""What Megatron-SWIFT says -> the rule that has to have said it before."""

pytestmark = [pytest.mark.full, pytest.mark.frameworks, pytest.mark.timeout(900)]


class Swift:
    """One process of ms-swift's interpreter, asked line by line: it takes long to import."""

    def __init__(self, errors: Path) -> None:
        self._errors = errors
        self._process = subprocess.Popen(
            [swift_python(), str(CHECKS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors.open("w"),
            text=True, env={**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""},
        )  # fmt: skip

    def says(self, words: list[str], gpus: int) -> str:
        self._process.stdin.write(json.dumps({"words": words, "gpus": gpus}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, self._errors.read_text()[-4000:]
        return str(json.loads(answer))

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    process = Swift(tmp_path_factory.mktemp("swift") / "stderr.txt")
    yield process
    process.end()


def words(case: Combination) -> list[str]:
    keys = yaml.safe_load(ms_swift.export(case.wanted()).files["grpo.yaml"])
    keys.pop("ENV", None)
    return words_of(keys)


def test_megatron_swift_accepts_every_legal_combination(swift: Swift) -> None:
    random = Random(8)
    for case in (legal(random) for _ in range(LEGAL)):
        assert swift.says(words(case), case.training) == "", case.configuration


def test_what_it_refuses_the_rules_have_refused_for_the_same_reason(swift: Swift) -> None:
    random, met = Random(9), set()
    for case in (some(random, whole=False) for _ in range(WILD)):
        try:
            argv = words(case)
        except ValueError:
            assert "swift_megatron_updates" in case.rules
            continue
        answer = swift.says(argv, case.training)
        reason = next((text for text in REASONS if text in answer), "")
        if "megatron_world" in case.rules:  # what it says of rows then follows from that
            continue
        assert answer == "" or reason, answer
        if reason:
            met.add(reason)
            assert REASONS[reason] in case.rules, (answer, case.configuration)
    assert {REASONS[reason] for reason in met} >= {"swift_megatron_prompts", "whole_groups", "swift_megatron_stages"}


def test_what_a_user_can_get_wrong_is_refused_by_it_too(swift: Swift) -> None:
    """What an import, or a rule beside it, refuses by name."""
    case = legal(Random(1))
    for more, text in (
        (["--num_iterations", "2"], "num_iterations > 1 is not supported"),
        (["--async_generate", "true"], "async_generate is not supported"),
        (["--sync_ref_model", "true"], "sync_ref_model is not supported"),
        (["--use_vllm", "false"], "use_vllm must be True"),
        (["--truncation_strategy", "right"], "GRPO requires"),
        (["--recompute_granularity", "selective", "--recompute_method", "block"], "recompute method is not yet"),
        (["--per_device_train_batch_size", "2"], "unknown: "),
        (["--padding_free", "true", "--group_by_length", "true"], "not compatible with padding_free"),
        (["--sequence_parallel", "false", "--tp_comm_overlap", "true"], "can happen only when"),
    ):
        assert text in swift.says([*words(case), *more], case.training), more


@pytest.mark.parametrize("name", [name for name, example in EXAMPLES.items() if example.of == "ms_swift"])
def test_its_own_examples_have_arguments_that_it_takes(swift: Swift, name: str) -> None:
    """Also that the settings kept of them are of this version."""
    example = EXAMPLES[name]
    answer = swift.says(example.text.partition("megatron rlhf ")[2].replace("\\\n", "").split(), example.gpus)
    assert (answer == "") is not bool(example.rules), answer

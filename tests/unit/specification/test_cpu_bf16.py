"""A CPU without instructions for bf16: nobody waits for what a framework does, and what the user says counts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune import wiring
from autotune.domain import Resources
from autotune.machine import hardware
from autotune.settings import read_settings
from autotune.specification import build, cpu_bf16
from autotune.specification.request import Request, ResolvedRequest
from search_spaces import legality
from search_spaces.space import SearchSpace
from tests.support.node import Node
from trainer.child.contract import RewardSpec

HERE = Resources(cpu_cores=2, rows_per_update=8, num_generations=8)
PRESET = SearchSpace.load("cpu")
OWN = SearchSpace.from_json({"knobs": {"precision": ["bf16", "fp32"], "micro_batch_size": [4, 8]}})
ASKED = ResolvedRequest(
    model="/model", task="chain_sum", rows_per_update=8, max_completion_length=32, max_prompt_length=64
)


def computes_in(space: SearchSpace, request: ResolvedRequest = ASKED) -> set[Any]:
    """What candidates compute in, the baseline among them."""
    here = replace(HERE, framework=request.framework)
    baseline = build.baseline_of(request, space, here)
    assert not legality.check(baseline, here)
    rows = space.candidates(baseline, here, same_learning=False)
    assert baseline in rows
    return {(row.get("precision"), row.get("master_weights")) for row in rows}


def test_the_preset_is_searched_in_fp32() -> None:
    request, space, said = cpu_bf16.avoided(ASKED, PRESET)
    assert computes_in(space, request) == {("fp32", "fp32")}
    assert len(computes_in(PRESET)) == 3, "as elsewhere"
    assert request.baseline["precision"] == "fp32"
    assert "baseline computes in fp32" in said
    assert "left out" in said
    assert set(space.values) == set(PRESET.values) - {"precision", "master_weights"}


def test_a_space_of_ones_own_is_searched_as_it_is() -> None:
    request, space, said = cpu_bf16.avoided(replace(ASKED, space="own.yaml"), OWN)
    assert space is OWN
    assert request.baseline["precision"] == "fp32"
    assert "left out" not in said
    assert {precision for precision, _ in computes_in(space, request)} == {"bf16", "fp32"}


@pytest.mark.parametrize("name", ["precision", "master_weights"])
def test_who_says_bf16_gets_it(name: str) -> None:
    asked = replace(ASKED, baseline={name: "bf16"})
    request, space, said = cpu_bf16.avoided(asked, PRESET)
    assert (request, space) == (asked, PRESET)
    assert "expect long trials" in said


def test_a_configuration_is_the_baseline_whatever_it_takes() -> None:
    asked = replace(ASKED, config="bf16: true", config_name="own.yaml", space="own-space.yaml")
    request, space, said = cpu_bf16.avoided(asked, OWN)
    assert (request, space) == (asked, OWN)
    assert "expect long trials" in said


def test_a_space_that_fixes_bf16_is_not_contradicted() -> None:
    fixed = SearchSpace.from_json({"knobs": {"precision": "bf16", "micro_batch_size": [4, 8]}})
    asked = replace(ASKED, space="own.yaml")
    assert cpu_bf16.avoided(asked, fixed)[:2] == (asked, fixed)


def test_who_says_fp32_is_told_nothing_of_the_baseline() -> None:
    asked = replace(ASKED, baseline={"precision": "fp32"}, space="own.yaml")
    assert cpu_bf16.avoided(asked, OWN) == (asked, OWN, "")


def test_a_framework_that_holds_bf16_weights_begins_in_fp32_too() -> None:
    request, _, _ = cpu_bf16.avoided(replace(ASKED, framework="ms_swift", space="own.yaml"), OWN)
    assert request.baseline == {"precision": "fp32", "master_weights": "fp32"}


def test_one_that_computes_in_fp32_by_itself_is_left_alone() -> None:
    asked = replace(ASKED, framework="open_r1", space="own.yaml")
    assert cpu_bf16.avoided(asked, OWN) == (asked, OWN, "")


@pytest.mark.parametrize("emulates", [True, False])
def test_a_study_asks_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emulates: bool) -> None:
    node, said = Node(tmp_path, ()), []
    monkeypatch.setattr(hardware, "emulates_bf16", lambda: emulates)
    request = Request(
        model=str(node.model),
        data=str(tmp_path / "prompts.jsonl"),
        rewards=(RewardSpec("file", "score", str(tmp_path / "my_reward.py")),),
        python=str(node.python),
        gpus=0,
    )
    prepared = wiring.prepare(request, read_settings(home=node.home), said.append)
    assert prepared.spec.baseline["precision"] == ("fp32" if emulates else "bf16")
    assert any(cpu_bf16.WHY in words for words in said) is emulates
    assert isinstance(prepared.spec.space["knobs"]["precision"], list) is not emulates

"""Every key of verl's own configuration is honoured, refused by its line, or done without, and there is no fourth way.

The keys and their defaults are those of ``verl/trainer/config/_generated_ppo_trainer.yaml`` (``tests/fixtures``).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.frameworks.common.config_entries import ConfigError, Imported
from trainer.frameworks.verl.hydra import as_hydra
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.key_handling import INPUTS, MEASURING
from trainer.frameworks.verl.key_tables import BESIDE

DEFAULTS: dict[str, Any] = json.loads((Path(__file__).parents[2] / "fixtures" / "verl_fields.json").read_text())[
    "fields"
]
BASE = {
    "algorithm.adv_estimator": "grpo",
    "trainer.n_gpus_per_node": 4,
    "data.train_batch_size": 96,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 24,
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 1,
    "actor_rollout_ref.rollout.n": 3,
    "actor_rollout_ref.rollout.name": "vllm",
    "reward.custom_reward_function.path": "rewards.py",
}
BESIDES = {"actor_rollout_ref.actor.fsdp_config.pad_to_length_bucket": {"actor_rollout_ref.actor.pad_to_length": True}}
"""Key -> those without which verl does not look at it."""
FOLLOWING = {key for keys in BESIDE.values() for key in keys if key.startswith("actor_rollout_ref.ref.")}
"""The reference model's, which a trial gives what the actor has."""


def others(default: Any) -> list[Any]:
    """Values that differ from the default, of a kind that such a key may have."""
    if default == DEFAULTS["trainer.n_gpus_per_node"]:
        return [2, 9]
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [default + 1]
    if isinstance(default, float):
        return [default / 2 + 0.125]
    if isinstance(default, list):
        return [["other"]]
    if isinstance(default, dict):
        return [{"other": 1}]
    return ["other"] if isinstance(default, str) and "${" not in default else ["other", 3, True]


def read(more: dict[str, Any]) -> Imported:
    return import_config("\n".join(f"{key}={as_hydra(value)}" for key, value in {**BASE, **more}.items()), "run.txt")


def way(key: str, value: Any) -> str:
    """What becomes of ``key=value``."""
    plain = read(BESIDES.get(key, {}))
    try:
        found = read({**BESIDES.get(key, {}), key: value})
    except ConfigError as error:
        return "refused" if key in str(error) else f"refused by {error}"
    if isinstance(value, dict) and found.passthrough.get(f"{key}.other") == value["other"]:
        return "honoured"
    if found.passthrough.get(key, ...) == value:
        return "done without" if key in MEASURING else "honoured"
    if dict(found.knobs) != dict(plain.knobs):
        return "a knob"
    inputs = (found.model, found.rewards, found.max_prompt_length, found.max_completion_length, found.processes)
    same = inputs == (plain.model, plain.rewards, plain.max_prompt_length, plain.max_completion_length, plain.processes)
    if INPUTS & {key, f"reward.{key}"} and (not same or found.dataset.get(key) == value):
        return "an input"
    return "told" if key in FOLLOWING and any(key in note for note in found.notes) else "lost"


def test_no_key_of_verls_is_lost() -> None:
    ways = {(key, str(value)): way(key, value) for key in DEFAULTS for value in others(DEFAULTS[key])}
    known = {"refused", "honoured", "done without", "a knob", "an input", "told"}
    assert len(DEFAULTS) > 800
    assert {each: found for each, found in ways.items() if found not in known} == {}
    assert set(ways.values()) == known


def test_a_lost_key_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "actor_rollout_ref.rollout.top_p"
    assert way(key, 0.5) == "honoured"
    monkeypatch.setattr(sys.modules["trainer.frameworks.verl.import_config"], "rest", lambda _: {})
    assert way(key, 0.5) == "lost"

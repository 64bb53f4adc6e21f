"""Run by verl's own interpreter: what verl says to overrides, and what its file logger writes.

Each line of stdin is a JSON object, each answer a line of JSON: ``{"compose": [override, ...]}`` is answered by
``{"error": ..., "values": ...}``, ``{"log": FILE}`` by what the figures written to FILE were made from, ``{"train":
[override, ...], "solutions": [...]}`` by verl's own prompts and the scores of one solution for each, and
``{"describe": 1}`` by its keys.
"""

from __future__ import annotations

import contextlib
import copy
import json
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_module
from hydra._internal.config_repository import CachingConfigRepository
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from verl import DataProto
from verl.trainer.ppo.metric_utils import compute_data_metrics, compute_throughout_metrics, compute_timing_metrics
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.trainer.ppo.utils import need_critic, need_reference_policy
from verl.utils.config import omega_conf_to_dataclass, validate_config
from verl.utils.dataset.rl_dataset import get_dataset_class
from verl.utils.tracking import Tracking
from verl.workers.config import FSDPActorConfig, McoreActorConfig, RolloutConfig

FILES: dict[str, Any] = {}
MISSING = "???"
"""What OmegaConf writes where a value has to be given."""
WORDS = {bool: "bool", int: "int", float: "float", str: "str", list: "list[any]", dict: "dict"}
PARSED: dict[tuple[str, str], Any] = {}
_parse = OverridesParser.parse_rule


def read_once(self: Any, config_path: str) -> Any:
    """Hydra reads each of verl's files once, instead of once for every combination."""
    if config_path not in FILES:
        FILES[config_path] = self.delegate.load_config(config_path=config_path)
    return copy.deepcopy(FILES[config_path])


def parse_once(self: Any, text: str, rule_name: str) -> Any:
    """Hydra parses each override once: most are the same in every combination."""
    if (text, rule_name) not in PARSED:
        PARSED[text, rule_name] = _parse(self, text, rule_name)
    return PARSED[text, rule_name]


def configured(overrides: list[str]) -> Any:
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[word for word in overrides if not word.startswith("hydra.")])


def composed(overrides: list[str]) -> dict[str, Any]:
    answer: dict[str, Any] = {"error": "", "values": {}}
    keys = [override.partition("=")[0].lstrip("+") for override in overrides]
    try:
        config = configured(overrides)
        check(config)
        for key in keys:
            if not key.startswith("hydra."):
                value = OmegaConf.select(config, key)
                plain = OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
                answer["values"][key] = plain
    except Exception as error:
        answer["error"] = f"{type(error).__name__}: {error}"
    return answer


def check(config: Any) -> None:
    """What main_ppo and the workers check before a model is loaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        validate_config(config, need_reference_policy(config), need_critic(config))
        made = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
        assert isinstance(made, McoreActorConfig if config.model_engine == "megatron" else FSDPActorConfig)
        assert isinstance(omega_conf_to_dataclass(config.actor_rollout_ref.rollout), RolloutConfig)
        omega_conf_to_dataclass(config.algorithm)
    rollout, actor = config.actor_rollout_ref.rollout, config.actor_rollout_ref.actor
    # verl/workers/engine_workers.py:616-637, where only bare assertions stand
    assert actor.use_dynamic_bsz == rollout.log_prob_use_dynamic_bsz
    assert rollout.log_prob_max_token_len_per_gpu is not None
    assert rollout.log_prob_micro_batch_size_per_gpu is not None
    assert actor.ppo_micro_batch_size_per_gpu is not None
    assert made.engine.strategy == actor.strategy


def trained_on(overrides: list[str], solutions: list[str]) -> list[dict[str, Any]]:
    """Prompts and scores as verl's data loader and reward workers would have them."""
    config = configured(overrides)
    prompts = get_dataset_class(config.data)(data_files=config.data.train_files, tokenizer=None, config=config.data)
    score = get_custom_reward_fn(config)
    answers = []
    for row, solution in zip(prompts, solutions, strict=True):
        columns = {"data_source": row["data_source"], "extra_info": row["extra_info"]}
        found = score(solution_str=solution, ground_truth=row["reward_model"]["ground_truth"], **columns)
        answers.append({"prompt": row["raw_prompt"], "score": found})
    return answers


def log(path: str) -> list[list[float]]:
    """Three steps by verl's own functions into ``path``; tokens of prompts and completions and the score of each."""
    os.environ["VERL_FILE_LOGGER_PATH"] = path
    logger = Tracking(project_name="p", experiment_name="e", default_backend=["file"], config={})
    logger.log({"val-core/acc": 0.5}, step=0)
    generator = torch.Generator().manual_seed(0)
    truth = []
    for step in (1, 2, 3):
        batch, asked, given, scores = batch_of(generator)
        timing = {"step": 10.0, "gen": 4.0, "old_log_prob": 1.0, "ref": 0.5, "adv": 0.25, "update_actor": 3.0}
        timing["update_weights"] = 0.75
        metrics = {"training/global_step": step, "actor/loss": np.float64(0.1), "actor/grad_norm": np.float32(1.5)}
        metrics.update({"actor/perf/max_memory_allocated_gb": np.float64(1.5), "actor/lr": float("nan")})
        metrics.update(compute_data_metrics(batch=batch, use_critic=False))
        metrics.update(compute_timing_metrics(batch=batch, timing_raw=timing))
        metrics.update(compute_throughout_metrics(batch=batch, timing_raw=timing, n_gpus=2))
        logger.log(metrics, step=step)
        truth.append([int(asked.sum()), int(given.sum()), float(scores.sum(-1).mean())])
    logger.finish(exit_code=0)
    return truth


def batch_of(generator: Any) -> tuple[Any, Any, Any, Any]:
    """(verl's batch of 16 rows, tokens of each prompt, tokens of each completion, scores)."""
    rows, prompt, response = 16, 12, 20
    asked = torch.randint(3, prompt + 1, (rows,), generator=generator)
    given = torch.randint(1, response + 1, (rows,), generator=generator)
    before = (torch.arange(prompt).unsqueeze(0) >= (prompt - asked).unsqueeze(1)).long()
    mask = (torch.arange(response).unsqueeze(0) < given.unsqueeze(1)).long()
    scores = torch.zeros((rows, response))
    scores[:, 0] = torch.rand(rows, generator=generator)
    data = {
        "prompts": torch.zeros((rows, prompt), dtype=torch.long),
        "responses": torch.zeros((rows, response), dtype=torch.long),
        "attention_mask": torch.cat([before, mask], dim=1),
        "response_mask": mask,
        **dict.fromkeys(("token_level_scores", "token_level_rewards", "advantages", "returns"), scores),
        "prompt_length": asked.float(),
        "response_length": given.float(),
    }
    batch = DataProto.from_dict(tensors=data)
    batch.meta_info["global_token_num"] = (asked + given).tolist()
    return batch, asked, given, scores


def described() -> dict[str, dict[str, Any]]:
    """Dotted key -> type word, default, whether it has none, and the part of verl it belongs to.

    A key that is null, or takes another key's value, may hold anything.
    """
    return {key: field(key, value) for key, value in leaves(OmegaConf.to_container(configured([]), resolve=False))}


def leaves(mapping: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in mapping.items():
        key = before + str(name)
        if isinstance(value, dict) and value:
            yield from leaves(value, key + ".")
        else:
            yield key, value


def field(key: str, value: Any) -> dict[str, Any]:
    free = value is None or (isinstance(value, str) and "${" in value)
    return {
        "type": "any" if free else WORDS[type(value)],
        "default": None if free or value == MISSING else value,
        "unset": value == MISSING,
        "group": key.partition(".")[0],
    }


def answer_to(asked: dict[str, Any]) -> Any:
    if "describe" in asked:
        return described()
    if "train" in asked:
        return trained_on(asked["train"], asked["solutions"])
    return log(asked["log"]) if "log" in asked else composed(asked["compose"])


def main() -> None:
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            print(json.dumps(answer_to(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    CachingConfigRepository.load_config = read_once
    OverridesParser.parse_rule = parse_once
    main()

"""Run by verl's own interpreter with a trial's words and environment: what verl makes of them, but for the engine.

``python verl_trial_checks.py WORD...`` prints a line of JSON: numbers of the prompts, and scores. Completions are told
where a trial looks for them. The agent loop is found, made and run as by verl's worker; what stands in for the engine
writes as many tokens as it is asked for, and five where nobody asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from typing import Any

from hydra import compose, initialize_config_module
from verl.experimental.agent_loop.agent_loop import AgentLoopWorker
from verl.trainer.ppo.reward import get_custom_reward_fn
from verl.utils.dataset.rl_dataset import get_dataset_class
from verl.workers.rollout.replica import TokenOutput

LETTER = 40
"""A token of the tiny model's that is a letter."""


class Engine:
    async def generate(self, request_id: str, *, prompt_ids: list[int], sampling_params: Any, **others: Any) -> Any:
        del request_id, prompt_ids, others
        asked = sampling_params.get("max_tokens", 5) if sampling_params.get("ignore_eos") else 5
        return TokenOutput(token_ids=[LETTER] * asked)


class Worker(AgentLoopWorker):  # type: ignore[misc]
    async def _agent_loop_postprocess(self, output: Any, validate: bool, **kwargs: Any) -> Any:
        del validate, kwargs
        return output


async def rolled_out(config: Any, prompts: Any) -> list[float]:
    """All completions of the trial, step by step."""
    worker, score = Worker(config, Engine()), get_custom_reward_fn(config)
    rollout = config.actor_rollout_ref.rollout
    own = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": False}
    scores = []
    for number in range(len(prompts)):
        row = prompts[number]
        step = number // config.data.train_batch_size + 1
        where = {"step": step, "sample_index": row["index"], "rollout_n": 0, "validate": False}
        for session in range(rollout.n):
            columns = {**row, "global_steps": step, "session_id": session, "uid": f"u{number}"}
            name = rollout.agent.default_agent_loop
            output = await worker._run_agent_loop(dict(own), where, agent_name=name, trace=False, **columns)
            text = worker.tokenizer.decode(output.response_ids)
            truth = row["reward_model"]["ground_truth"]
            scores.append(score(data_source="x", solution_str=text, ground_truth=truth, extra_info=row["extra_info"]))
    return scores


def main() -> None:
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        words = [word for word in sys.argv[1:] if not word.startswith("hydra.")]
        with initialize_config_module("verl.trainer.config", version_base=None):
            config = compose("ppo_trainer", overrides=words)
        made = get_dataset_class(config.data)
        prompts = made(data_files=config.data.train_files, tokenizer=None, config=config.data)
        scores = asyncio.run(rolled_out(config, prompts))
        numbers = [prompts[number]["index"] for number in range(len(prompts))]
    print(json.dumps({"numbers": numbers, "scores": scores}), file=answers)


if __name__ == "__main__":
    main()

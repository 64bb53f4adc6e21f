"""The same completions for every configuration: run by the training interpreter.

Which completion row i of a prompt's group gets depends on the prompt and i alone, so that it does not
matter into how many generations, micro-batches or ranks an update is cut.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Sequence
from typing import Any

EOS = 1
FIRST, LAST = 3, 258
"""Ordinary tokens of the tiny model."""


def completion(prompt: Sequence[int], member: int, longest: int) -> list[int]:
    """Tokens of one completion: lengths 1 to ``longest``, two of three ended by the end of sequence."""
    draw = random.Random(f"{list(prompt)} {member}")
    length = draw.randint(1, longest)
    tokens = [draw.randint(FIRST, LAST) for _ in range(length)]
    if draw.random() < 2 / 3:
        tokens[-1] = EOS
    return tokens


def inject(trainer: Any, rank: int, before: Any = None) -> None:
    """Replace what ``trainer`` generates, log-probs included where it asks the engine for them.

    Args:
        before: told the prompts of each generation, before they are answered.
    """

    @functools.wraps(trainer._generate_single_turn)
    def recorded(prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        if before is not None:
            before(prompt_ids, *args, **kwargs)
        first = rank * len(prompt_ids)
        members = [(first + row) % trainer.num_generations for row in range(len(prompt_ids))]
        found = [
            completion(prompt, member, trainer.max_completion_length)
            for prompt, member in zip(prompt_ids, members, strict=True)
        ]
        return found, policy_logprobs(trainer, prompt_ids, found) if trainer.use_vllm else None

    trainer._generate_single_turn = recorded


def policy_logprobs(trainer: Any, prompts: Any, completions: Any) -> list[list[float]]:
    """Log-prob of each completion token under the policy as it is now, row by row and without TRL's tiles."""
    import torch  # noqa: PLC0415  (the training interpreter only)

    model = trainer.accelerator.unwrap_model(trainer.model)
    found = []
    with torch.no_grad():
        for prompt, tokens in zip(prompts, completions, strict=True):
            logits = model(input_ids=torch.tensor([[*prompt, *tokens]])).logits[0].float()
            scores = torch.log_softmax(logits[len(prompt) - 1 : -1] / trainer.temperature, dim=-1)
            found.append([scores[i, token].item() for i, token in enumerate(tokens)])
    return found

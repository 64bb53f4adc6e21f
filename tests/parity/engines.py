"""vLLM engines for many trainers of one process, and what they answer: run by the training interpreter."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from rollouts import policy_logprobs

ENGINES: dict[str, Any] = {}
"""By their arguments: one takes longer to build than everything else a case does."""
ARGUMENTS: dict[str, Any] = {}
"""Of the engine asked for last."""


def reuse(generation: Any) -> Any:
    """Let the module TRL builds engines in build each once; returns what puts it back."""
    original = generation.LLM

    @functools.wraps(original)
    def once(*args: Any, **kwargs: Any) -> Any:
        ARGUMENTS.clear()
        ARGUMENTS.update(kwargs)
        key = repr((args, sorted(kwargs.items())))
        if key not in ENGINES:
            ENGINES[key] = original(*args, **kwargs)
        return ENGINES[key]

    generation.LLM = once
    return functools.partial(setattr, generation, "LLM", original)


def module() -> Any:
    """Where TRL builds its engines."""
    return importlib.import_module("trl.generation.vllm_generation")


class Asked:
    """What the rollout really generates before it is replaced, and how likely the policy thinks it is."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._turn = trainer._generate_single_turn
        self.mismatch: list[float] = []
        """Largest |log-prob of the rollout - log-prob of the policy| of any token, generation by generation."""
        self.completions: list[list[list[int]]] = []

    def __call__(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> None:
        completions, said = self._turn(prompt_ids, *args, **kwargs)
        self.completions.append([list(map(int, tokens)) for tokens in completions])
        if said is None:
            return
        known = policy_logprobs(self._trainer, prompt_ids, completions)
        pairs = [(a, b) for one, other in zip(said, known, strict=True) for a, b in zip(one, other, strict=True)]
        self.mismatch.append(max(abs(a - b) for a, b in pairs))

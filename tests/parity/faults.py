"""Trainers that are wrong on purpose, so that the suite can be seen to notice: run by the training interpreter."""

from __future__ import annotations

import functools
from typing import Any


def mean_of_means(trainer: Any) -> None:
    """Each micro-batch is divided by its own tokens, then by their number: the classic mistake of accumulation."""
    compute = trainer.compute_loss

    @functools.wraps(compute)
    def compute_loss(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        own = inputs["completion_mask"].sum()
        share = inputs["num_items_in_batch"] / trainer.args.steps_per_generation
        return compute(model, inputs, *args, **kwargs) * share / own

    trainer.compute_loss = compute_loss


def divided_twice(trainer: Any) -> None:
    """The loss, already of a whole update, is divided by the accumulation once more."""
    compute = trainer.compute_loss

    @functools.wraps(compute)
    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        return compute(*args, **kwargs) / trainer.args.gradient_accumulation_steps

    trainer.compute_loss = compute_loss


def lost_micro_batch(trainer: Any) -> None:
    """The gradient of the first micro-batch of each update is forgotten."""
    compute = trainer.compute_loss
    calls = [0]

    @functools.wraps(compute)
    def compute_loss(*args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        first = calls[0] % trainer.args.gradient_accumulation_steps == 1
        return compute(*args, **kwargs) * (0.0 if first else 1.0)

    trainer.compute_loss = compute_loss


def stale_weights(trainer: Any) -> None:
    """The engine gets the first weights and never again any."""
    generation = trainer.vllm_generation
    sync = generation.sync_weights
    calls = [0]

    @functools.wraps(sync)
    def once(*args: Any, **kwargs: Any) -> None:
        calls[0] += 1
        if calls[0] == 1:
            sync(*args, **kwargs)

    generation.sync_weights = once


def kept_prefixes(trainer: Any) -> None:
    """The engine gets new weights, and keeps what it remembers of prompts under the first ones."""
    generation = trainer.vllm_generation
    llm, sync = generation.llm, generation.sync_weights
    calls = [0]

    @functools.wraps(sync)
    def forgetting_nothing(*args: Any, **kwargs: Any) -> None:
        calls[0] += 1
        forget = llm.reset_prefix_cache
        if calls[0] > 1:
            llm.reset_prefix_cache = lambda *_, **__: True
        try:
            sync(*args, **kwargs)
        finally:
            llm.reset_prefix_cache = forget  # the engine serves other trainers after this one

    generation.sync_weights = forgetting_nothing


FAULTS = {
    fault.__name__: fault for fault in (mean_of_means, divided_twice, lost_micro_batch, stale_weights, kept_prefixes)
}

"""What a study of the campaign is, drawn from a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

SPACES = {
    "one GPU": (
        "require: {device: cuda, gpus: 1}\nknobs:\n  micro_batch_size: [1, 2, 4, 8]\n  precision: [fp32, bf16]\n"
    ),
    "split": (
        "require: {device: cuda, gpus: 2}\nknobs:\n  rollout_engine: vllm\n  rollout_mode: [colocate, server]\n"
        "  rollout_gpus: 1\n  gpu_memory_utilization: [0.3, 0.6]\n  micro_batch_size: [1, 2, 8]\n"
    ),
    "real": "knobs:\n  micro_batch_size: [2, 4]\n  gradient_checkpointing: [true, false]\n",
}
REAL_EVERY = 15
"""One study of so many is of real trials, where there is a training interpreter."""


@dataclass(frozen=True)
class Plan:
    """One study."""

    space: str
    at_once: int = 1
    gpus: int = 1
    """Of the machine."""
    trials: int = 3
    sampler: str = "grey"
    grace_s: int = 10
    database: str = "sqlite"
    small_disk: bool = False
    """The home lies on a file system of its own, which can be filled."""
    served: bool = False
    """A server of the page is there, and somebody listens to it."""

    @property
    def real(self) -> bool:
        return self.space == "real"

    @property
    def undisturbed(self) -> Plan:
        """The same search where nothing happens, on as many GPUs as it needs."""
        return Plan(self.space, self.at_once, 2 if self.space == "split" else 1, self.trials, self.sampler)


def is_real(number: int, *, real: bool) -> bool:
    """Whether the ``number``-th study is of real trials."""
    return real and number % REAL_EVERY == REAL_EVERY // 2


def drawn(rng: random.Random, number: int, *, real: bool, disk: bool) -> Plan:
    """The ``number``-th study; ``real`` and ``disk``: such studies can be had here."""
    if is_real(number, real=real):
        return Plan("real", gpus=0, trials=2, grace_s=25, served=rng.random() < 0.5)
    space = rng.choice(["one GPU", "one GPU", "one GPU", "split"])
    at_once = rng.choice([1, 1, 2]) if space == "one GPU" else 1
    return Plan(
        space=space,
        at_once=at_once,
        gpus=at_once + rng.randint(0, 1) if space == "one GPU" else rng.randint(2, 3),
        trials=rng.randint(3, 4),
        sampler=rng.choice(["grey", "tpe"]),
        grace_s=rng.choice([5, 10, 25]),
        database=rng.choice(["sqlite"] * 4 + ["postgresql"]),
        small_disk=disk and rng.random() < 0.5,
        served=rng.random() < 0.25,
    )

"""Input of a plan: model, machine, lengths and rows, in the forms that legality and the forecasts take. Pure."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from autotune.domain import Configuration, Resources
from autotune.errors import UsageError
from autotune.forecast.answer import Load, Machine
from autotune.forecast.architecture import Architecture
from autotune.forecast.gpus import KnownGpu
from autotune.proposals.forecasts import Column, Task
from autotune.proposals.reading import columns_of
from autotune.proposals.times.lengths import PRESUMED_SHARE
from autotune.specification import build
from autotune.specification.on_paper import Paper
from autotune.specification.request import (
    GPU_SIZE,
    TRL_DEFAULT_GROUP,
    TRL_DEFAULT_MICRO_BATCH,
    ResolvedRequest,
    default_group,
    gpu_size,
)
from search_spaces.batch import BATCH_KNOBS, RANK_KNOBS, Batch, batch_of, served_by
from search_spaces.configuration import KnobValue
from search_spaces.frameworks import facts_of
from search_spaces.knobs import KNOBS, Effect, defaults
from search_spaces.knobs.megatron import ENGINE
from search_spaces.native import UNSET
from search_spaces.own_keys import RANKS, is_lora
from search_spaces.space import SearchSpace
from search_spaces.space_file import preset_for

MAX_PROMPT = 512
"""Default longest prompt in tokens."""
_OF_ROWS = (*BATCH_KNOBS, *RANK_KNOBS)
OF_MEGATRON = (
    "no trial trains with Megatron yet: its memory is by formula, beside four published runs, and its speed beside none"
)
"""Note on a space with Megatron."""
BF16_SINCE = (8, 0)
"""First compute capability with bf16."""
ROWS_OF_A_GPU = TRL_DEFAULT_MICRO_BATCH
"""Default rows of a GPU on several nodes; divisibility for every split of a node would need tens of thousands."""


@dataclass(frozen=True)
class PlanRequest:
    """The requested training; ``None``: not given."""

    model: str
    architecture: Architecture
    framework: str = "trl"
    rows_per_update: int | None = None
    num_generations: int | None = None
    max_prompt_length: int | None = None
    max_completion_length: int | None = None
    lora_rank: int | None = None

    def load(self, machine: Machine, space: SearchSpace | None = None) -> Load:
        """Returns the load on ``machine``; missing values have the defaults of ``autotune start``.

        Raises:
            UsageError: the requested number of completions per prompt is not in ``space``.
        """
        total = machine.total
        usual = gpu_size(total, total).rows_per_update if machine.nodes == 1 else ROWS_OF_A_GPU * total
        group = _group(space, self.num_generations, self.rows_per_update or usual)
        shared = math.lcm(group or 1, _at_once(space, total))
        if self.rows_per_update is None and usual % shared:
            usual = math.ceil(usual / shared) * shared
        rows = self.rows_per_update or usual
        longest = self.max_completion_length or GPU_SIZE.max_completion_length
        return Load(
            model=self.model,
            architecture=self.architecture,
            framework=self.framework,
            rows_per_update=rows,
            num_generations=group or min(TRL_DEFAULT_GROUP, rows),
            max_prompt_length=self.max_prompt_length or MAX_PROMPT,
            max_completion_length=longest,
            mean_completion=PRESUMED_SHARE * longest,
            lora_rank=self.lora_rank,
        )


def _at_once(space: SearchSpace | None, gpus: int) -> int:
    """Returns the fewest rows per update that the fixed micro-batch and rollout server of ``space`` allow."""
    fixed = space.fixed if space else Configuration({})
    return int(fixed.get("micro_batch_size", 1)) * max(1, gpus - int(fixed.get("rollout_gpus", 0)))


def _group(space: SearchSpace | None, wish: int | None, rows: int) -> int | None:
    """Returns the completions per prompt: the requested, else TRL's default or a divisor of rows in ``space``."""
    listed = [int(n) for n in space.own.get("num_generations", ())] if space else []
    if wish and listed and wish not in listed:
        raise UsageError(f"--num-generations {wish}: the space lists {', '.join(map(str, listed))}")
    whole = [n for n in (TRL_DEFAULT_GROUP, *listed) if n in listed and n and rows % n == 0]
    return wish or next(iter([*whole, *listed]), None)


def described(machine: Machine, gpu: KnownGpu) -> Resources:
    """Returns the machine's resources for legality checks; unknown software rules nothing out."""
    return Resources(
        gpus=machine.gpus,
        nodes=machine.nodes,
        device="cuda",
        device_memory=gpu.memory,
        compute_capability=gpu.compute_capability,
    )


def of_config(paper: Paper, architecture: Architecture, machine: Machine, gpu: KnownGpu) -> Question:
    """Returns the question about a user's own configuration."""
    own, framework = paper.request, paper.request.framework
    ranks = (own.passthrough.get(key) for key in RANKS) if is_lora(own.passthrough, framework) else iter(())
    load = Load(
        model=own.model,
        architecture=architecture,
        framework=framework,
        rows_per_update=own.rows_per_update,
        num_generations=int(own.baseline.get("num_generations", default_group(framework))),
        max_prompt_length=own.max_prompt_length or MAX_PROMPT,
        max_completion_length=own.max_completion_length,
        mean_completion=PRESUMED_SHARE * own.max_completion_length,
        lora_rank=next((int(rank) for rank in ranks if rank), None),
    )
    space = own.space or preset_for(machine.gpus, machine.nodes)
    return Question(load, machine, gpu, space, paper.space, paper.left_out, paper)


@dataclass(frozen=True)
class Question:
    """A load on a machine, and the space to choose from."""

    load: Load
    machine: Machine
    gpu: KnownGpu
    space_name: str
    space: SearchSpace
    left_out: str = ""
    """The knobs of a preset that the framework lacks, in a sentence; empty without one."""
    paper: Paper | None = None
    """The user's own configuration; ``None``: the question is about the space alone."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions and omissions of the plan, as sentences."""
        listed = (*self.space.values.get(ENGINE, ()), self.space.fixed.get(ENGINE))
        untried = OF_MEGATRON if "megatron" in listed else ""
        own = self.paper.notes if self.paper else ()
        return (*self.load.architecture.notes, *own, *filter(None, [self.left_out, untried]))

    @cached_property
    def resources(self) -> Resources:
        """Resources of the machine with the load."""
        load = self.load
        if self.paper:
            return build.resources_for(self.paper.machine, self.paper.request, load.architecture.facts, {})
        return replace(
            described(self.machine, self.gpu),
            framework=load.framework,
            rows_per_update=load.rows_per_update,
            num_generations=load.num_generations,
            max_prompt_length=load.max_prompt_length,
            max_completion_length=load.max_completion_length,
            model=load.architecture.facts,
        )

    @property
    def passthrough(self) -> Mapping[str, Any]:
        """Keys of a user's configuration that affect times and memory."""
        if self.paper:
            return self.paper.request.passthrough
        rank = self.load.lora_rank
        if rank is not None:
            return {"use_peft": True, "lora_r": rank}
        return {"tuner_type": "full"} if facts_of(self.load.framework).trains_adapters_by_default else {}

    def baseline(self) -> Configuration:
        """Returns the user's own configuration, or the framework's defaults for these rows on the space's fixed knobs.

        If all GPUs together cannot divide the rows, some of them serve the rollout, as far as the space allows.

        Raises:
            UsageError: these GPUs cannot divide the rows, or no trial could run the user's own configuration.
        """
        if self.paper:
            return self.paper.baseline(self.load.architecture.facts)
        try:
            return self._baseline({})
        except UsageError:
            for gpus in self._splits():
                with contextlib.suppress(UsageError):
                    return self._baseline(served_by(gpus))
            raise

    def _baseline(self, split: Mapping[str, KnobValue]) -> Configuration:
        load = self.load
        request = ResolvedRequest(
            framework=load.framework,
            baseline={**self._of_space(), "num_generations": load.num_generations, **self._launched(), **split},
            rows_per_update=load.rows_per_update,
            max_prompt_length=load.max_prompt_length,
            max_completion_length=load.max_completion_length,
        )
        return build.baseline_of(request, self.space, self.resources)

    def _of_space(self) -> Mapping[str, KnobValue]:
        """Returns the fixed knobs, and the first value of each learning knob whose default is not in the space."""
        unset = defaults(self.load.framework, "cuda")
        return {
            name: values[0]
            for name, values in self.space.own.items()
            if len(values) == 1 or (KNOBS[name].effect is not Effect.SPEED and unset.get(name, UNSET) not in values)
        }

    def _launched(self) -> Mapping[str, KnobValue]:
        """Returns the precision if the space fixes none: the framework's launch default, or fp16 on a GPU without bf16.

        Each of Open-R1's accelerate files has ``mixed_precision: bf16`` (``recipes/accelerate_configs``).
        """
        framework, capability = self.load.framework, self.gpu.compute_capability
        word = facts_of(framework).launched_in or defaults(framework, "cuda").get("precision")
        if word == "bf16" and capability is not None and capability < BF16_SINCE:
            word = "fp16"
        own = {name for name in ("precision", "master_weights") if name in self.space.own}
        if word is None or word == defaults(framework, "cuda").get("precision") or "precision" in own:
            return {}
        held = {"master_weights": "fp32"} if word == "fp16" and "master_weights" not in own else {}
        return {"precision": word, **held}

    def _splits(self) -> tuple[int, ...]:
        """Returns the numbers of GPUs that the space may give to a rollout server, ascending."""
        listed = {**self.space.values, **{name: (value,) for name, value in self.space.fixed.items()}}
        if "vllm" not in listed.get("rollout_engine", ()) or "server" not in listed.get("rollout_mode", ()):
            return ()
        return tuple(sorted(int(n) for n in listed.get("rollout_gpus", ()) if 0 < int(n) < self.machine.total))

    def tokens(self, configurations: Sequence[Configuration]) -> Column:
        """Returns the completion tokens of one cycle of each; a cycle ends when generations and updates coincide."""
        resources = self.resources
        columns = columns_of(tuple(configurations), resources.framework, resources.device)
        few, place = columns.different(_OF_ROWS)
        return np.array([self._tokens_of(batch_of(values, resources)) for values in few])[place]

    def _tokens_of(self, batch: Batch) -> float:
        updates = math.lcm(max(1, batch.steps), max(1, batch.accumulation)) // max(1, batch.accumulation)
        return batch.rows * updates * self.load.mean_completion

    def task(self, *, active: bool = False) -> Task:
        """Returns the input of the models. ``active`` counts only the active parameters of a mixture of experts."""
        shape, resources = self.load.architecture, self.resources
        facts = replace(
            resources.model,
            parameters=shape.active if active else shape.parameters,
            # The formulas take a head to be the width over the heads; where it is not, the cache's size is kept right.
            key_value_heads=max(1, round(shape.kv_heads * shape.head_size * shape.heads / shape.hidden_size)),
        )
        return Task(
            resources=replace(resources, model=facts),
            rows_per_update=self.load.rows_per_update,
            max_prompt_length=self.load.max_prompt_length,
            max_completion_length=self.load.max_completion_length,
            passthrough=self.passthrough,
        )

"""Determines the workload's size before the first trial: that of a stored study, or the largest within the budget.

``workload_size`` chooses the size; this module reads the store, measures the machine and truncates the model.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from autotune.domain import Protocol, Resources, StudySpec
from autotune.machine import hardware
from autotune.machine.data_sheets import Hardware
from autotune.proposals.forecasts import Task
from autotune.proposals.times import PhaseTimes, first_cycle_s, probed
from autotune.specification import build, workload_size
from autotune.specification.fewer_layers import first_layers, layers_of
from autotune.specification.interpreter import Interpreter
from autotune.specification.request import Request, ResolvedRequest, Size, study_name
from autotune.specification.resolve import Talk, prepared_prompts
from autotune.specification.workload_size import Pace, Plan, Workload
from search_spaces.configuration import ModelFacts
from search_spaces.space import SearchSpace
from trainer.child.contract import Result

Stored = Callable[[str], tuple[StudySpec, bool] | None]
"""Function that returns the study of a name, and whether a trial of it has ended, so that its workload is fixed."""
_BATCH = ("micro_batch_size", "gradient_accumulation_steps", "num_generations")
"""Knobs that determine the number of rows of an update."""


@dataclass(frozen=True)
class Open:
    """Sizes of the workload that the user left open, so that they may be reduced."""

    rows: bool = False
    tokens: bool = False
    model: bool = False

    @classmethod
    def of(cls, request: Request, machine: Resources, bundled: str) -> Open:
        """Returns the sizes that ``request`` leaves open; none if it names a configuration, a task or prompts."""
        if request.config is not None or request.published or request.task or request.data or request.dataset:
            return cls()
        rows = request.rows_per_update is None and not any(name in request.baseline for name in _BATCH)
        return cls(
            rows=rows and machine.training_processes <= 1,
            tokens=request.max_completion_length is None,
            model=bool(bundled) and _same(request.model or bundled, bundled) and not machine.gpus,
        )


@dataclass(frozen=True)
class Sized:
    """A request of settled size."""

    request: ResolvedRequest
    written: Result
    """Answer of ``Interpreter.prepare`` for the request's model and prompts."""
    words: str = ""
    """Sentence on the chosen size and its reason, or that the budget is too small; empty without one."""
    plan: Plan | None = None
    """Plan that determined the size, while the size may change; ``None``: it is fixed, or there is no forecast."""


@dataclass(frozen=True)
class Sizing:
    """Settles the size of one request."""

    python: Interpreter
    found: Result
    """Answer of ``Interpreter.probe``."""
    machine: Resources
    space: SearchSpace
    budget_s: float | None
    talk: Talk
    models: Path
    """Folder of cut models."""
    stored: Stored
    speed: Callable[[Mapping[str, Any], str], Result]
    """Returns the measured speed (``prior_knowledge.measuring``); used for a GPU, which no other program slows."""

    def settle(self, whole: ResolvedRequest, may: Open) -> Sized:
        """Returns ``whole``, with the sizes that the user left open reduced to fit the budget.

        A stored study of the same name takes precedence, so that the same command continues it whatever the machine's
        speed. Raises ``UsageError`` or ``MachineError``: model or prompts cannot be used.
        """
        spec, measured = self.stored(study_name(whole)) or (None, False)
        sized = Sized(whole, self._written(whole)) if spec is None else self._as_stored(whole, may, spec)
        if self.budget_s is None or measured or (device := self._present()) is None:
            return sized
        layers = layers_of(Path(whole.model)) if may.model else 0
        cuts = [n for n in (layers // 2, layers // 4) if n and (may.rows or may.tokens)]
        usual = Size(whole.rows_per_update, whole.max_completion_length)
        sizes = list(workload_size.ladder(usual, rows=may.rows, tokens=may.tokens, layers=cuts))
        if spec is not None:
            first = _stored_size(whole, may, spec, self.models)
            sizes = sizes[sizes.index(first) :] if first in sizes else [first]
        written = sized.written if spec is None else self._written(whole)
        steps = [(one, self._pace(whole, written, device, one, layers)) for one in sizes]
        if spec is not None:
            plan = Plan(tuple(steps), steps[0], self.budget_s, layers, sized.request.protocol)
            return replace(sized, plan=plan, words=sized.words or plan.too_small_words())
        plan = replace(workload_size.choose(steps, self.budget_s, layers), protocol=whole.protocol)
        words = plan.words() if may.rows or may.tokens else plan.too_small_words()
        return replace(self.by_plan(whole, plan, written), words=words)

    def by_plan(self, whole: ResolvedRequest, plan: Plan, written: Result) -> Sized:
        """Returns ``whole`` with the size and cycles of ``plan``; ``written`` as of ``Sized``. Raises as ``settle``."""
        sized = self._of_size(whole, plan.workload, written)
        return replace(sized, request=replace(sized.request, protocol=plan.protocol), plan=plan)

    def _as_stored(self, whole: ResolvedRequest, may: Open, there: StudySpec) -> Sized:
        one = _stored_size(whole, may, there, self.models)
        changed = one != Workload(whole.rows_per_update, whole.max_completion_length)
        words = f"{one.words(layers_of(Path(whole.model)))}, as the study began" if changed else ""
        if whole.protocol == Protocol():
            whole = replace(whole, protocol=there.protocol)
        return replace(self._of_size(whole, one, None), words=words)

    def _of_size(self, whole: ResolvedRequest, one: Workload, written: Result | None) -> Sized:
        sized = replace(whole, rows_per_update=one.rows, max_completion_length=one.tokens)
        if one.layers is not None:
            model = first_layers(Path(whole.model), one.layers, self.models / _folder(Path(whole.model), one.layers))
            sized, written = replace(sized, model=str(model), name=study_name(whole)), None
        return Sized(sized, written or self._written(sized))

    def _written(self, whole: ResolvedRequest) -> Result:
        return prepared_prompts(whole, self.python, self.found, self.talk)

    def _present(self) -> Hardware | None:
        """Returns the device's present speed; ``None`` if it cannot be measured."""
        device = self.machine.device
        if self.machine.gpus:
            answer = self.speed(hardware.describe(), device)
        else:
            self.talk("measuring what this machine does at the moment (some seconds)")
            answer = self.python.present_speed(device)
        return probed(answer.data) if answer.ok else None

    def _pace(self, whole: ResolvedRequest, written: Result, device: Hardware, one: Workload, layers: int) -> Pace:
        data = written.data
        longest = whole.max_prompt_length or int(data["longest_prompt"])
        sized = replace(whole, rows_per_update=one.rows, max_completion_length=one.tokens, max_prompt_length=longest)
        facts = build.model_facts(data)
        if one.layers is not None and layers:
            facts = _cut_facts(facts, one.layers, layers)
        resources = build.resources_for(self.machine, sized, facts, {})
        task = Task(
            resources=resources,
            rows_per_update=one.rows,
            max_prompt_length=longest,
            max_completion_length=one.tokens,
            passthrough=whole.passthrough,
            lengths=(one.tokens,) * one.rows,
            prompt_tokens=float(data.get("mean_prompt") or 0.0),
        )
        baseline = build.baseline_of(sized, self.space, resources)
        cycle_s = math.exp(PhaseTimes(device).fitted(task, ()).forecast([baseline]).log_seconds[0])
        call_s, completion_s = data.get("reward_s", (0.0, 0.0))
        reward_s = call_s + one.rows * completion_s
        return Pace(first_cycle_s(task, baseline, cycle_s) + reward_s, cycle_s + reward_s, reward_s=reward_s)


def _stored_size(whole: ResolvedRequest, may: Open, there: StudySpec, models: Path) -> Workload:
    work = there.workload
    return Workload(
        work.rows_per_update if may.rows else whole.rows_per_update,
        work.max_completion_length if may.tokens else whole.max_completion_length,
        _cut_to(Path(work.model), models) if may.model else None,
    )


_CUT = "{name}-first-{layers}-layers-{digest}"
_IS_CUT = re.compile(r"-first-(\d+)-layers-[0-9a-f]{8}$")


def _folder(model: Path, layers: int) -> str:
    """Returns the folder name of a model's first layers; it changes with the model."""
    return _CUT.format(name=model.name, layers=layers, digest=build.model_digest(model)[:8])


def _cut_to(model: Path, models: Path) -> int | None:
    """Returns the number of layers that a stored study's model was truncated to; ``None``: it has all layers."""
    found = _IS_CUT.search(model.name) if model.parent == models else None
    return None if found is None else int(found.group(1))


def _cut_facts(facts: ModelFacts, layers: int, whole: int) -> ModelFacts:
    """Returns facts of a model truncated to ``layers`` of ``whole`` layers; the rest counts as shared embeddings."""
    if facts.parameters is None or facts.hidden_size is None or facts.vocabulary is None:
        return replace(facts, layers=layers)
    embeddings = min(facts.parameters, facts.hidden_size * facts.vocabulary)
    return replace(facts, layers=layers, parameters=embeddings + (facts.parameters - embeddings) * layers // whole)


def _same(path: str, other: str) -> bool:
    return path == other or os.path.realpath(path) == os.path.realpath(other)

"""Joins a user's own configuration with the command line, which takes precedence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.domain import RewardSpec
from autotune.errors import UsageError
from autotune.frameworks import framework_named
from autotune.specification.request import Request, default_micro_batch
from autotune.specification.user_input import model_named, rewards_configured
from search_spaces.batch import model_parallel
from search_spaces.configuration import KnobValue
from search_spaces.knobs import key_of
from trainer.frameworks.common.config_entries import KNOB, Imported
from trainer.frameworks.common.fields import Field

MICRO, ACCUMULATION, COMPLETION = "micro_batch_size", "gradient_accumulation_steps", "max_completion_length"


def with_config(request: Request, imported: Imported, fields: Mapping[str, Field], processes: int) -> Request:
    """Returns the request, completed with the file's values.

    Args:
        request: request of the command line, with ``config`` set.
        fields: the keys of the installed framework, for its defaults.
        processes: training processes; rows per update are micro-batch x accumulation x data-parallel ranks.

    Raises:
        UsageError: the file's model is neither a folder nor a hub id, its prompts cannot be read, or a needed value is
            missing.
    """
    framework = framework_named(request.framework)
    _ask(request, imported)
    launched = _trained(framework.launched(imported), {**imported.knobs, **request.baseline}, processes)
    if launched and request.rows_per_update is None:  # of another number of processes
        rows = _rows(_knobs(request, imported, fields, launched), launched)
        request = replace(request, rows_per_update=rows)
    knobs = _knobs(request, imported, fields, processes)
    rows = request.rows_per_update or _rows(knobs, processes)
    length = request.max_completion_length or imported.max_completion_length or _default(fields, COMPLETION)
    own_prompts = bool(request.task or request.data)
    if imported.dataset and not own_prompts and not framework.reads_datasets:
        raise UsageError(
            f"{request.config_name}: the prompts of a {framework.title} configuration are not read yet; give them with "
            "--data FILE.jsonl, or --task"
        )
    return replace(
        request,
        model=request.model or _model(request, imported),
        dataset={} if own_prompts else dict(imported.dataset),
        own_dataset=bool(imported.dataset),
        own_rewards=not request.rewards,
        rewards=request.rewards or _rewards(request, imported),
        rows_per_update=rows,
        max_prompt_length=request.max_prompt_length or imported.max_prompt_length,
        max_completion_length=length or framework.unset_completion,
        baseline=knobs,
        passthrough=_passthrough(request, imported),
        lines=dict(imported.lines),
    )


def _ask(request: Request, imported: Imported) -> None:
    """Raises ``UsageError`` for all needed values that neither file nor command line gives."""
    task = {"data", "rewards"} if request.task else set()  # a task has its own
    given = {f"{KNOB}{knob}" for knob in request.baseline} | task
    lacking = [
        said for field, said in imported.asked.items() if field not in given and not getattr(request, field, None)
    ]
    if lacking:
        raise UsageError("\n".join(lacking))


def _trained(launched: int, knobs: Mapping[str, KnobValue], processes: int) -> int:
    """Returns the processes the file was written for, without an accelerate file's share for a rollout server."""
    served = int(knobs.get("rollout_gpus", 0))
    return processes if served and launched == processes + served else launched


def _knobs(request: Request, imported: Imported, fields: Mapping[str, Field], processes: int) -> dict[str, KnobValue]:
    """Returns the file's knobs with those of ``--set``; another batch on the command line changes the accumulation."""
    framework = request.framework
    knobs: dict[str, KnobValue] = {
        MICRO: _default(fields, key_of(MICRO, framework)) or default_micro_batch(framework),
        ACCUMULATION: _default(fields, key_of(ACCUMULATION, framework)) or 1,
        **imported.knobs,
        **request.baseline,
    }
    rows, ranks = request.rows_per_update, _ranks(knobs, processes)
    if rows is None or rows == ranks * int(knobs[MICRO]) * int(knobs[ACCUMULATION]):
        return knobs
    if MICRO not in imported.knobs and MICRO not in request.baseline:
        knobs[MICRO] = min(int(knobs[MICRO]), max(1, rows // ranks))
    if ACCUMULATION not in request.baseline and rows % (ranks * int(knobs[MICRO])) == 0:
        knobs[ACCUMULATION] = rows // (ranks * int(knobs[MICRO]))
    return knobs


def _rows(knobs: Mapping[str, KnobValue], processes: int) -> int:
    return _ranks(knobs, processes) * int(knobs[MICRO]) * int(knobs[ACCUMULATION])


def _ranks(knobs: Mapping[str, KnobValue], processes: int) -> int:
    """Returns the data-parallel ranks (``search_spaces.batch.data_ranks``)."""
    return max(1, processes // model_parallel(knobs))


def _model(request: Request, imported: Imported) -> str:
    if imported.model is None:
        return ""
    try:
        return model_named(imported.model, Path(request.folder))
    except UsageError as error:
        line = imported.lines.get(framework_named(request.framework).model_key, 0)
        raise UsageError(f"{request.config_name}, line {line}: {error}") from None


def _rewards(request: Request, imported: Imported) -> tuple[RewardSpec, ...]:
    if request.task:
        return ()  # a task has its own
    return rewards_configured(imported.rewards, Path(request.folder), request.framework, request.checkout)


def _passthrough(request: Request, imported: Imported) -> dict[str, Any]:
    """Returns the file's non-knob keys, without reward weights and model revision if the command line replaces them."""
    gone = {"reward_weights"} if request.rewards or request.task else set()
    gone |= {"model_revision"} if request.model and request.model != imported.model else set()
    return {key: value for key, value in imported.passthrough.items() if key not in gone}


def _default(fields: Mapping[str, Field], key: str) -> Any:
    return fields[key].default if key in fields else None

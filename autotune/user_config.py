"""A TRL configuration joined with what the command line says: the command line goes before the file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotune.domain import RewardSpec
from autotune.errors import UsageError
from autotune.request import TRL_DEFAULT_MICRO_BATCH, Request
from autotune.user_input import model_named, rewards_configured
from search_spaces.configuration import KnobValue
from trainer.frameworks.trl.import_config import Field, Imported

MICRO, ACCUMULATION = "micro_batch_size", "gradient_accumulation_steps"


def with_config(request: Request, imported: Imported, fields: Mapping[str, Field], ranks: int) -> Request:
    """The request with what the file says where the command line says nothing.

    Args:
        request: of the command line, with ``config`` set.
        imported: the file, understood.
        fields: the installed TRL's keys, for its defaults.
        ranks: training processes; rows per update are micro-batch x accumulation x ranks.

    Raises:
        UsageError: the file's model is neither a folder nor a hub id.
    """
    knobs = _knobs(request, imported, fields, ranks)
    rows = request.rows_per_update or ranks * int(knobs[MICRO]) * int(knobs[ACCUMULATION])
    length = request.max_completion_length or imported.max_completion_length
    own_prompts = bool(request.task or request.data)
    return replace(
        request,
        model=request.model or _model(request, imported),
        dataset={} if own_prompts else dict(imported.dataset),
        rewards=request.rewards or _rewards(request, imported),
        rows_per_update=rows,
        max_completion_length=length or _default(fields, "max_completion_length"),
        baseline=knobs,
        passthrough=_passthrough(request, imported),
        lines=dict(imported.lines),
    )


def _knobs(request: Request, imported: Imported, fields: Mapping[str, Field], ranks: int) -> dict[str, KnobValue]:
    """The file's knobs under those of ``--set``; another batch on the command line changes the accumulation."""
    knobs: dict[str, KnobValue] = {
        MICRO: _default(fields, "per_device_train_batch_size") or TRL_DEFAULT_MICRO_BATCH,
        ACCUMULATION: _default(fields, ACCUMULATION) or 1,
        **imported.knobs,
        **request.baseline,
    }
    rows = request.rows_per_update
    if rows is None or rows == ranks * int(knobs[MICRO]) * int(knobs[ACCUMULATION]):
        return knobs
    if MICRO not in imported.knobs and MICRO not in request.baseline:
        knobs[MICRO] = min(int(knobs[MICRO]), max(1, rows // ranks))
    if ACCUMULATION not in request.baseline and rows % (ranks * int(knobs[MICRO])) == 0:
        knobs[ACCUMULATION] = rows // (ranks * int(knobs[MICRO]))
    return knobs


def _model(request: Request, imported: Imported) -> str:
    if imported.model is None:
        return ""
    try:
        return model_named(imported.model, Path(request.folder))
    except UsageError as error:
        line = imported.lines.get("model_name_or_path", 0)
        raise UsageError(f"{request.config_name}, line {line}: {error}") from None


def _rewards(request: Request, imported: Imported) -> tuple[RewardSpec, ...]:
    if request.task:
        return ()  # a task has its own
    return rewards_configured(imported.rewards, Path(request.folder))


def _passthrough(request: Request, imported: Imported) -> dict[str, Any]:
    """The file's other keys; weights of rewards the command line replaces go with them."""
    replaced = bool(request.rewards or request.task)
    return {key: value for key, value in imported.passthrough.items() if not (replaced and key == "reward_weights")}


def _default(fields: Mapping[str, Field], key: str) -> Any:
    return fields[key].default if key in fields else None

"""Replaces the user's own configuration by a published baseline in a request. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from autotune.errors import UsageError
from autotune.frameworks import framework_named
from autotune.specification.request import Request
from autotune.specification.user_input import rewards_configured
from search_spaces.errors import SpaceError
from search_spaces.published import Published, published, scaled


def published_named(name: str) -> Published:
    """Returns the published baseline of a name. Raises ``UsageError`` that lists the closest names, or all."""
    try:
        return published(name)
    except SpaceError as error:
        raise UsageError(f"--baseline: {error}") from None


def with_published(request: Request, gpus: int) -> tuple[Request, tuple[str, ...]]:
    """Returns the request with its published baseline, scaled to ``gpus``, and sentences on the changes.

    Knobs of ``--set``, model, lengths, prompts and rewards of the command line take precedence over published ones.

    Args:
        request: request of the command line; one without a published baseline is returned unchanged.
        gpus: GPUs held, 0 on a CPU.

    Raises:
        UsageError: there is no such baseline, these GPUs cannot divide its rows, or another option contradicts it.
    """
    if not request.published:
        return request, ()
    found = published_named(request.published)
    _check(request, found)
    framework = framework_named(found.framework)
    try:
        # A published rollout server becomes an engine beside the training where trials cannot have one.
        why = f"{framework.title} trials cannot have a rollout server" if framework.no_server else ""
        here = scaled(found, gpus, colocated=why)
    except SpaceError as error:
        raise UsageError(f"--baseline {error}") from None
    own_prompts = bool(request.task or request.data)
    if not own_prompts and not framework.reads_datasets:
        raise UsageError(
            f"--baseline {found.name}: give the prompts with --data FILE.jsonl; it has those of {found.dataset}"
        )
    own_rewards = bool(request.rewards or request.task)
    workload = {key: value for key, value in found.workload.items() if not (own_rewards and key == "reward_weights")}
    joined = replace(
        request,
        model=request.model or found.model,
        dataset={} if own_prompts else {"dataset_name": found.dataset},
        rewards=request.rewards
        if own_rewards
        else rewards_configured(found.rewards, Path(request.folder), found.framework),
        rows_per_update=here.rows_per_update,
        max_prompt_length=request.max_prompt_length or found.max_prompt_length,
        max_completion_length=request.max_completion_length or found.max_completion_length,
        baseline={**here.configuration, **request.baseline},
        passthrough=workload,
    )
    return joined, here.lines


def _check(request: Request, found: Published) -> None:
    if request.config is not None:
        raise UsageError("--baseline and --config both say what the study begins with; give one of them")
    if request.rows_per_update not in (None, found.rows_per_update):
        raise UsageError(
            f"--effective-batch {request.rows_per_update}: {found.name} has {found.rows_per_update} rows per update, "
            "which are kept; leave the option out, or change the configuration with --config instead"
        )
    if request.framework != found.framework:
        raise UsageError(f"--baseline {found.name} is of {found.framework}, not of {request.framework}")

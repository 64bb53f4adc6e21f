"""Runs ms-swift's rollout server, ``swift rollout``, with a separate length for each row of a request.

The server handles one request after the other (``swift/pipelines/infer/rollout.py`` of 4.6: ``infer`` waits for its
workers), so one request for each length would change the load. The ``data_dict`` of a request therefore contains each
row's length, and in the worst case the length to which its prompt is stretched.
"""

from __future__ import annotations

import functools
from contextvars import ContextVar
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple

from ...checks import prompts_of
from ...contract import RunPaths, TrialSpec, read_spec
from ...model_facts import model_folder
from ..hf_trainer.around import replace
from ..hf_trainer.sampling import exactly, stretch
from ..hf_trainer.weight_group import meet_at_home

MARK = "autotune_lengths"
Wish = Tuple[Optional[int], Optional[int]]
"""(Completion length, prompt length) in tokens; ``None`` leaves a length unchanged."""
NATURAL: Wish = (None, None)
SHARED = (
    *("model_type", "template", "system", "use_chat_template", "template_backend", "response_prefix"),
    *("agent_template", "enable_thinking", "external_plugins", "custom_register_path", "rope_scaling"),
    *("vllm_enable_lora", "vllm_max_lora_rank", "vllm_use_async_engine", "vllm_limit_mm_per_prompt"),
)
"""Arguments of ``swift rlhf`` that the server needs to read prompts and load the model as the trainer does."""
_wishes: ContextVar[Optional[Iterator[Wish]]] = ContextVar("wishes", default=None)


def marked(request: Mapping[str, Any], tokens: int, prompt: Optional[int]) -> Dict[str, Any]:
    """Returns ``request`` marked with its completion length and, if given, the length of its stretched prompt."""
    return {**request, "data_dict": {**(request.get("data_dict") or {}), MARK: [tokens, prompt]}}


def unmarked(request: Any) -> Tuple[Any, Wish]:
    """Returns (the request without marks, the marked lengths)."""
    own = request.get("data_dict") if isinstance(request, dict) else None
    if not own or MARK not in own:
        return request, NATURAL
    left = {key: value for key, value in own.items() if key != MARK}
    tokens, prompt = own[MARK]
    return {**request, "data_dict": left}, (tokens, prompt)


def with_lengths(infer: Any, self: Any, infer_requests: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """Wraps ``GRPOVllmEngine.infer``, which adds the requests in their order: takes the marked lengths from them."""
    rows = [unmarked(request) for request in infer_requests]
    token = _wishes.set(iter([wish for _, wish in rows]))
    try:
        return infer(self, [request for request, _ in rows], *args, **kwargs)
    finally:
        _wishes.reset(token)


def with_length(infer_async: Any) -> Any:
    """Wraps ``GRPOVllmEngine.infer_async``, which adds one request in its own task."""

    @functools.wraps(infer_async)
    async def infer_with_length(self: Any, infer_request: Any, *args: Any, **kwargs: Any) -> Any:
        request, wish = unmarked(infer_request)
        _wishes.set(iter([wish]))
        return await infer_async(self, request, *args, **kwargs)

    return infer_with_length


def adding(add: Any, self: Any, inputs: Any, generation_config: Any, *args: Any, **kwargs: Any) -> Any:
    """Wraps ``_add_request``: applies the marked lengths of the next request."""
    tokens, prompt = next(_wishes.get() or iter(()), NATURAL)
    if prompt is not None:
        inputs = {**inputs, "input_ids": stretch(list(inputs["input_ids"]), prompt)}
    if tokens is not None:
        generation_config = exactly(generation_config, tokens)
    return add(self, inputs, generation_config, *args, **kwargs)


def install() -> None:
    """Installs the patches in this process."""
    from swift.infer_engine import GRPOVllmEngine
    from swift.pipelines.infer import rollout

    replace(GRPOVllmEngine, "infer", with_lengths)
    GRPOVllmEngine.infer_async = with_length(GRPOVllmEngine.infer_async)
    replace(GRPOVllmEngine, "_add_request", adding)
    meet_at_home(rollout.WeightSyncWorkerExtension)


def main(directory: Path, words: Sequence[str]) -> None:
    """Serves with the command line ``words``, until the process is ended."""
    from swift.arguments import RolloutArguments
    from swift.pipelines.infer import rollout

    from . import arguments

    spec = read_spec(RunPaths(directory).config)
    folder = str(model_folder(spec.model, spec.revision or None, offline=True))
    known = {each.name for each in fields(RolloutArguments)}
    rollout.rollout_main([*words, *arguments.words_of(shared(spec, folder, known))])


def shared(spec: TrialSpec, folder: str, names: Any) -> Dict[str, Any]:
    """Returns the server arguments that the trial itself sets, limited to arguments the server knows."""
    from . import arguments

    own: Dict[str, Any] = {key: spec.passthrough[key] for key in SHARED if key in spec.passthrough}
    raw = all(isinstance(entry["prompt"], str) for entry, _ in prompts_of(spec.prompts))
    own.update(arguments.added(spec, folder, raw))
    if "external_plugins" in own:
        own["external_plugins"] = arguments.plugins(spec)
    return {"model": folder, **{key: value for key, value in own.items() if key in names}}

"""Measures TRL's trainer by cycles: sets completion lengths, and times phases."""

from __future__ import annotations

import contextlib
import importlib
from typing import Any, Callable, ClassVar, Dict, Iterator, List, Mapping, Optional, Sequence

import torch

from ...checks import refusing
from ...contract import Phase
from ...failures import MeterError
from ..hf_trainer.around import replace
from ..hf_trainer.lengths import ExactLengths
from ..hf_trainer.loop import Loop
from ..hf_trainer.rollout import MeteredRollout
from ..hf_trainer.sampling import exactly, stretch
from .engine import ENGINE_KNOBS
from .seams import apply_seams
from .server_rollout import install_lengths

EARLIER = ENGINE_KNOBS | {"precision", "fp8_emulate"}
"""Patches that were applied before the trainer was built."""
BATCHING = "transformers.generation.continuous_batching"
NO_END = -1
"""A token id that no token has, by which transformers turns off the end-of-sequence token."""


class TrlRollout(MeteredRollout):
    """Sets and counts the lengths of each generation in TRL."""

    def install(self) -> None:
        """Patches the generation methods of trainer, model and engine, to set completion lengths and count tokens."""
        trainer = self._trainer
        replace(trainer, "_tokenize_prompts", self._tokenize)
        replace(trainer, "_generate_single_turn", self._turn)
        model = trainer.accelerator.unwrap_model(trainer.model)
        if trainer.use_vllm and trainer.vllm_generation.mode == "server":
            if trainer.accelerator.is_main_process:
                install_lengths(trainer.vllm_generation.vllm_client, self._of_server)
        elif trainer.use_vllm:
            replace(trainer.vllm_generation.llm, "generate", self._by_engine)
        elif trainer.use_transformers_continuous_batching:
            replace(model, "generate_batch", self._by_batch)
        else:
            replace(model, "generate", self._by_model)

    def _tokenize(self, tokenize: Any, prompts: Any) -> Any:
        ids, images, fields = tokenize(prompts)
        if self._is_worst:
            ids = [stretch(row, self._max_prompt) for row in ids]
        return ids, images, fields

    def _turn(self, turn: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        self._pending = self._lengths(len(prompt_ids))
        completion_ids, logprobs = turn(prompt_ids, *args, **kwargs)
        tokens = sum(len(row) for row in prompt_ids)
        self._add([len(row) for row in completion_ids], self._clipped(completion_ids), tokens)
        return completion_ids, logprobs

    def _by_model(self, generate: Any, *args: Any, **kwargs: Any) -> Any:
        if self._pending is not None:
            ids, ends = kwargs["input_ids"], self._trainer.eos_token_ids
            exact = ExactLengths(self._pending, ids.shape[1], self._max_completion, ends, ids.device)
            kwargs["logits_processor"] = [*(kwargs.get("logits_processor") or []), exact]
        generated = generate(*args, **kwargs)
        rows, tokens = kwargs["input_ids"].shape
        self.shapes.meet(int(rows), int(tokens), last=int(generated.shape[1]) - 1)
        return generated

    def _by_batch(self, generate_batch: Any, inputs: Any, **kwargs: Any) -> Any:
        return continuous_with_lengths(generate_batch, inputs, self._pending, **kwargs)

    def _by_engine(self, generate: Any, prompts: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
        """Sets vLLM's sampling parameters for each prompt.

        The end-of-sequence token is ignored, not forbidden. So the engine's log-probs stay the policy's; TRL's
        importance-sampling correction compares them with the trainer's.
        """
        if self._pending is not None:
            sampling_params = [exactly(sampling_params, length) for length in self._of_engine(len(prompts))]
        outputs = generate(prompts, *args, sampling_params=sampling_params, **kwargs)
        if self._trainer.vllm_generation.enable_sleep_mode:
            self.before_sleep()
        return outputs

    def _of_server(self) -> Optional[Sequence[int]]:
        return None if self._pending is None else self._of_all(len(self._pending))

    def _clipped(self, completion_ids: Any) -> int:
        """Returns the number of completions cut off at the maximum length, not at a shorter set length."""
        if self._pending is not None:
            return sum(1 for length in self._pending if length >= self._max_completion)
        ends = {*self._trainer.eos_token_ids, self._trainer._tokenizer.pad_token_id}
        return sum(1 for row in completion_ids if row[-1] not in ends)


class TrlLoop(Loop):
    """Runs TRL's trainer through the measurement protocol."""

    METHODS = ("_generate_single_turn", "_generate_and_score_completions", "_tokenize_prompts")
    PHASES: ClassVar[Mapping[str, Phase]] = {"_generate": Phase.GENERATE, "_calculate_rewards": Phase.REWARD}
    ROLLOUT = TrlRollout

    def prepare(self) -> None:
        """Wraps the log-prob method to record the shape of each chunk computed without gradients; patches knobs."""
        shapes = self._rollout.shapes

        def met(compute: Any, *args: Any, **kwargs: Any) -> Any:
            if not torch.is_grad_enabled():
                rows, tokens = (kwargs["input_ids"] if "input_ids" in kwargs else args[1]).shape
                shapes.meet(min(int(rows), int(kwargs.get("batch_size") or rows)), int(tokens))
            return compute(*args, **kwargs)

        replace(self._trainer, self.LOGPS, met)
        with refusing():
            seams = {name: value for name, value in self._spec.seams.items() if name not in EARLIER}
            apply_seams(seams, self._trainer)
        self._rollout.before_sleep = self._meter.look

    def wrap_phases(self) -> None:
        """Attributes the time of methods before the update, and of the engine's weight sync, to their phases."""
        super().wrap_phases()
        if self._trainer.use_vllm:
            engine = self._trainer.vllm_generation
            engine.sync_weights = self._meter.wrap(engine.sync_weights, Phase.SYNC)


def continuous_with_lengths(
    generate_batch: Callable[..., Any], inputs: Sequence[Any], lengths: Optional[Sequence[int]], **kwargs: Any
) -> Any:
    """Runs transformers' continuous batching with ``lengths[i]`` tokens for row i; ``None``: the model decides.

    Its logits processors see rows of many requests packed together, so lengths are not set there: each request is
    submitted with its own ``max_new_tokens`` and no end-of-sequence token.

    Raises:
        MeterError: this version of transformers submits requests in an unsupported way.
        Exception: the error that ended the engine's thread; transformers itself only logs it and returns the rows
            finished by then.
    """
    managers: List[Any] = []
    with _submitting(lengths, managers):
        outputs = generate_batch(inputs, **kwargs)
    if not managers:
        raise MeterError("continuous batching did not submit its requests by add_requests")
    error = _ended_by(managers[0], outputs, len(inputs))
    if error is not None:
        raise error
    return outputs


@contextlib.contextmanager
def _submitting(lengths: Optional[Sequence[int]], managers: List[Any]) -> Iterator[None]:
    """Sets the completion lengths of requests submitted in the block; adds their manager to ``managers``."""
    manager_class = importlib.import_module(BATCHING).ContinuousBatchingManager
    submit = manager_class.add_requests

    def add_requests(manager: Any, inputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
        managers.append(manager)
        if lengths is None:
            return submit(manager, inputs, *args, **kwargs)
        if len(lengths) != len(inputs):
            raise MeterError("a generation of %d rows, but lengths for %d" % (len(inputs), len(lengths)))
        given: Dict[str, Any] = {key: value for key, value in kwargs.items() if key != "max_new_tokens"}
        names = ["row_%d" % row for row in range(len(inputs))]
        for row in _order(manager, inputs):
            manager.add_request(
                inputs[row], request_id=names[row], max_new_tokens=lengths[row], eos_token_id=NO_END, **given
            )
        return names

    manager_class.add_requests = add_requests
    try:
        yield
    finally:
        manager_class.add_requests = submit


def _order(manager: Any, inputs: Sequence[Any]) -> List[int]:
    """Returns the row indices in transformers' order: with prefix sharing, equal prompts are adjacent."""
    rows = list(range(len(inputs)))
    if getattr(manager, "_use_prefix_sharing", False):
        rows.sort(key=lambda row: list(inputs[row]), reverse=True)
    return rows


def _ended_by(manager: Any, outputs: Mapping[str, Any], rows: int) -> Optional[BaseException]:
    """Returns the error that left rows unfinished; ``None`` if all are complete."""
    places = manager, getattr(manager, "background_thread_status", None)  # before transformers 5.17, and since
    fatal = next((error for error in (getattr(place, "fatal_error", None) for place in places) if error), None)
    if isinstance(fatal, BaseException):
        return fatal
    said = [str(output.error) for output in outputs.values() if output.error is not None]
    if said or len(outputs) < rows:
        return RuntimeError("continuous batching lost completions: %s" % (said[0] if said else "it does not say why"))
    return None

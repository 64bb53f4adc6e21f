"""Sets the completion lengths of TRL's rollouts, and counts their prompts, tokens and rows."""

from __future__ import annotations

import functools
from typing import Any, Optional, Sequence

from ..hf_trainer.lengths import ExactLengths
from ..hf_trainer.rollout import MeteredRollout
from ..hf_trainer.sampling import exactly, stretch
from . import batching
from .server_rollout import install_lengths


class TrlRollout(MeteredRollout):
    """Sets and counts the lengths of each generation in TRL."""

    def install(self) -> None:
        """Wraps methods of the trainer and the model; no source is edited."""
        trainer = self._trainer
        trainer._tokenize_prompts = self._wrap_tokenize(trainer._tokenize_prompts)
        trainer._generate_single_turn = self._wrap_turn(trainer._generate_single_turn)
        if trainer.use_vllm and trainer.vllm_generation.mode == "server":
            if trainer.accelerator.is_main_process:
                install_lengths(trainer.vllm_generation.vllm_client, self._of_server)
            return
        if trainer.use_vllm:
            trainer.vllm_generation.llm.generate = self._wrap_engine(trainer.vllm_generation.llm.generate)
            return
        model = trainer.accelerator.unwrap_model(trainer.model)
        if trainer.use_transformers_continuous_batching:
            model.generate_batch = self._wrap_batch(model.generate_batch)
            return
        model.generate = self._wrap_generate(model.generate)

    def _wrap_tokenize(self, tokenize: Any) -> Any:
        @functools.wraps(tokenize)
        def tokenize_prompts(prompts: Any) -> Any:
            ids, images, fields = tokenize(prompts)
            if self._is_worst:
                ids = [stretch(row, self._max_prompt) for row in ids]
            return ids, images, fields

        return tokenize_prompts

    def _wrap_turn(self, turn: Any) -> Any:
        @functools.wraps(turn)
        def generate_single_turn(prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            self._pending = self._lengths(len(prompt_ids))
            completion_ids, logprobs = turn(prompt_ids, *args, **kwargs)
            tokens = sum(len(row) for row in prompt_ids)
            self._add([len(row) for row in completion_ids], self._clipped(completion_ids), tokens)
            return completion_ids, logprobs

        return generate_single_turn

    def _wrap_generate(self, generate: Any) -> Any:
        @functools.wraps(generate)
        def generate_with_lengths(*args: Any, **kwargs: Any) -> Any:
            if self._pending is not None:
                ids = kwargs["input_ids"]
                exact = ExactLengths(
                    self._pending, ids.shape[1], self._max_completion, self._trainer.eos_token_ids, ids.device
                )
                kwargs["logits_processor"] = [*(kwargs.get("logits_processor") or []), exact]
            generated = generate(*args, **kwargs)
            rows, tokens = kwargs["input_ids"].shape
            self.shapes.meet(int(rows), int(tokens), last=int(generated.shape[1]) - 1)
            return generated

        return generate_with_lengths

    def _wrap_batch(self, generate_batch: Any) -> Any:
        @functools.wraps(generate_batch)
        def generate_with_lengths(inputs: Any, **kwargs: Any) -> Any:
            return batching.generate_with_lengths(generate_batch, inputs, self._pending, **kwargs)

        return generate_with_lengths

    def _wrap_engine(self, generate: Any) -> Any:
        """Sets vLLM's sampling parameters for each prompt.

        The end-of-sequence token is ignored rather than forbidden: so the engine's log-probs stay those of the policy,
        which the importance-sampling correction compares with the trainer's.
        """

        @functools.wraps(generate)
        def generate_with_lengths(prompts: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
            if self._pending is not None:
                sampling_params = [exactly(sampling_params, length) for length in self._of_engine(len(prompts))]
            outputs = generate(prompts, *args, sampling_params=sampling_params, **kwargs)
            if self._trainer.vllm_generation.enable_sleep_mode:
                self.before_sleep()
            return outputs

        return generate_with_lengths

    def _of_server(self) -> Optional[Sequence[int]]:
        return None if self._pending is None else self._of_all(len(self._pending))

    def _clipped(self, completion_ids: Any) -> int:
        """Returns the completions cut off at the maximum; a row with a shorter set length is none."""
        if self._pending is not None:
            return sum(1 for length in self._pending if length >= self._max_completion)
        ends = {*self._trainer.eos_token_ids, self._trainer._tokenizer.pad_token_id}
        return sum(1 for row in completion_ids if row[-1] not in ends)

"""Measures TRL 0.18's trainer by cycles: sets completion lengths, and times phases."""

from __future__ import annotations

import sys
from typing import Any, ClassVar, List, Mapping, Sequence

import torch

from ...contract import Phase
from ..hf_trainer.around import replace
from ..hf_trainer.lengths import ExactLengths
from ..hf_trainer.loop import Loop
from ..hf_trainer.quality import Quality
from ..hf_trainer.rollout import MeteredRollout
from ..hf_trainer.sampling import exactly, stretch
from .importing import TRAINER
from .serving import mark


class OpenR1Rollout(MeteredRollout):
    """Sets and counts the lengths of each generation in TRL 0.18."""

    def install(self) -> None:
        """Patches ``generate`` of engine, client or model, and the tokenizer, to set lengths and count tokens."""
        trainer = self._trainer
        self._stretch_prompts(trainer.processing_class)
        if trainer.use_vllm and trainer.vllm_mode == "server":
            if trainer.accelerator.is_main_process:
                replace(trainer.vllm_client, "generate", self._by_client)
            replace(sys.modules[TRAINER], "broadcast_object_list", self._broadcast)
        elif trainer.use_vllm:
            replace(trainer.llm, "generate", self._by_engine)
        else:
            replace(trainer.accelerator.unwrap_model(trainer.model), "generate", self._by_model)

    def _stretch_prompts(self, tokenizer: Any) -> None:
        """Makes every prompt of the worst case as long as the longest prompt."""
        outer, kind = self, type(tokenizer)

        class Stretching(kind):  # type: ignore[misc, valid-type]
            def __call__(self, *args: Any, **kwargs: Any) -> Any:
                found = kind.__call__(self, *args, **kwargs)
                if "text" not in kwargs:
                    return found
                found = outer._stretched(found) if outer._is_worst else found
                outer._asked = int(found["attention_mask"][:, -outer._max_prompt :].sum())
                return found

        Stretching.__name__ = kind.__name__
        tokenizer.__class__ = Stretching

    def _stretched(self, inputs: Any) -> Any:
        ids = inputs["input_ids"]
        masks = inputs["attention_mask"].bool()
        rows = [stretch(row[mask].tolist(), self._max_prompt) for row, mask in zip(ids, masks, strict=True)]
        width = max(len(row) for row in rows)
        padded = torch.zeros(len(rows), width, dtype=ids.dtype)
        mask = torch.zeros(len(rows), width, dtype=inputs["attention_mask"].dtype)
        for number, row in enumerate(rows):
            padded[number, width - len(row) :] = torch.tensor(row, dtype=ids.dtype)
            mask[number, width - len(row) :] = 1
        inputs["input_ids"], inputs["attention_mask"] = padded, mask
        return inputs

    _asked = 0
    """Tokens of the prompts that this rank tokenized last, after TRL's cut."""

    def _by_client(self, generate: Any, prompts: Sequence[str], n: int = 1, **sampling: Any) -> Any:
        """Sets the completion lengths in the main process's request: all ranks' prompts, ``n`` rows for each."""
        lengths = self._of_all(len(prompts) * n // int(self._trainer.accelerator.num_processes))
        if lengths is None:
            return generate(prompts=prompts, n=n, **sampling)
        rows = [prompt for prompt in prompts for _ in range(n)]
        marked = [mark(prompt, length) for prompt, length in zip(rows, lengths, strict=True)]
        return generate(prompts=marked, n=1, **sampling)

    def _broadcast(self, broadcast: Any, completions: Any, *args: Any, **kwargs: Any) -> Any:
        """Counts the rank's own completions in TRL's broadcast (``grpo_trainer.py:1031`` of 0.18)."""
        whole = broadcast(completions, *args, **kwargs)
        rows = len(whole) // int(self._trainer.accelerator.num_processes)
        self._pending = self._lengths(rows)
        self._count_rows(self._asked, whole[self._rank * rows : (self._rank + 1) * rows])
        return whole

    def _by_model(self, generate: Any, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
        self._pending = self._lengths(len(prompt_ids))
        width = int(prompt_ids.shape[1])
        if self._pending is not None:
            ends = self._trainer.processing_class.eos_token_id
            exact = ExactLengths(self._pending, width, self._max_completion, [ends], prompt_ids.device)
            kwargs["logits_processor"] = [*(kwargs.get("logits_processor") or []), exact]
        whole = generate(prompt_ids, *args, **kwargs)
        self._count_rows(int(kwargs["attention_mask"].sum()), whole[:, width:].tolist())
        return whole

    def _by_engine(self, generate: Any, prompts: Any, sampling_params: Any, *args: Any, **kwargs: Any) -> Any:
        """Sets an engine's completion lengths, without an earlier end of sequence: TRL 0.18 masks tokens after one."""
        size = int(self._trainer.vllm_tensor_parallel_size)
        rows = len(prompts) // size
        self._pending = self._lengths(rows)
        if self._pending is not None:
            lengths = self._of_engine(len(prompts))
            sampling_params = [exactly(sampling_params, length, unended=True) for length in lengths]
        outputs = generate(prompts, *args, sampling_params=sampling_params, **kwargs)
        own = outputs[self._rank % size * rows :][:rows]
        tokens = sum(len(each.prompt_token_ids) for each in own)
        self._count_rows(tokens, [list(each.outputs[0].token_ids) for each in own])
        return outputs

    def _count_rows(self, prompt_tokens: int, completions: List[List[int]]) -> None:
        """Counts the tokens of each row up to its first end of sequence; TRL masks the rest."""
        ends = self._trainer.processing_class.eos_token_id
        lengths = [row.index(ends) + 1 if ends in row else len(row) for row in completions]
        self._add(lengths, sum(1 for length in lengths if length >= self._max_completion), prompt_tokens)


class OpenR1Loop(Loop):
    """Runs the trainer of TRL 0.18 through the measurement protocol."""

    METHODS = ("_generate_and_score_completions",)
    PHASES: ClassVar[Mapping[str, Phase]] = {"_move_model_to_vllm": Phase.SYNC}
    LOGPS = "_get_per_token_logps"
    ROLLOUT = OpenR1Rollout

    def quality(self) -> Quality:
        """Returns a check of gradients only: TRL 0.18 returns no log-probs of its engine."""
        trainer, trial = self._trainer, self._trial
        return Quality(trainer, trial.journal, trial.rank, trainer._get_per_token_logps, judged=False)

    def wrap_phases(self) -> None:
        """Attributes the time of methods to phases.

        ``_generate_and_score_completions`` contains generation, rewards and log-probs, so generation is the time of the
        model's or the engine's ``generate``; tokenizing and padding around it are idle time.
        """
        super().wrap_phases()
        trainer, meter, accelerator = self._trainer, self._meter, self._trainer.accelerator
        engine = accelerator.unwrap_model(trainer.model)
        if trainer.use_vllm:  # only the main process speaks to a server; the others wait for what it answers
            engine = trainer.llm if trainer.vllm_mode == "colocate" else getattr(trainer, "vllm_client", None)
        if engine is not None:
            engine.generate = meter.wrap(engine.generate, Phase.GENERATE)
        trainer.reward_funcs = [
            each if isinstance(each, torch.nn.Module) else meter.wrap(each, Phase.REWARD)
            for each in trainer.reward_funcs
        ]
        if accelerator.num_processes > 1 and trainer.use_vllm and trainer.vllm_mode == "server":
            module: Any = sys.modules[TRAINER]
            module.broadcast_object_list = meter.wrap(module.broadcast_object_list, Phase.WAIT)

"""Gives ms-swift prompts and rewards, and measures its trainer by cycles: sets completion lengths, and times phases."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Callable, ClassVar, Dict, List, Mapping, Sequence

import torch
from swift.dataset import DatasetMeta, RowPreprocessor, register_dataset
from swift.rewards import ORM, AsyncORM, orms

from ...checks import check_rows, prompts_of
from ...contract import Phase, TrialSpec
from ...failures import MeterError
from ...rewards import guarded, load_rewards
from ..hf_trainer.around import replace
from ..hf_trainer.lengths import ExactLengths
from ..hf_trainer.loop import Loop
from ..hf_trainer.quality import Quality, ratios, samples_freely
from ..hf_trainer.rollout import MeteredRollout
from ..hf_trainer.sampling import exactly, stretch
from .serving import marked


class SwiftRollout(MeteredRollout):
    """Sets and counts the lengths of each generation in ms-swift."""

    def __init__(self, trainer: Any, max_prompt: int, max_completion: int, generations: int, rank: int) -> None:
        super().__init__(trainer, max_prompt, max_completion, generations, rank)
        self._pad = trainer.template.tokenizer.pad_token_id

    def take_shapes(self) -> None:
        """Returns ``None``: shapes of ms-swift's forward passes are not counted."""

    @property
    def masks_truncated(self) -> bool:
        return bool(self._trainer.args.overlong_filter)

    @masks_truncated.setter
    def masks_truncated(self, masks: bool) -> None:
        self._trainer.args.overlong_filter = masks

    def install(self) -> None:
        """Patches trainer, templates and engine or server client, to set completion lengths and count tokens."""
        trainer = self._trainer
        served = trainer.args.use_vllm and trainer.vllm_mode == "server"
        replace(trainer, "_generate_and_score_completions", self._round)
        replace(trainer, "_prepare_batch_inputs", self._batches)
        for template in (trainer.template,) if served else (trainer.template, trainer.engine.template):
            replace(template, "encode", self._encode)
        if served:
            if trainer.accelerator.is_main_process:
                replace(trainer.vllm_client, "infer", self._infer)
        elif trainer.args.use_vllm:
            replace(trainer.engine, "_add_request", self._add_request)
        else:
            replace(trainer.engine.model, "generate", self._by_model)

    def _infer(self, infer: Any, requests: Any, *args: Any, **kwargs: Any) -> Any:
        """Sets the completion lengths in the main process's request, which has all ranks' rows, rank by rank."""
        if self._pending is not None:
            lengths = self._of_all(len(self._pending)) or []
            if len(lengths) != len(requests):
                raise MeterError("a generation of %d rows, but lengths for %d" % (len(requests), len(lengths)))
            prompt = self._max_prompt if self._is_worst else None
            pairs = zip(requests, lengths, strict=True)
            requests = [marked(request, length, prompt) for request, length in pairs]
        return infer(requests, *args, **kwargs)

    def _round(self, whole: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        self._pending = self._lengths(len(inputs))
        batches = whole(inputs, *args, **kwargs)
        self._pending = None
        self.tally.generations += 1
        return batches

    def _batches(self, prepare: Any, *args: Any, **kwargs: Any) -> Any:
        """Counts the completions that are trained on, out of all generated ones."""
        batches = prepare(*args, **kwargs)
        for batch in batches:
            self._count(batch)
        self._check()
        return batches

    def _count(self, batch: Dict[str, Any]) -> None:
        grpo_batch, inputs = batch["grpo_batch"], batch["model_inputs"]
        lengths = [int(length) for length in grpo_batch.completion_mask.sum(1).tolist()]
        mask = inputs.get("attention_mask")
        whole = int(mask.sum()) if mask is not None and mask.dim() == 2 else int(inputs["input_ids"].numel())
        self.tally.lengths += lengths
        self.tally.prompt_tokens += whole - sum(lengths)
        self.tally.clipped += self._clipped(grpo_batch, lengths)

    def _clipped(self, grpo_batch: Any, lengths: List[int]) -> int:
        """Returns the number of completions cut off at the maximum length, not at a shorter set length."""
        if self._pending is not None:
            return sum(1 for length in lengths if length >= self._max_completion)
        return int(grpo_batch.truncated_mask.sum())

    def _check(self) -> None:
        if self._pending is None or self._trainer.args.dynamic_sample:
            return  # rows that were sampled again have the lengths of their own generation
        found = self.tally.lengths[-len(self._pending) :]
        if sorted(found) != sorted(self._pending):
            raise MeterError("asked for completions of %s tokens, got %s" % (self._pending, found))

    def _encode(self, encode: Any, *args: Any, **kwargs: Any) -> Any:
        """Makes every prompt as long as the longest in the worst case, for generation and training."""
        encoded = encode(*args, **kwargs)
        return self._stretched(encoded) if self._is_worst and self._pending is not None else encoded

    def _stretched(self, encoded: Dict[str, Any]) -> Dict[str, Any]:
        ids, labels = encoded.get("input_ids"), encoded.get("labels")
        if ids is None:
            return encoded
        width = next((at for at, label in enumerate(labels) if label != -100), len(ids)) if labels else len(ids)
        longer = stretch(ids[:width], self._max_prompt)
        more = len(longer) - width
        found = {**encoded, "input_ids": longer + list(ids[width:])}
        if labels:
            found["labels"] = [-100] * more + list(labels)
        if isinstance(encoded.get("loss_scale"), list):
            found["loss_scale"] = [0.0] * more + encoded["loss_scale"]
        if isinstance(encoded.get("length"), int):
            found["length"] = encoded["length"] + more
        return found

    def _by_model(self, generate: Any, *args: Any, **kwargs: Any) -> Any:
        if self._pending is not None:
            ids = kwargs["input_ids"]
            ends = self._ends(kwargs["generation_config"])
            # ms-swift drops every padding token of a completion, the end of sequence too where they are the same.
            dropped = 1 if self._pad in ends else 0
            lengths = [length + dropped for length in self._pending]
            never = [*ends, *([] if dropped else [self._pad])]
            exact = ExactLengths(lengths, ids.shape[1], self._max_completion + dropped, never, ids.device)
            kwargs["logits_processor"] = [*(kwargs.get("logits_processor") or []), exact]
            criteria = kwargs.get("stopping_criteria") or []
            kwargs["stopping_criteria"] = [partial(_stops_nothing, each) for each in criteria]
        return generate(*args, **kwargs)

    @staticmethod
    def _ends(config: Any) -> List[int]:
        ends = config.eos_token_id
        return list(ends) if isinstance(ends, (list, tuple)) else [int(ends)]

    def _add_request(self, add: Any, inputs: Any, config: Any, request_id: str, *args: Any, **kwargs: Any) -> Any:
        """Sets the length of each request for vLLM; requests come in the order of the rows."""
        if self._pending is not None:
            lengths = self._of_engine()
            config = exactly(config, lengths[self._requests % len(lengths)])
            self._requests += 1
        return add(inputs, config, request_id, *args, **kwargs)

    _requests = 0

    def count_inputs(self, inputs: Any) -> None:
        inputs = inputs[0] if isinstance(inputs, list) else inputs
        rows, width = inputs["model_inputs"]["input_ids"].shape
        completion = int(inputs["grpo_batch"].completion_mask.shape[1])
        self.tally.computed_tokens += int(rows) * int(width)
        self.tally.widest = max(self.tally.widest, (int(width), int(width) - completion, completion))


def _stops_nothing(criterion: Any, input_ids: Any, scores: Any, **kwargs: Any) -> Any:
    """Runs a stopping criterion of ms-swift, but returns zeros, so that it stops nothing."""
    return torch.zeros_like(criterion(input_ids, scores, **kwargs))


class SwiftLoop(Loop):
    """Runs ms-swift's trainer through the measurement protocol."""

    METHODS = ("_generate_and_score_completions", "_prepare_batch_inputs")
    PHASES: ClassVar[Mapping[str, Phase]] = {
        "_rollout_samples": Phase.GENERATE,
        "_move_model_to_vllm": Phase.SYNC,
        "_compute_rewards_per_func": Phase.REWARD,
    }
    ROLLOUT = SwiftRollout
    MODULE = "swift.rlhf_trainers.grpo_trainer"

    def sharing(self) -> int:
        """Returns the ranks that share a sequence; ms-swift has already multiplied the accumulation by their number
        (``GRPOTrainer.__init__``)."""
        return int(self._trainer.template.sequence_parallel_size)

    def prepare(self) -> None:
        """Checks the number of completions of an update."""
        trainer, args = self._trainer, self._trainer.args
        own = int(args.per_device_train_batch_size) * int(args.gradient_accumulation_steps)
        check_rows(own * (int(trainer.accelerator.num_processes) // self.sharing()), self._spec)

    def quality(self) -> Quality:
        """Returns the check of the rollout's log-probs."""
        trainer, trial = self._trainer, self._trial
        return SwiftQuality(trainer, trial.journal, trial.rank, judged=samples_freely(trainer.args))


class SwiftQuality(Quality):
    """Checks the agreement of rollout and trainer, from the log-probs that ms-swift computes in every cycle.

    Gradients are not compared with bf16 gradients; a note states this.
    """

    def install(self) -> None:
        """Patches the trainer: compares the log-probs of every generation."""

        def watched(prepare: Any, *args: Any, **kwargs: Any) -> Any:
            batches = prepare(*args, **kwargs)
            for own in (batch["grpo_batch"] for batch in batches):
                if own.rollout_per_token_logps is not None and own.old_per_token_logps is not None:
                    logps = own.old_per_token_logps, own.rollout_per_token_logps
                    self._parts.append(ratios(*logps, own.completion_mask))
            return batches

        replace(self._trainer, "_prepare_batch_inputs", watched)
        self._note("gradient_not_compared", {"why": "it is not read from ms-swift"})


OWN = "ms_swift"
"""Kind of a reward that ms-swift, or a plugin of the user's, defines."""


@dataclass(frozen=True)
class Written:
    """The prompts file that was written for ms-swift."""

    path: Path
    raw: bool
    """Whether prompts are plain texts, not messages."""


class Prompts(RowPreprocessor):  # type: ignore[misc]
    """Rows whose ``prompt`` becomes ``messages``."""

    def preprocess(self, row: Dict[str, Any]) -> Dict[str, Any]:
        """Returns the row with messages."""
        prompt = row.pop("prompt")
        row["messages"] = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        return row


def write_prompts(path: str, scratch: Path, rows: int) -> Written:
    """Writes the prompts, repeated until they fill ``rows``, so that one epoch contains the whole trial.

    Raises IllegalSettingError for a file without prompts, or for a row without one.
    """
    entries = [entry for entry, _ in prompts_of(path)]
    found = scratch / "prompts.jsonl"
    with found.open("w", encoding="utf-8") as stream:
        for index in range(max(rows, len(entries))):
            stream.write(json.dumps(entries[index % len(entries)], ensure_ascii=False) + "\n")
    register_dataset(DatasetMeta(dataset_path=str(found), preprocess_func=Prompts()), exist_ok=True)
    return Written(found, all(isinstance(entry["prompt"], str) for entry in entries))


def rewards_of(spec: TrialSpec) -> List[Callable[..., Any]]:
    """Loads rewards that are not ms-swift's own, in order. Raises ``RewardFailedError`` if one cannot be loaded."""
    return load_rewards([reward for reward in spec.rewards if reward.kind != OWN])


def register_rewards(spec: TrialSpec, rewards: Sequence[Callable[..., Any]], raw: bool) -> List[str]:
    """Registers the rewards with ms-swift; returns the names for ``reward_funcs``, ms-swift's own included.

    ``raw``: prompts are plain texts, so TRL would give rewards texts instead of messages.
    """
    names: List[str] = []
    made = iter(rewards)
    for reward in spec.rewards:
        if reward.kind == OWN:
            names.append(reward.name)
            continue
        function = next(made)
        name = "%s_%d" % (getattr(function, "__name__", "reward"), len(names))
        orms[name] = _class(function, name, raw)
        names.append(name)
    return names


def _class(function: Callable[..., Any], name: str, raw: bool) -> Any:
    own = guarded(function)
    if inspect.iscoroutinefunction(function):

        async def score_async(_: Any, completions: List[str], messages: Any = (), **columns: Any) -> Any:
            return await own(**_reward_arguments(completions, messages, columns, raw))

        return type(name, (AsyncORM,), {"__call__": score_async})

    def score(_: Any, completions: List[str], messages: Any = (), **columns: Any) -> Any:
        return own(**_reward_arguments(completions, messages, columns, raw))

    return type(name, (ORM,), {"__call__": score})


def _reward_arguments(completions: List[str], messages: Any, columns: Dict[str, Any], raw: bool) -> Dict[str, Any]:
    """Returns the arguments for a reward with TRL's signature; prompts are without the generated messages."""
    prompts: List[Any] = [[message for message in row if message["role"] != "assistant"] for row in messages]
    written: List[Any] = list(completions)
    if raw:
        prompts = [row[-1]["content"] for row in prompts]
    else:
        written = [[{"role": "assistant", "content": completion}] for completion in completions]
    return {"prompts": prompts, "completions": written, "completion_ids": columns.get("response_token_ids"), **columns}

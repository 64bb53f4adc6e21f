"""Takes over what a rollout produces, and counts it: lengths, prompts, tokens, rows."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, List, Optional, Sequence, Tuple

from ...contract import CycleKind
from ...failures import MeterError
from .lengths import ExactLengths, stretch


@dataclass
class Tally:
    """What one cycle did on this rank."""

    lengths: List[int] = field(default_factory=list)
    clipped: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    generations: int = 0
    widest: Tuple[int, int, int] = (0, 0, 0)
    """(prompt + completion, prompt, completion) tokens of the widest micro-batch an update worked on."""


class Rollout:
    """Sets the lengths of each generation of a cycle from outside, and tallies what came out.

    ``aim`` gives the lengths of the cycle's rows, over all ranks and in order of generation; ``None``
    lets the model stop where it wants. ``stretch_last`` makes the cycle's last generation the worst
    case: prompts and completions at their maximum (the last, because the gradients of the micro-batches
    before it are then already there).
    """

    def __init__(self, trainer: Any, max_prompt: int, max_completion: int, generations: int, rank: int) -> None:
        self._trainer = trainer
        self._max_prompt = max_prompt
        self._max_completion = max_completion
        self._generations = generations
        self._rank = rank
        self._targets: Optional[Sequence[int]] = None
        self._stretch_last = False
        self._pending: Optional[List[int]] = None
        self._masks_truncated = bool(trainer.mask_truncated_completions)
        self.tally = Tally()

    def install(self) -> None:
        """Wrap the trainer's and the model's methods; nothing of theirs is edited."""
        trainer = self._trainer
        trainer._tokenize_prompts = self._wrap_tokenize(trainer._tokenize_prompts)
        trainer._generate_single_turn = self._wrap_turn(trainer._generate_single_turn)
        model = trainer.accelerator.unwrap_model(trainer.model)
        model.generate = self._wrap_generate(model.generate)

    def aim(self, kind: CycleKind, targets: Optional[Sequence[int]], stretch_last: bool = False) -> None:
        """Before each cycle."""
        self._targets, self._stretch_last = targets, stretch_last
        self.tally = Tally()
        # A forced length is no truncation: masking those rows would take work out of the update.
        self._trainer.mask_truncated_completions = self._masks_truncated and kind is CycleKind.NATURAL

    @property
    def _is_worst(self) -> bool:
        return self._stretch_last and self.tally.generations == self._generations - 1

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
            self._count(prompt_ids, completion_ids)
            self._pending = None
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
            return generate(*args, **kwargs)

        return generate_with_lengths

    def _lengths(self, rows: int) -> Optional[List[int]]:
        """Of this rank's rows in the generation about to run; ranks hold consecutive slices of it."""
        if self._is_worst:
            return [self._max_completion] * rows
        if self._targets is None:
            return None
        start = (self.tally.generations * self._trainer.accelerator.num_processes + self._rank) * rows
        wanted = self._targets[start : start + rows]
        if len(wanted) != rows:
            raise MeterError("a generation of %d rows, but lengths for %d" % (rows, len(wanted)))
        return [max(1, min(length, self._max_completion)) for length in wanted]

    def _count(self, prompt_ids: Any, completion_ids: Any) -> None:
        lengths = [len(row) for row in completion_ids]
        if self._pending is not None and lengths != self._pending:
            raise MeterError("asked for completions of %s tokens, got %s" % (self._pending, lengths))
        ends = {*self._trainer.eos_token_ids, self._trainer._tokenizer.pad_token_id}
        self.tally.lengths += lengths
        self.tally.clipped += sum(1 for row in completion_ids if row[-1] not in ends)
        self.tally.prompt_tokens += sum(len(row) for row in prompt_ids)
        self.tally.generations += 1

    def count_forward(self, prompt_ids: Any, completion_ids: Any) -> None:
        """An update's forward pass is about to work on these."""
        prompt, completion = int(prompt_ids.shape[1]), int(completion_ids.shape[1])
        self.tally.computed_tokens += int(prompt_ids.shape[0]) * (prompt + completion)
        self.tally.widest = max(self.tally.widest, (prompt + completion, prompt, completion))

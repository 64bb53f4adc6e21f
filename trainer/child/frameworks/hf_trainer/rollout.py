"""Sets the completion lengths of a rollout, and counts its prompts, tokens and rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, List, Optional, Sequence, Tuple

from ...contract import CycleKind
from ...failures import MeterError
from ...meter import ShapesMet


@dataclass
class CycleTally:
    """Counters of one cycle on this rank."""

    lengths: List[int] = field(default_factory=list)
    clipped: int = 0
    prompt_tokens: int = 0
    computed_tokens: int = 0
    generations: int = 0
    widest: Tuple[int, int, int] = (0, 0, 0)
    """(prompt + completion, prompt, completion) tokens of the widest micro-batch an update worked on."""


class MeteredRollout:
    """Sets the completion lengths of each generation and counts its results; subclasses hook one framework each.

    ``aim`` sets the lengths of the cycle's rows, in tokens, over all ranks in order of generation; ``None`` leaves them
    to the model. ``stretch_last`` makes the last generation of a cycle the worst case, with prompts and completions of
    maximum length: by then the gradients of earlier micro-batches are allocated.
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
        self._masked = self.masks_truncated
        self.tally = CycleTally()
        model = getattr(trainer, "model", None)
        attention = getattr(getattr(model, "config", None), "_attn_implementation", "")
        self.shapes = ShapesMet("%s %s" % (getattr(model, "dtype", ""), attention))
        """Shapes of the model's forward passes, without a rollout engine's."""
        self.before_sleep: Callable[[], None] = lambda: None
        """Called while an engine that is about to go to sleep still holds its weights and its cache."""

    def install(self) -> None:
        """Patches the generation methods of trainer, model or engine, to set completion lengths and count tokens."""
        raise NotImplementedError

    def aim(self, kind: CycleKind, targets: Optional[Sequence[int]], stretch_last: bool = False) -> None:
        """Starts a cycle: sets the completion lengths, in tokens, and resets the tally."""
        self._targets, self._stretch_last = targets, stretch_last
        self.tally = CycleTally()
        # A forced length is no truncation: masking those rows would take work out of the update.
        self.masks_truncated = self._masked and kind is CycleKind.NATURAL

    @property
    def masks_truncated(self) -> bool:
        """True if the trainer excludes truncated completions from the loss."""
        return bool(self._trainer.mask_truncated_completions)

    @masks_truncated.setter
    def masks_truncated(self, masks: bool) -> None:
        self._trainer.mask_truncated_completions = masks

    def take_shapes(self) -> Optional[int]:
        """Returns the number of new shapes of forward passes since the last call; ``None`` if they are not counted."""
        return self.shapes.take()

    @property
    def _is_worst(self) -> bool:
        return self._stretch_last and self.tally.generations == self._generations - 1

    def _of_engine(self, prompts: Optional[int] = None) -> Sequence[int]:
        """Returns the completion lengths of an engine's rows: with tensor parallelism those of all its ranks, unless it
        gets only the ``prompts`` of one rank."""
        pending = self._pending or []
        size = int(self._trainer.vllm_tensor_parallel_size)
        if size == 1 or prompts == len(pending):
            return pending
        return self._of_ranks(len(pending), self._rank // size * size, size)

    def _of_ranks(self, rows: int, first: int, count: int) -> List[int]:
        """Returns the completion lengths of ``rows`` rows of each of ``count`` ranks from rank ``first``."""
        return [length for rank in range(first, first + count) for length in self._lengths(rows, rank) or []]

    def _of_all(self, rows: int) -> Optional[List[int]]:
        """Returns the completion lengths of all ranks' rows; ``None`` if the model decides."""
        return self._of_ranks(rows, 0, int(self._trainer.accelerator.num_processes)) or None

    def _add(self, lengths: List[int], clipped: int, prompt_tokens: int) -> None:
        """Counts a generation of this rank. Raises ``MeterError`` for rows of other lengths than set."""
        if self._pending is not None and lengths != self._pending:
            raise MeterError("asked for completions of %s tokens, got %s" % (self._pending, lengths))
        self.tally.lengths += lengths
        self.tally.clipped += clipped
        self.tally.prompt_tokens += prompt_tokens
        self.tally.generations += 1
        self._pending = None

    def _lengths(self, rows: int, rank: Optional[int] = None) -> Optional[List[int]]:
        """Returns the next generation's completion lengths on this rank, or ``rank``; ``None`` if the model decides."""
        if self._is_worst:
            return [self._max_completion] * rows
        if self._targets is None:
            return None
        rank = self._rank if rank is None else rank
        start = (self.tally.generations * self._trainer.accelerator.num_processes + rank) * rows
        wanted = self._targets[start : start + rows]
        if len(wanted) != rows:
            raise MeterError("a generation of %d rows, but lengths for %d" % (rows, len(wanted)))
        return [max(1, min(length, self._max_completion)) for length in wanted]

    def count_inputs(self, inputs: Any) -> None:
        """Counts the tokens and the shape of an update's forward pass, padding included."""
        rows, prompt = map(int, inputs["prompt_ids"].shape)
        completion = int(inputs["completion_ids"].shape[1])
        self.tally.computed_tokens += rows * (prompt + completion)
        self.shapes.meet(rows, prompt + completion)
        self.tally.widest = max(self.tally.widest, (prompt + completion, prompt, completion))

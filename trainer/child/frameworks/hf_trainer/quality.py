"""Checks that the trained policy equals the generating policy, and its gradient the bf16 gradient, within limits.

If TRL corrects for the rollout engine's rounding, it computes the trainer's log-probs, which are compared in every
cycle. Otherwise they are computed here, for a few rows of the untimed warm-up.
"""

from __future__ import annotations

import functools
import math
from typing import Any, List, Mapping, Optional, Tuple

import torch

from ...contract import CycleKind, NoteRecord, Phase, limits
from ...failures import NotFiniteError, QualityError, memory_pool
from ...journal import Journal
from .gradient import Gradients, NotComparableError, compare
from .together import Together

ROWS = 4
"""Most rows of a log-prob pass for this check alone; never more than a micro-batch has."""
LARGEST = 50.0
"""Differences of two log-probs are cut to this value."""


class Quality:
    """The quality guard of one rank.

    Call ``install`` before the phases are wrapped, so that its work counts in none; ``begin`` before a cycle,
    ``mismatch`` and then ``check`` after it. All ranks do the same.
    """

    def __init__(
        self, trainer: Any, journal: Journal, rank: int = 0, logps: Any = None, judged: Optional[bool] = None
    ) -> None:
        """Prepares the guard.

        ``logps`` is the trainer's method that computes log-probs, by default TRL 1.16's; ``judged`` tells whether a
        mismatch ends the trial, by default if the rollout samples from the whole policy.
        """
        self._trainer = trainer
        self._journal = journal
        self._rank = rank
        self._together = Together(trainer.accelerator)
        self._logps = trainer._get_per_token_logps_and_entropies if logps is None else logps
        self._judged = samples_freely(trainer) if judged is None else judged
        self._kind: Optional[CycleKind] = None
        self._compared = False
        self._parts: List[Tuple[Any, Any]] = []
        self._last: Optional[float] = None

    def install(self) -> None:
        """Watches the outputs of every generation."""
        generate = self._trainer._generate_and_score_completions

        @functools.wraps(generate)
        def generate_and_score_completions(*args: Any, **kwargs: Any) -> Any:
            inputs = generate(*args, **kwargs)
            self._look(inputs)
            return inputs

        self._trainer._generate_and_score_completions = generate_and_score_completions

    def begin(self, kind: CycleKind) -> None:
        """Announces a cycle of this kind."""
        self._kind = kind
        self._parts.clear()
        self._last = None

    def mismatch(self) -> Optional[float]:
        """Returns the log-prob mismatch over the cycle's tokens on all ranks; ``None`` without usable log-probs."""
        own = (sum(float(total) for total, _ in self._parts), sum(int(count) for _, count in self._parts))
        parts = self._together.all(own)
        count = sum(part[1] for part in parts)
        self._last = sum(part[0] for part in parts) / count if count else None
        return self._last if self._last is not None and math.isfinite(self._last) else None

    def check(self) -> None:
        """Checks the last mismatch; call it after ``mismatch``.

        Raises:
            QualityError: with the figure and its limit.
            NotFiniteError: the trainer's own log-probs are not numbers.
        """
        if self._last is None:
            return
        if not math.isfinite(self._last):
            raise NotFiniteError("the trainer's log-probs are not finite", Phase.LOGPROB)
        problem = limits.mismatch_problem(self._last)
        if problem is not None and self._judged:
            raise QualityError(problem, Phase.GENERATE)

    def _look(self, inputs: Mapping[str, Any]) -> None:
        untimed = self._kind is CycleKind.WARMUP
        rollout, own = inputs.get("sampling_per_token_logps"), inputs.get("old_per_token_logps")
        mask = inputs["completion_mask"]
        if "tool_mask" in inputs:
            mask = mask * inputs["tool_mask"]
        if rollout is not None and own is None and untimed and "pixel_values" not in inputs:
            own = self._own(inputs)
        if rollout is not None and own is not None:
            rows = own.shape[0]
            self._parts.append(ratios(own, rollout[:rows], mask[:rows]))
        if untimed and not self._compared:
            self._compared = True
            self._gradient(inputs)

    def _own(self, inputs: Mapping[str, Any]) -> Any:
        """Returns the trainer's log-probs of the first rows."""
        rows = min(ROWS, int(self._trainer.args.per_device_train_batch_size))
        taken = {name: inputs[name][:rows] for name in ("prompt_ids", "prompt_mask", "completion_ids")}
        ids = torch.cat([taken["prompt_ids"], taken["completion_ids"]], dim=1)
        mask = torch.cat([taken["prompt_mask"], inputs["completion_mask"][:rows]], dim=1)
        with torch.no_grad():
            found = self._logps(self._trainer.model, ids, mask, taken["completion_ids"].shape[1], batch_size=1)
        return found[0]

    def _gradient(self, inputs: Mapping[str, Any]) -> None:
        """Compares the gradients; if memory does not suffice, the trial goes on with a note."""
        problem = None
        try:
            found = compare(self._trainer, inputs)
        except NotComparableError as error:
            self._note("gradient_not_compared", {"why": str(error)})
        except (RuntimeError, MemoryError) as error:
            if memory_pool(error) is None:
                raise
            self._note("gradient_not_compared", {"why": "no memory for it"})
        else:
            problem = self._verdict(found)
        problems = [each for each in self._together.all(problem) if each is not None]
        if problems:
            raise QualityError(problems[0], Phase.UPDATE)

    def _verdict(self, gradients: Optional[Gradients]) -> Optional[str]:
        if gradients is None:
            return None
        figures = {"cosine": gradients.cosine, "ratio": gradients.ratio}
        finite = {name: value for name, value in figures.items() if math.isfinite(value)}
        data = {"change": gradients.change, **finite, "tokens": gradients.tokens, "parameters": gradients.parameters}
        self._note("gradient", data)
        return limits.gradient_problem(gradients.cosine, gradients.ratio)

    def _note(self, name: str, data: Mapping[str, Any]) -> None:
        if self._rank == 0:
            self._journal.write(NoteRecord(name, data))


def ratios(own: Any, rollout: Any, mask: Any) -> Tuple[Any, Any]:
    """Returns (sum of exp(|difference|), number) of the tokens in ``mask`` with a log-prob of the rollout.

    Does not wait for the device.
    """
    known = mask.bool() & ~torch.isnan(rollout)
    apart = torch.where(known, (own - rollout).abs(), torch.zeros_like(own))
    each = torch.where(known, apart.clamp(max=LARGEST).exp(), torch.zeros_like(own))
    return each.sum(), known.sum()


def samples_freely(trainer: Any) -> bool:
    """Tells whether the rollout samples from the whole policy; a truncated one has other log-probs by design."""
    top_p, top_k, min_p = trainer.top_p, trainer.top_k, trainer.min_p
    cut = (top_p is not None and top_p < 1.0) or (top_k or 0) > 0 or (min_p or 0.0) > 0.0
    return not cut and trainer.repetition_penalty in (None, 1.0) and not trainer.args.generation_kwargs

"""Checks that the trainer's log-probs are close to the rollout's, and its gradient to the bf16 gradient.

If TRL corrects for the rollout engine's rounding, it computes the trainer's log-probs, which are compared in every
cycle. Otherwise they are computed here, for a few rows of the untimed warm-up.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any, Iterator, List, Mapping, Optional, Tuple

import torch

from ...contract import CycleKind, NoteRecord, Phase, limits
from ...failures import NotFiniteError, QualityError, memory_pool
from ...journal import Journal
from .around import replace
from .float8 import float8_layers, without_float8
from .together import Together

COMPARED_ROWS = 2
PROMPT_TOKENS = 32
"""Prompt tokens that are compared at most, the last ones."""
COMPLETION_TOKENS = 32
"""Completion tokens that are compared at most, the first ones."""
PARAMETERS = 8
"""Weight matrices of the compared gradient, from the first layer to the last, without embedding and head."""
FIRST_SCALE = 2.0**14
"""Loss scale in fp16, halved until the gradient is finite, as the training's scaler does over its first steps."""


@dataclass(frozen=True)
class TokenRows:
    """Token ids, (rows, prompt + completion), with their masks."""

    ids: Any
    mask: Any
    completion: int
    """Completion tokens of a row: the last columns."""


@dataclass(frozen=True)
class Gradients:
    """Cosine and norm ratio of two gradients."""

    cosine: float
    ratio: float
    """Norm of the gradient with the trial's rounding over the norm with bf16."""
    tokens: int
    parameters: int
    change: str


class NotComparableError(Exception):
    """The trial's gradient cannot be compared with the bf16 gradient; the message gives the reason."""


def change_of(trainer: Any) -> str:
    """Describes the roundings of this trainer that are coarser than bf16 with fp32 weights; empty if there are none."""
    model = trainer.model
    found = []
    if float8_layers(model):
        found.append("fp8")
    if trainer.args.fp16:
        found.append("fp16")
    if _weights(model) in (torch.bfloat16, torch.float16):
        found.append("%s weights" % str(_weights(model)).replace("torch.", ""))
    return ", ".join(found)


def compare(trainer: Any, inputs: Mapping[str, Any]) -> Optional[Gradients]:
    """Compares the gradients of the mean log-prob of a few tokens; ``None`` without rounding coarser than bf16's.

    The model, its gradients and the optimizer stay unchanged. Dropout is off.

    Args:
        trainer: in training, so that its model is on its device.

    Raises:
        NotComparableError: the weights are spread over ranks, the model has further inputs besides tokens, or there is
            no gradient to compare with.
    """
    change = change_of(trainer)
    if not change:
        return None
    model = trainer.model
    if trainer.is_fsdp_enabled or any(hasattr(parameter, "ds_id") for parameter in model.parameters()):
        raise NotComparableError("the weights are spread over ranks")
    if "pixel_values" in inputs:
        raise NotComparableError("the prompts hold images")
    batch = take(inputs)
    parameters = sample(model)
    if not parameters or not int(batch.mask[:, -batch.completion :].sum()):
        raise NotComparableError("there is no weight matrix that is trained, or no token to train on")
    training = model.training
    model.eval()
    try:
        mixed = torch.float16 if trainer.args.fp16 else torch.bfloat16 if trainer.args.bf16 else None
        here = _gradient(model, batch, parameters, mixed)
        with without_float8(model), _as_fp32_weights(model):
            there = _gradient(model, batch, parameters, torch.bfloat16)
    finally:
        model.train(training)
    cosine, ratio = angle(here, there)
    return Gradients(cosine, ratio, int(batch.mask.sum()), len(parameters), change)


def take(inputs: Mapping[str, Any]) -> TokenRows:
    """Returns the compared tokens of the first rows: prompts' last, completions' first."""
    prompt, completion = inputs["prompt_ids"][:COMPARED_ROWS, -PROMPT_TOKENS:], inputs["completion_ids"][:COMPARED_ROWS]
    completion = completion[:, :COMPLETION_TOKENS]
    prompt_mask = inputs["prompt_mask"][:COMPARED_ROWS, -PROMPT_TOKENS:]
    mask = inputs["completion_mask"][:COMPARED_ROWS, :COMPLETION_TOKENS]
    return TokenRows(
        torch.cat([prompt, completion], dim=1), torch.cat([prompt_mask, mask], dim=1), int(completion.shape[1])
    )


def sample(model: Any) -> List[Any]:
    """Returns up to ``PARAMETERS`` trained weight matrices, spread over the layers, the same for equal models.

    For an adapter, takes the second matrix: the first has no gradient while the second is zero, as at the start.
    """
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    apart = {id(getattr(module, "weight", None)) for module in ends if module is not None}
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad and p.dim() == 2]
    found = [p for name, p in named if id(p) not in apart and "lora_A" not in name]
    if len(found) <= PARAMETERS:
        return found
    return [found[i * (len(found) - 1) // (PARAMETERS - 1)] for i in range(PARAMETERS)]


def angle(here: List[Any], there: List[Any]) -> Tuple[float, float]:
    """Returns (cosine of the angle, ratio of the norms) of two gradients, each given as parts of one vector.

    NaN if ``here`` is not finite. Raises NotComparableError if ``there`` is zero or not finite.
    """
    both = sum(float((a * b).sum(dtype=torch.float64)) for a, b in zip(here, there))  # noqa: B905
    one, other = _norm(here), _norm(there)
    if not math.isfinite(other) or not other:
        raise NotComparableError("the gradient of bf16 is %s there" % ("zero" if other == 0 else "not finite itself"))
    if not math.isfinite(one):
        return math.nan, math.nan
    return (both / (one * other) if one else 0.0), one / other


def _norm(parts: List[Any]) -> float:
    return math.hypot(*(float(torch.linalg.vector_norm(part, dtype=torch.float64)) for part in parts))


def _gradient(model: Any, batch: TokenRows, parameters: List[Any], dtype: Any) -> List[Any]:
    """Returns the gradient under autocast with ``dtype``; in fp16 the loss is scaled and the gradient unscaled."""
    scale = FIRST_SCALE if dtype is torch.float16 else 1.0
    while True:
        loss = _loss(model, batch, dtype)
        found = torch.autograd.grad(loss * scale, parameters, allow_unused=True)
        parts = [
            torch.zeros_like(p, dtype=torch.float32) if part is None else part.float() / scale
            for p, part in zip(parameters, found)  # noqa: B905
        ]
        if scale <= 1.0 or all(bool(torch.isfinite(part).all()) for part in parts):
            return parts
        scale /= 2.0


def _loss(model: Any, batch: TokenRows, dtype: Any) -> Any:
    """Returns the mean log-prob of the completions' tokens, by the model without its training wrappers."""
    forward = model.__dict__.get("_original_forward", model.forward)
    kind = batch.ids.device.type
    with torch.enable_grad(), torch.autocast(kind, dtype=dtype or torch.bfloat16, enabled=dtype is not None):
        logits = forward(input_ids=batch.ids, attention_mask=batch.mask, use_cache=False).logits
    wanted, mask = batch.ids[:, -batch.completion :], batch.mask[:, -batch.completion :]
    logps = torch.log_softmax(logits[:, -batch.completion - 1 : -1].float(), dim=-1)
    logps = logps.gather(-1, wanted.unsqueeze(-1)).squeeze(-1)
    return (logps * mask).sum() / mask.sum()


def _weights(model: Any) -> Any:
    return model.get_input_embeddings().weight.dtype


@contextlib.contextmanager
def _as_fp32_weights(model: Any) -> Iterator[None]:
    """Computes in the ``with`` block as if the weights were fp32, except matrix products.

    Autocast rounds matrices to bf16 for their products in any case, so matrices need no copy; only the small weights
    (norms, biases) and the precision of the embedding's output differ.
    """
    if _weights(model) == torch.float32:
        yield
        return
    small = [p for p in model.parameters() if p.dim() < 2 and p.is_floating_point()]
    kept = [p.data for p in small]
    for parameter in small:
        parameter.data = parameter.data.float()
    hook = model.get_input_embeddings().register_forward_hook(lambda _, __, output: output.float())
    try:
        yield
    finally:
        hook.remove()
        for parameter, data in zip(small, kept):  # noqa: B905
            parameter.data = data


ROWS = 4
"""Most rows of a log-prob pass for this check alone; never more than a micro-batch has."""
LARGEST = 50.0
"""Differences of two log-probs are cut to this value."""


class Quality:
    """Checks log-probs and gradients on one rank.

    Call ``install`` before the phases are wrapped, so that no phase includes its work; ``begin`` before a cycle,
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
        """Patches the trainer: compares log-probs after every generation, and gradients once in the warm-up."""

        def watched(generate: Any, *args: Any, **kwargs: Any) -> Any:
            inputs = generate(*args, **kwargs)
            self._look(inputs)
            return inputs

        replace(self._trainer, "_generate_and_score_completions", watched)

    def begin(self, kind: CycleKind) -> None:
        """Starts a cycle of ``kind``, without a mismatch so far."""
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
            QualityError: the mismatch is above the limit; with both figures.
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
        """Compares the gradients; if memory does not suffice, continues the trial with a note."""
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


def samples_freely(own: Any) -> bool:
    """Tells whether the rollout samples from the whole policy; truncated sampling has other log-probs by design.

    ``own`` has the sampling's parameters: TRL's trainer, or ms-swift's arguments.
    """
    cut = (own.top_p is not None and own.top_p < 1.0) or (own.top_k or 0) > 0 or (own.min_p or 0.0) > 0.0
    others = getattr(getattr(own, "args", None), "generation_kwargs", None)
    return not cut and own.repetition_penalty in (None, 1.0) and not others

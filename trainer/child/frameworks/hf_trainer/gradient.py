"""Compares the gradient of a few tokens under the trial's rounding with the gradient under bf16."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from typing import Any, Iterator, List, Mapping, Optional, Tuple

import torch

from .float8 import float8_layers, without_float8

ROWS = 2
PROMPT_TOKENS = 32
"""Most tokens of a prompt that are used, its last ones."""
COMPLETION_TOKENS = 32
"""Most tokens of a completion that are used, its first ones."""
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
    """Columns at the end that are the completion's."""


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
    """The trial rounds in a way whose gradient cannot be compared; the message gives the reason."""


def change_of(trainer: Any) -> str:
    """Returns the roundings of this trainer that are coarser than bf16 with fp32 weights, in words; empty if none."""
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
    """Compares the gradient of the mean log-prob of a few tokens; ``None`` if nothing is rounded more coarsely.

    The model, its gradients and the optimizer stay unchanged. Dropout is off.

    Args:
        trainer: in training, so that its model is on its device.
        inputs: the training inputs of a generation.

    Raises:
        NotComparableError: the weights are spread over ranks, the tokens alone are not the model's input, or there is
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
    """Returns a few tokens of the first rows."""
    prompt, completion = inputs["prompt_ids"][:ROWS, -PROMPT_TOKENS:], inputs["completion_ids"][:ROWS]
    completion = completion[:, :COMPLETION_TOKENS]
    prompt_mask = inputs["prompt_mask"][:ROWS, -PROMPT_TOKENS:]
    mask = inputs["completion_mask"][:ROWS, :COMPLETION_TOKENS]
    return TokenRows(
        torch.cat([prompt, completion], dim=1), torch.cat([prompt_mask, mask], dim=1), int(completion.shape[1])
    )


def sample(model: Any) -> List[Any]:
    """Returns trained weight matrices, evenly from the first to the last, the same for every model of a kind.

    Of an adapter the second matrix: the first has no gradient while the second is zero, as at the start.
    """
    ends = [model.get_input_embeddings(), model.get_output_embeddings()]
    apart = {id(getattr(module, "weight", None)) for module in ends if module is not None}
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad and p.dim() == 2]
    found = [p for name, p in named if id(p) not in apart and "lora_A" not in name]
    if len(found) <= PARAMETERS:
        return found
    return [found[i * (len(found) - 1) // (PARAMETERS - 1)] for i in range(PARAMETERS)]


def angle(here: List[Any], there: List[Any]) -> Tuple[float, float]:
    """Returns (cosine of the angle, ratio of the norms) of two gradients, each the parts of one vector.

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
    """Computes inside the ``with`` block as if the weights were fp32, except matrix products.

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

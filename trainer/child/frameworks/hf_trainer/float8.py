"""FP8 matrix products for training, put into the loaded model by torchao before the trainer is built.

This file is also copied unchanged into an exported configuration, so it imports nothing of ours.

Weights, gradients and the optimizer keep their precision. The three matrix products of a linear layer (output, gradient
of the input, gradient of the weight) take FP8 operands with one new scale for each tensor; all other operations run as
with bf16. The LM head is not converted, because its output is the log-probs that are trained on.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple

import torch

FLOAT8_SEAMS = frozenset({"precision", "fp8_emulate"})
MULTIPLE = 16
"""Divisor of both sizes of a convertible layer, required by ``torch._scaled_mm``."""
CAPABILITY = (8, 9)
"""The first compute capability with FP8 matrix products."""


class Float8Error(ValueError):
    """FP8 training is not possible with this model, device or environment; the message gives the reason."""


def convert(model: Any, seams: Mapping[str, Any], device: str = "cuda") -> Dict[str, Any]:
    """Converts the linear layers of ``model`` in place to FP8 matrix products if ``seams`` request it.

    Adapters that PEFT adds later are not converted, only the layers below them.

    Args:
        model: as loaded; its weights are not changed.
        seams: knobs by name; knobs outside ``FLOAT8_SEAMS`` are ignored.

    Returns:
        ``layers`` and ``left_out`` (numbers of linear layers), ``emulated``; empty if nothing was requested.

    Raises:
        Float8Error: torchao is missing or of another version, the hardware has no FP8 and emulation was not requested,
            the model is quantised, or it has no layer that fits.
    """
    precision, emulate = seams.get("precision"), seams.get("fp8_emulate", False)
    if precision is None:
        return {}
    if precision != "fp8" or not isinstance(emulate, bool):
        raise Float8Error("precision %r with fp8_emulate %r is nothing this seam can set" % (precision, emulate))
    fitting, left_out = layers_of(model)
    _check_model(model, fitting)
    if not emulate:
        _check_hardware(device)
    _to_float8(model, fitting, emulate)
    for layer in float8_layers(model):
        layer.register_forward_pre_hook(_as_autocast)
    return {"layers": len(fitting), "left_out": len(left_out), "emulated": emulate}


def layers_of(model: Any) -> Tuple[List[str], List[str]]:
    """Returns the names of the linear layers that (can, cannot) be converted."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    fitting: List[str] = []
    left_out: List[str] = []
    for name, module in model.named_modules():
        if type(module) is torch.nn.Linear:  # what derives from it has its own product, of quantised weights mostly
            fits = module.in_features % MULTIPLE == 0 and module.out_features % MULTIPLE == 0
            (fitting if fits and module is not head else left_out).append(name)
    return fitting, left_out


def float8_layers(model: Any) -> List[Any]:
    """Returns the converted layers of ``model``."""
    return [module for module in model.modules() if type(module).__name__ == "Float8Linear"]


@contextlib.contextmanager
def without_float8(model: Any) -> Iterator[None]:
    """Makes the converted layers compute as ordinary ones in the ``with`` block."""
    layers = float8_layers(model)
    for layer in layers:
        layer.forward = functools.partial(torch.nn.Linear.forward, layer)
    try:
        yield
    finally:
        for layer in layers:
            del layer.forward


def _check_model(model: Any, fitting: List[str]) -> None:
    if getattr(model, "is_quantized", False) or getattr(model, "quantization_method", None) is not None:
        raise Float8Error("precision fp8 cannot be used with a quantised model: its weights have products of their own")
    if not fitting:
        raise Float8Error("precision fp8: this model has no linear layer of sizes that are multiples of %d" % MULTIPLE)


def _check_hardware(device: str) -> None:
    if device != "cuda" or not torch.cuda.is_available():
        raise Float8Error("precision fp8 needs a GPU of compute capability %d.%d or later, or fp8_emulate" % CAPABILITY)
    found = torch.cuda.get_device_capability()
    if found < CAPABILITY:
        raise Float8Error(
            "precision fp8 needs compute capability %d.%d or later, or fp8_emulate, and this GPU has %d.%d"
            % (*CAPABILITY, *found)
        )


def _to_float8(model: Any, fitting: List[str], emulate: bool) -> None:
    wanted = frozenset(fitting)
    chosen: Callable[[Any, str], bool] = lambda _, name: name in wanted  # noqa: E731
    try:
        float8 = importlib.import_module("torchao.float8")
        # Rows times tokens is the inner size of the weight's gradient, and seldom a multiple of 16.
        config = float8.Float8LinearConfig(emulate=emulate, pad_inner_dim=not emulate)
        float8.convert_to_float8_training(model, config=config, module_filter_fn=chosen)
    except ImportError as error:
        raise Float8Error("precision fp8 needs the package torchao in the training environment: %s" % error) from error
    except (AttributeError, TypeError) as error:
        raise Float8Error("this torchao converts models in a way that is not known here: %s" % error) from error
    if len(float8_layers(model)) != len(fitting):
        raise Float8Error("torchao converted %d of %d layers" % (len(float8_layers(model)), len(fitting)))


def _as_autocast(_: Any, args: Tuple[Any, ...]) -> Tuple[Any, ...]:
    """Casts the input, and so the output, to autocast's precision; torchao does this only on a GPU."""
    kind = args[0].device.type
    if kind == "cuda" or not torch.is_autocast_enabled(kind):
        return args
    return (args[0].to(torch.get_autocast_dtype(kind)), *args[1:])

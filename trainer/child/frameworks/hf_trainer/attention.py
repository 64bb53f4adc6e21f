"""Reports the attention implementation that a trial's trainer runs, without inspecting kernels."""

from __future__ import annotations

from typing import Any, Dict, List

import torch

BACKENDS = {
    "cudnn": "cudnn_sdp_enabled",
    "flash": "flash_sdp_enabled",
    "mem_efficient": "mem_efficient_sdp_enabled",
    "math": "math_sdp_enabled",
}
"""Kernels of ``torch.nn.functional.scaled_dot_product_attention`` -> the question in ``torch.backends.cuda``."""


def attention_facts(model: Any) -> Dict[str, Any]:
    """Returns ``implementation`` of the model, and ``sdpa``: kernels that ``scaled_dot_product_attention`` may use on a
    GPU, chosen anew for each shape.
    """
    config = getattr(model, "config", None)
    return {"implementation": getattr(config, "_attn_implementation", None), "sdpa": enabled_backends()}


def enabled_backends() -> List[str]:
    """Returns the enabled ones of ``BACKENDS``; a backend unknown to this torch is left out."""
    asked = {name: getattr(torch.backends.cuda, question, None) for name, question in BACKENDS.items()}
    return [name for name, question in asked.items() if question is not None and question()]

"""Run by ms-swift's own interpreter: what Megatron-SWIFT's argument classes say to arguments, without Megatron-Core.

Each line of stdin is a JSON object, ``{"words": [...], "gpus": 8}``; each answer a line of JSON: what was said, empty
if they were accepted. Their own ``__post_init__`` runs whole but for what needs an installed Megatron-Core, a model, or
processes that know each other: those are stood in for.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch

from trainer.child.frameworks.ms_swift.describe import _parser, shape

SHAPE: Any = shape()
OWN: Any = next(base for base in SHAPE.__mro__ if base.__name__ == "MegatronArguments")
MODEL = SimpleNamespace(model_type="qwen3", model_dir="/models/small")
META = SimpleNamespace(is_multimodal=False, model_type="qwen3", mcore_model_type="gpt")


def stand_in(gpus: int) -> None:
    """What is beside Megatron-SWIFT's own checks."""
    names = OWN.__post_init__.__globals__
    names["initialize_megatron"] = lambda args: setattr(args, "world_size", gpus)
    names["get_model_info_meta"] = lambda *_, **__: (MODEL, META)
    names["get_model_meta"] = lambda _: META
    OWN._check_bridge_backend = lambda _: None
    OWN._init_attention_backend = lambda _: None


def said(words: list[str], gpus: int) -> str:
    stand_in(gpus)
    try:
        namespace, unknown = _parser([SHAPE]).parse_known_args(words)
        if unknown:
            return f"unknown: {unknown}"
        args = object.__new__(SHAPE)
        args.__dict__.update(vars(namespace), torch_dtype=torch.bfloat16)
        args._init_truncation_strategy()
        OWN.__post_init__(args)
        args.validate_batch_dp_alignment(
            args.generation_batch_size, args.num_generations, args.data_parallel_size, args.micro_batch_size, gpus
        )
    except (ValueError, AssertionError, ZeroDivisionError) as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr  # ms-swift's own lines go elsewhere
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(said(asked["words"], asked["gpus"])), flush=True, file=answers)


if __name__ == "__main__":
    main()

"""What a trainer did with each knob, so that one that does nothing cannot pass: run by the training interpreter."""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from pathlib import Path
from typing import Any

from engines import ARGUMENTS

CHUNKED, UTILS = "trl.kernels.chunked_logprob", "trl.trainer.utils"


FREED = 256 << 20
"""Bytes; more than any threshold at which glibc would keep them by default."""


def keeps_freed_memory() -> bool:
    """Whether this process still holds the pages of a large block after it has freed it."""
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.free.argtypes = [ctypes.c_void_p]
    block = libc.malloc(FREED)
    ctypes.memset(block, 1, FREED)
    before = resident()
    libc.free(block)
    return resident() > before - FREED // 2


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Facts:
    """Watches one trainer through its updates."""

    def __init__(self, trainer: Any, updates: int) -> None:
        self._trainer = trainer
        self._updates = updates
        self._trained: list[int] = []
        self._scored: list[int] = []
        self._widths: set[int] = set()
        self._generations = 0
        self._layers = 0
        self._model = trainer.accelerator.unwrap_model(trainer.model)

    def install(self) -> None:
        import torch  # noqa: PLC0415  (the training interpreter only)

        def forward(_: Any, args: Any, kwargs: Any) -> None:
            if kwargs.get("labels") is None:  # generation
                return
            rows, width = kwargs["input_ids"].shape
            if torch.is_grad_enabled():
                self._trained.append(rows)
                self._widths.add(width)
            else:
                self._scored.append(rows)

        def layer(*_: Any) -> None:
            self._layers += 1  # of the policy alone: with checkpointing each is computed twice

        if self._trainer.args.torch_compile:
            return  # what watches would be compiled, too
        for model in filter(None, (self._model, self._trainer.ref_model)):
            model.register_forward_pre_hook(forward, with_kwargs=True)
        self._model.model.layers[0].mlp.register_forward_pre_hook(layer)
        self._count("_generate_single_turn", "_generations")

    def _count(self, method: str, counter: str) -> None:
        inner = getattr(self._trainer, method)

        @functools.wraps(inner)
        def counted(*args: Any, **kwargs: Any) -> Any:
            setattr(self, counter, getattr(self, counter) + 1)
            return inner(*args, **kwargs)

        setattr(self._trainer, method, counted)

    def found(self) -> dict[str, Any]:
        """By knob: what was seen of it. Only plain data."""
        trainer, args = self._trainer, self._trainer.args
        inner = getattr(trainer.optimizer, "optimizer", trainer.optimizer)
        return {
            "micro_batch_size": max(self._trained, default=0),
            "gradient_accumulation_steps": len(self._trained) // self._updates,
            "steps_per_generation": len(self._trained) // max(1, self._generations),
            "logprob_rows": max(self._scored, default=0),
            "logprob_token_chunk": sys.modules[CHUNKED].TOKEN_CHUNK_SIZE,  # type: ignore[attr-defined]
            "logprob_vocab_chunk": sys.modules[UTILS]._CHUNKED_LOGPROB_CHUNK_SIZE,  # type: ignore[attr-defined]
            "gradient_checkpointing": self._layers > len(self._trained),
            "checkpointing_reentrant": (args.gradient_checkpointing_kwargs or {}).get("use_reentrant", False),
            "attn_implementation": self._model.config._attn_implementation,
            "optimizer": f"{type(inner).__name__}, fused {inner.param_groups[0].get('fused') or False}",
            "pad_to_multiple": max(self._widths, default=0),
            "empty_cache_steps": args.torch_empty_cache_steps,
            "dataloader_workers": args.dataloader_num_workers,
            "ranks": trainer.accelerator.num_processes,
            "zero_stage": trainer.model_wrapped.zero_optimization_stage() if trainer.is_deepspeed_enabled else 0,
            "engine": {name: value for name, value in ARGUMENTS.items() if isinstance(value, (bool, int, str))},
            "host_allocator": f"freed memory is kept: {keeps_freed_memory()}, {os.environ.get('GLIBC_TUNABLES')}",
            "torch_compile": type(trainer.model_wrapped).__name__,
        }

"""Recognises compiler processes in a trial's tree: their memory is needed once and is not the training's."""

from __future__ import annotations

from autotune.running.proc import Stat

_GCC = ("gcc", "g++", "cc", "c++", "cc1", "cc1plus", "collect2", "lto1", "lto-wrapper", "as", "ld")
_CUDA = ("nvcc", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink")
_NAMES = frozenset((*_GCC, *_CUDA))
_BEGINNINGS = ("clang", "ld.")
"""Of names with a version or a kind behind: ``clang-19``, ``ld.lld``."""


def compiles(process: Stat) -> bool:
    """Whether a process name is a compiler's."""
    return process.name in _NAMES or process.name.startswith(_BEGINNINGS)

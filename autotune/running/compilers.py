"""Which processes of a trial are compilers: what they hold is needed once, and not by the training that is measured."""

from __future__ import annotations

from autotune.running.proc import Stat

_GCC = ("gcc", "g++", "cc", "c++", "cc1", "cc1plus", "collect2", "lto1", "lto-wrapper", "as", "ld")
_CUDA = ("nvcc", "cudafe++", "cicc", "ptxas", "fatbinary", "nvlink")
_NAMES = frozenset((*_GCC, *_CUDA))
_BEGINNINGS = ("clang", "ld.")
"""Of names with a version or a kind behind: ``clang-19``, ``ld.lld``."""


def compiles(process: Stat) -> bool:
    """By the name of its program: GCC's, Clang's and CUDA's parts, as PyTorch's inductor, Triton and vLLM run them."""
    return process.name in _NAMES or process.name.startswith(_BEGINNINGS)

"""The first computation of a process, which starts the threads of torch and numpy."""

from __future__ import annotations


def rehearse() -> bool:
    """Runs a small forward and backward computation with all threads."""
    import numpy
    import torch

    size = 256
    weights = torch.ones(size, size, requires_grad=True)
    (weights @ weights).relu().sum().backward()
    return bool(numpy.dot(numpy.ones((size, size)), numpy.ones((size, size)))[0, 0] == size)

"""Errors of a search space; the CLI reports each as a usage error."""

from __future__ import annotations


class SpaceError(ValueError):
    """Bad input, in one sentence: file and line if known, the key, and the expected value."""

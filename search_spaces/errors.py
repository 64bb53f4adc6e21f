"""Errors of a space; the CLI turns them into usage errors."""

from __future__ import annotations


class SpaceError(ValueError):
    """Bad input in one sentence: the file and line if there are any, the key, and what was expected there."""

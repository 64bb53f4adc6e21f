"""What can be wrong with a space; the CLI turns it into a usage error."""

from __future__ import annotations


class SpaceError(ValueError):
    """Bad input in one sentence: the file and line if there are any, the key, and what was expected there."""

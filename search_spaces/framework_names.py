"""What the training frameworks are called: in the catalogue, on a command line, in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

SHORT: Mapping[str, str] = MappingProxyType({"trl": "trl", "open_r1": "openr1", "ms_swift": "swift", "verl": "verl"})
"""Name in the catalogue -> word of a command line."""

TITLES: Mapping[str, str] = MappingProxyType(
    {"trl": "TRL", "open_r1": "Open-R1", "ms_swift": "ms-swift", "verl": "verl"}
)
"""Name in the catalogue -> the framework's own spelling."""

_NAMES = {**{short: name for name, short in SHORT.items()}, **{name: name for name in SHORT}}


def resolved(word: str) -> str:
    """The catalogue's name for ``word``, which may be that name itself; ``word`` as it is if no framework has it."""
    return _NAMES.get(word, word)

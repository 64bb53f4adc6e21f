"""Describes the installed ms-swift's ``swift rlhf`` and ``megatron rlhf``, and has it judge a user's arguments."""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import Any, Dict, List, Mapping, Optional

from .megatron import PREFIX, shape

LONGEST = 400
"""Most characters of ms-swift's message."""


def shapes() -> List[Any]:
    """Returns the dataclass of ``swift rlhf``."""
    return [importlib.import_module("swift.arguments").RLHFArguments]


def others() -> Dict[str, Any]:
    """Returns prefix of further argument names -> their dataclass."""
    found = shape()
    return {} if found is None else {PREFIX: found}


def version() -> Dict[str, str]:
    """Returns the version, under its key in the answer."""
    return {"ms_swift": importlib.metadata.version("ms-swift")}


def refusal(keys: Mapping[str, List[str]]) -> Optional[str]:
    """Returns the objection of ms-swift's own parser to ``keys`` (argument -> words), in one line; ``None`` if
    accepted.

    Those of ``megatron rlhf`` begin with ``megatron.PREFIX``. Checks beyond the parser are left to the trial: they load
    the model's configuration, connect to a rollout server, and make folders.
    """
    theirs = bool(keys) and all(key.startswith(PREFIX) for key in keys)
    parser = _parser([others()[PREFIX]] if theirs else shapes())
    start = len(PREFIX) if theirs else 0
    words = [word for key, own in keys.items() for word in ("--" + key[start:], *own)]
    try:
        _, unknown = parser.parse_known_args(words)
    except ValueError as error:
        return " ".join(str(error).split())[:LONGEST]
    return "ms-swift does not know %s" % " ".join(unknown) if unknown else None


def _parser(wanted: List[Any]) -> Any:
    """Builds the parser of the dataclasses, which raises ``ValueError`` instead of ending the process."""
    from swift.utils.utils import _patch_get_type_hints
    from transformers import HfArgumentParser

    with _patch_get_type_hints():
        parser = HfArgumentParser(wanted)

    def error(message: str) -> None:
        raise ValueError(message)

    parser.error = error
    return parser

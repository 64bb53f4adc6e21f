"""Checks before a trial trains, for every framework."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from typing import Any, Dict, Iterator, Mapping, Optional, Tuple

from .contract import TrialSpec
from .failures import IllegalSettingError, NotFiniteError, memory_pool

TRL = ((1, 16), (1, 17))
"""TRL versions with which the patches and the meter were tested: from the first, below the second."""
MEASURING: Mapping[str, Any] = {
    "num_train_epochs": 1,
    "logging_strategy": "steps",
    "logging_steps": 1,
    "report_to": "none",
    "save_strategy": "no",
    "eval_strategy": "no",
    "disable_tqdm": True,
}
"""Settings of transformers' trainers in a trial: every step is logged, nothing is evaluated or saved."""
SET_UP = (ValueError, TypeError, ImportError, NotImplementedError)
"""Exceptions by which frameworks refuse settings."""


def says_why(error: BaseException) -> bool:
    """Tells whether a set-up error is about memory, or is our own error, which already names the remedy."""
    return isinstance(error, IllegalSettingError) or memory_pool(error) is not None


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Converts a framework's error about its settings, raised in the block, to an ``IllegalSettingError``."""
    try:
        yield
    except SET_UP as error:
        if says_why(error):
            raise
        raise IllegalSettingError(str(error) or type(error).__name__) from error


def is_within(version: str, window: Tuple[Tuple[int, ...], Tuple[int, ...]]) -> bool:
    """Tells whether ``version`` is in ``window``: at least its first version, and before its second."""
    numbers = tuple(map(int, itertools.takewhile(str.isdigit, version.partition("+")[0].split("."))))
    return window[0] <= numbers[: len(window[0])] < window[1]


def check_version(name: str, version: str, window: Tuple[Tuple[int, ...], Tuple[int, ...]]) -> None:
    """Raises ``IllegalSettingError`` if ``version`` is outside ``window``, where figures could be wrong."""
    if not is_within(version, window):
        low, high = (".".join(map(str, bound)) for bound in window)
        said = "%s %s" % (name, version) if version else "no %s" % name
        raise IllegalSettingError(
            "%s is installed; this release can measure %s >= %s and < %s" % (said, name, low, high)
        )


def check_rows(rows: int, spec: TrialSpec) -> None:
    """Raises ``IllegalSettingError`` if an update's number of completions differs from the trial's."""
    if rows != spec.rows_per_update:
        sizes = (rows, spec.rows_per_update)
        raise IllegalSettingError("these settings make %d rows per update, the trial is of %d" % sizes)


def check_weights(model: Any) -> None:
    """Raises ``NotFiniteError`` if a weight of the model is NaN before anything was trained."""
    for name, one in model.named_parameters():
        if one.is_floating_point() and one.element_size() > 1 and one.sum().isnan() and one.isnan().any():
            raise NotFiniteError("the model's weights are NaN: %s" % name)


def check_lengths(spec: TrialSpec) -> None:
    """Raises ``IllegalSettingError`` for recorded cycles without lengths, and without natural cycles that give them."""
    if spec.protocol.recorded and not spec.protocol.lengths and not spec.protocol.natural:
        raise IllegalSettingError("recorded cycles need recorded lengths, or a natural cycle to take them from")


def updates_per_cycle(accumulation: int, steps: Optional[int], iterations: Optional[int]) -> int:
    """Returns the optimizer updates of a cycle: the fewest that use up whole generations, as only whole ones are timed.

    Args:
        steps: micro-batches of a generation; by default ``accumulation``.
    """
    return math.lcm((steps or accumulation) * (iterations or 1), accumulation) // accumulation


def prompt_count(updates: int, rows: int) -> int:
    """Returns the size of a dataset, in prompts, that one epoch of ``updates`` updates of ``rows`` completions needs.

    A prompt has at least two completions. Frameworks shuffle by the size; a power of two gives trials with slightly
    different numbers of cycles the same prompts in the same order, with every group size.
    """
    return max(1024, 1 << (updates * rows // 2 - 1).bit_length())


def as_mapping(value: Any, key: str) -> Mapping[str, Any]:
    """Returns a mapping, given as such, as JSON or as ``None``. Raises ``IllegalSettingError`` for any other value."""
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if value is not None and not isinstance(value, dict):
        raise IllegalSettingError("%s: expected a mapping, got %r" % (key, value))
    return value or {}


def prompts_of(path: str) -> Iterator[Tuple[Dict[str, Any], str]]:
    """Yields (row, its file and line) of a prompts file. Raises IllegalSettingError for no rows or a missing prompt."""
    number, found = 0, False
    with open(path, encoding="utf-8") as stream:
        for number, line in enumerate(stream, 1):
            if line.strip():
                entry, found = json.loads(line), True
                if not isinstance(entry, dict) or "prompt" not in entry:
                    raise IllegalSettingError("%s line %d: no prompt" % (path, number))
                yield entry, "%s line %d" % (path, number)
    if not found:
        raise IllegalSettingError("%s holds no prompts" % path)

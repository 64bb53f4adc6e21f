"""Environment variables that set verl's knobs; Ray passes them to every worker. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from search_spaces.configuration import KnobValue
from trainer.frameworks.common.variables import ALLOCATOR, HEAPS, SEGMENTS, TUNABLES
from trainer.frameworks.verl.keys import acting

ENVIRONMENT = "env"
"""Key of the passthrough that holds variables."""
LOG_VARIABLE = "VERL_FILE_LOGGER_PATH"
"""Path of verl's log file (``verl/utils/tracking.py``)."""
_SEGMENTS: Mapping[str, bool] = {SEGMENTS: True, "expandable_segments:False": False}
_HEAPS: Mapping[str, str] = {text: word for word, text in HEAPS.items()}


def variables(configuration: Mapping[str, KnobValue]) -> dict[str, str]:
    """Returns the environment variables that the knobs of ``configuration`` add to a training process."""
    acts = acting(configuration)
    segments = [text for text, value in _SEGMENTS.items() if acts.get("expandable_segments") is value]
    heaps = [text for text, value in _HEAPS.items() if acts.get("host_allocator") == value]
    return {name: found[0] for name, found in ((ALLOCATOR, segments), (TUNABLES, heaps)) if found}


def knobs_of(environment: Mapping[str, str]) -> dict[str, KnobValue]:
    """Returns the knobs that a script's variables set; a missing variable counts as unset."""
    found: dict[str, KnobValue] = {}
    segments = _SEGMENTS.get(environment.get(ALLOCATOR, "expandable_segments:False"))
    if segments is not None:
        found["expandable_segments"] = segments
    if TUNABLES not in environment or environment[TUNABLES] in _HEAPS:
        found["host_allocator"] = _HEAPS.get(environment.get(TUNABLES, ""), "default")
    return found


def other_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables that are neither knobs nor the path of the log, which the run sets itself."""
    known = {ALLOCATOR: _SEGMENTS, TUNABLES: _HEAPS}
    return {
        name: value for name, value in environment.items() if name != LOG_VARIABLE and value not in known.get(name, {})
    }

"""Classifies an exception as a trial's outcome, in the process that raised it rather than from log text."""

from __future__ import annotations

import difflib
import errno
import os
import re
import sys
import traceback
from typing import Any, List, Mapping, Optional

from .contract import SIGNS, ContractError, FailureReason, Nearness, Phase, Pool, Result, SignMatch, read_signs

HANDLES = ("CUBLAS_STATUS_NOT_INITIALIZED", "CUDNN_STATUS_NOT_INITIALIZED")
"""Texts of a library that could not initialise on the GPU, which means out of memory if little memory is left."""
_NOT_THE_USERS = (os.path.dirname(__file__), os.path.join(os.path.dirname(os.__file__), "asyncio"))
"""Folders of code that calls a reward and is not the user's."""
_PYDANTIC = re.compile(r"^(?:Value|Assertion) error, (?P<said>.*?)(?: \[type=\w+, .*)?$")
"""Message of pydantic, which checks vLLM's settings and embeds vLLM's sentence in its own."""
_LISTED = re.compile(r"'(?P<value>[^']*)' not in \[(?P<names>'[^']*'(?:, '[^']*'){12,})\]")
"""A refused value before the list of all known ones: ms-swift lists 350 types of models."""


class IllegalSettingError(ValueError):
    """The framework cannot run with these settings; nothing was measured."""


class RewardFailedError(Exception):
    """The reward function raised, or did not return one number for each completion."""


class _InPhaseError(Exception):
    """A failure with its phase of a cycle, if known."""

    def __init__(self, message: str, phase: Optional[Phase] = None) -> None:
        super().__init__(message)
        self.phase = phase


class NotFiniteError(_InPhaseError):
    """A reward, loss or gradient norm that is not a finite number."""


class ThrashError(_InPhaseError):
    """CUDA's allocator freed its cache and retried in two consecutive timed cycles."""


class OverLimitError(_InPhaseError):
    """The host memory of a phase exceeded the trial's limit between two checks of the watchdog."""


class QualityError(_InPhaseError):
    """A numerics check failed; the message holds the figure and the limit."""


class MeterError(Exception):
    """The framework ignored a setting of the measuring code, so the figures would be wrong."""


_OWN_WORDS = (IllegalSettingError, NotFiniteError, OverLimitError, QualityError, RewardFailedError, ThrashError)


def chain(error: BaseException) -> List[BaseException]:
    """Returns ``error`` and the exceptions that caused it, newest first."""
    links: List[BaseException] = []
    link: Optional[BaseException] = error
    while link is not None and not any(link is seen for seen in links):
        links.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return links


def memory_pool(error: BaseException) -> Optional[Pool]:
    """Returns the memory pool of a failed allocation; ``None`` if the error is not about memory."""
    if isinstance(error, (ThrashError, OverLimitError)):
        return Pool.DEVICE if isinstance(error, ThrashError) else Pool.HOST
    reading = cause(error)
    if reading is not None and reading.sign.reason is FailureReason.OOM:
        return reading.sign.pool
    if any(text in text_of(error) for text in HANDLES) and _device_is_full():
        return Pool.DEVICE
    if type(error).__name__ == "OutOfMemoryError":
        # Ray's watches the machine's memory; torch's is the device's.
        return Pool.HOST if type(error).__module__.split(".")[0] == "ray" else Pool.DEVICE
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return Pool.HOST
    return None


def _device_is_full() -> bool:
    try:
        return bool(sys.modules["torch"].cuda.mem_get_info()[0] < 1 << 29)
    except Exception:  # no GPU, or one that answers nothing after its error
        return False


def cause(error: BaseException) -> Optional[SignMatch]:
    """Returns the sign of an exception's text; ``None`` if the text is unknown or only reports another failure."""
    reading = read_signs(text_of(error), SIGNS)
    return reading if reading is not None and reading.sign.nearness is Nearness.CAUSE else None


def _nearest(match: "re.Match[str]") -> str:
    value, names = match.group("value"), re.findall("'([^']*)'", match.group("names"))
    near = ", ".join(difflib.get_close_matches(value, names, n=3, cutoff=0))
    return "'%s' is none of the %d known; nearest: %s" % (value, len(names), near)


def text_of(error: BaseException) -> str:
    """Returns an error's text, with a long list of values cut to the nearest; empty if its ``__str__`` raises."""
    try:
        return _LISTED.sub(_nearest, str(error))
    except Exception:
        return ""


def fault_of_reward(error: BaseException) -> str:
    """Describes an error of a reward, with the last line of the user's own file in its traceback, or the remedy."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if os.path.dirname(f.filename) not in _NOT_THE_USERS]
    own = [frame for frame in frames if frame.filename == frames[0].filename]
    if own and not missing_variable(error):
        return "%s (%s, line %s)" % (describe(error), os.path.basename(own[-1].filename), own[-1].lineno)
    lacks = isinstance(error, TypeError) and "unexpected keyword argument" in text_of(error)
    return describe(error) + ("; it is given every column of the prompts: end its arguments with **kwargs" * lacks)


def describe(error: BaseException) -> str:
    """Returns the line that names the fault, with the error's type if that adds information."""
    text = text_of(error).strip().splitlines()
    reading = cause(error)
    line = reading.line if reading is not None else text[0] if text else ""
    sentence = "%s: %s" % (type(error).__name__, unprefixed(line)[:400]) if line else type(error).__name__
    return sentence + missing_variable(error)


def missing_variable(error: BaseException) -> str:
    """Returns the advice on an environment variable that ``os.environ`` lacked; empty for any other error."""
    frames = traceback.extract_tb(error.__traceback__)
    if not isinstance(error, KeyError) or not frames or frames[-1].filename not in (os.__file__, "<frozen os>"):
        return ""
    return " is no variable of a trial's environment, which has few of yours; pass it on with --env %s" % error.args[0]


def unprefixed(line: str) -> str:
    """Returns a line without pydantic's prefix and suffix."""
    found = _PYDANTIC.match(line.strip())
    return found.group("said") if found else line


def tail(error: BaseException) -> str:
    """Returns the last lines of the traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return "\n".join(text.splitlines()[-40:])


def classify(error: BaseException, phase: Optional[Phase], data: Optional[Mapping[str, Any]] = None) -> Result:
    """Converts ``error`` to a result; ``phase`` is where the error was raised, ``None`` during start-up."""
    pools = ((link, memory_pool(link)) for link in chain(error))
    error, pool = next(((link, pool) for link, pool in pools if pool is not None), (_telling(error), None))
    reason = _reason(error) if pool is None else FailureReason.OOM
    return Result(
        ok=False,
        reason=reason,
        phase=_place(error, reason, phase),
        pool=pool,
        message=_message(error),
        detail=tail(error),
        data=dict(data or {}),
    )


def _reason(error: BaseException) -> FailureReason:
    if isinstance(error, (IllegalSettingError, ContractError)):
        return FailureReason.ILLEGAL
    if isinstance(error, NotFiniteError):
        return FailureReason.NAN
    if isinstance(error, QualityError):
        return FailureReason.QUALITY
    if isinstance(error, RewardFailedError):
        return FailureReason.REWARD_ERROR
    reading = cause(error)
    return reading.sign.reason if reading is not None else FailureReason.CRASH


def _telling(error: BaseException) -> BaseException:
    """Returns the newest error of the chain that names the fault, as errors of this package do; else ``error``."""
    own = (*_OWN_WORDS, ContractError)
    return next((each for each in chain(error) if isinstance(each, own) or cause(each) is not None), error)


def _place(error: BaseException, reason: FailureReason, phase: Optional[Phase]) -> Optional[Phase]:
    if isinstance(error, (NotFiniteError, OverLimitError, QualityError, ThrashError)):
        return error.phase or phase
    return Phase.REWARD if reason is FailureReason.REWARD_ERROR else phase


def _message(error: BaseException) -> str:
    if not isinstance(error, _OWN_WORDS):
        return describe(error)
    reading = cause(error)
    if reading is not None:
        return unprefixed(reading.line)
    lines = text_of(error).splitlines()
    return next((unprefixed(line) for line in lines if _PYDANTIC.match(line.strip())), text_of(error))

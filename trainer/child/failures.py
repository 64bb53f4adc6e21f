"""An exception -> how the trial ended. Decided here, where the exception is, not from text in a log."""

from __future__ import annotations

import errno
import traceback
from typing import Any, List, Mapping, Optional

from .contract import ContractError, FailureReason, Phase, Pool, Result

DETAIL_LINES = 40
HOST_TEXTS = (
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
    "Cannot allocate memory",
    "std::bad_alloc",
    "Unable to allocate",
    "could not create a primitive",  # oneDNN, when its scratch memory is refused
)
DEVICE_TEXTS = ("CUDA out of memory", "CUDA error: out of memory", "CUDA_ERROR_OUT_OF_MEMORY", "HIP out of memory")
CACHE_TEXTS = ("No available memory for the cache blocks", "KV cache is needed, which is larger than the available")
NAN_TEXTS = ("probability tensor contains either `inf`, `nan`",)  # sampling from a policy that has diverged
REWARD_TEXTS = ("The reward function '",)


class IllegalSettingError(ValueError):
    """The framework cannot run with these settings; nothing was measured."""


class RewardFailedError(Exception):
    """The reward function raised, or did not return one number for each completion."""


class NotFiniteError(Exception):
    """A reward, loss or gradient norm that is not a finite number."""

    def __init__(self, message: str, phase: Phase) -> None:
        super().__init__(message)
        self.phase = phase


class MeterError(Exception):
    """The framework did not do what the meter told it to: the figures would not be true."""


def chain(error: BaseException) -> List[BaseException]:
    """``error`` and all it was raised from, newest first."""
    links: List[BaseException] = []
    link: Optional[BaseException] = error
    while link is not None and not any(link is seen for seen in links):
        links.append(link)
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)
    return links


def memory_pool(error: BaseException) -> Optional[Pool]:
    """The pool an allocation failed in; ``None`` if this is not about memory."""
    text = str(error)
    if any(known in text for known in CACHE_TEXTS):
        return Pool.ROLLOUT_CACHE
    if type(error).__name__ == "OutOfMemoryError" or any(known in text for known in DEVICE_TEXTS):
        return Pool.DEVICE
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return Pool.HOST
    if isinstance(error, MemoryError) or any(known in text for known in HOST_TEXTS):
        return Pool.HOST
    return None


def describe(error: BaseException) -> str:
    """First line of what it says, with its type when that says more."""
    text = str(error).strip().splitlines()
    return "%s: %s" % (type(error).__name__, text[0][:400]) if text else type(error).__name__


def tail(error: BaseException) -> str:
    """Last lines of the traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return "\n".join(text.splitlines()[-DETAIL_LINES:])


def classify(error: BaseException, phase: Optional[Phase], data: Optional[Mapping[str, Any]] = None) -> Result:
    """The result ``error`` means; ``phase`` is where it came from, ``None`` in the start-up."""
    reason, pool = FailureReason.CRASH, None
    for link in chain(error):
        pool = memory_pool(link)
        if pool is not None:
            reason, error = FailureReason.OOM, link
            break
    else:
        reason = _reason(error)
    if isinstance(error, NotFiniteError):
        phase = error.phase
    elif reason is FailureReason.REWARD_ERROR:
        phase = Phase.REWARD
    shown = (
        str(error) if isinstance(error, (IllegalSettingError, NotFiniteError, RewardFailedError)) else describe(error)
    )
    return Result(
        ok=False, reason=reason, phase=phase, pool=pool, message=shown, detail=tail(error), data=dict(data or {})
    )


def _reason(error: BaseException) -> FailureReason:
    if isinstance(error, (IllegalSettingError, ContractError)):
        return FailureReason.ILLEGAL
    if isinstance(error, NotFiniteError) or any(known in str(error) for known in NAN_TEXTS):
        return FailureReason.NAN
    if isinstance(error, RewardFailedError) or any(known in str(error) for known in REWARD_TEXTS):
        return FailureReason.REWARD_ERROR
    return FailureReason.CRASH

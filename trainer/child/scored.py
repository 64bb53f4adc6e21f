"""Tells failures of the user's reward from failures of the framework that calls it."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any, Callable

from .contract import Phase
from .failures import NotFiniteError, RewardFailedError, memory_pool

RAISED = (Exception, SystemExit)
"""Exceptions of a reward to catch; an exit of the interpreter would end the trial without a message."""


def as_reward_error(error: BaseException) -> BaseException:
    """Converts an error that a reward raised to ``RewardFailedError``; out-of-memory errors stay unchanged."""
    if isinstance(error, RewardFailedError) or memory_pool(error) is not None:
        return error
    return RewardFailedError("the reward raised %s: %s" % (type(error).__name__, error))


def guarded(reward: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``reward`` so that its failures differ from the framework's; ``None`` stays "not scorable"."""

    @functools.wraps(reward)
    async def scored_async(*args: Any, **kwargs: Any) -> Any:
        try:
            values = await reward(*args, **kwargs)
        except RAISED as error:
            raise as_reward_error(error) from error
        return checked(values)

    @functools.wraps(reward)
    def scored(*args: Any, **kwargs: Any) -> Any:
        try:
            values = reward(*args, **kwargs)
        except RAISED as error:
            raise as_reward_error(error) from error
        return checked(values)

    found = scored_async if inspect.iscoroutinefunction(reward) else scored
    found.__name__ = getattr(reward, "__name__", None) or type(reward).__name__
    return found


def checked(values: Any) -> Any:
    """Returns the scores; ``None`` for a row stays "not scorable". Raises ``NotFiniteError`` for other values."""
    if values is None:
        raise RewardFailedError("the reward returned None instead of a list of numbers")
    for row, value in enumerate(values):
        if value is not None and not is_finite(value):
            raise NotFiniteError("the reward of row %d is %s" % (row, shown(value)), Phase.REWARD)
    return values


def is_finite(value: Any) -> bool:
    """Tells whether a number has a finite value as a float; an integer may be too large for one."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def shown(value: Any) -> str:
    """Formats a number of any length for a message."""
    try:
        return repr(float(value))
    except OverflowError:
        return "too large for a float"

"""Tells the failures of the user's reward from those of the framework that calls it."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any, Callable

from .contract import Phase
from .failures import NotFiniteError, RewardFailedError, memory_pool

RAISED = (Exception, SystemExit)
"""What a reward may raise: one that leaves the interpreter would end the trial without a word."""


def as_reward_error(error: BaseException) -> BaseException:
    """Converts an error that a reward raised to ``RewardFailedError``; out-of-memory errors stay as they are."""
    if isinstance(error, RewardFailedError) or memory_pool(error) is not None:
        return error
    return RewardFailedError("the reward raised %s: %s" % (type(error).__name__, error))


def guarded(reward: Callable[..., Any]) -> Callable[..., Any]:
    """``reward`` with its failures told apart from the framework's; ``None`` stays "not scorable"."""

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
    """The scores. ``None`` for a row stays "not scorable"; raises if another is no finite number."""
    if values is None:
        raise RewardFailedError("the reward returned None instead of a list of numbers")
    for row, value in enumerate(values):
        if value is not None and not is_finite(value):
            raise NotFiniteError("the reward of row %d is %s" % (row, shown(value)), Phase.REWARD)
    return values


def is_finite(value: Any) -> bool:
    """Whether a number has a finite value as a float; a whole number may be too large for one."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def shown(value: Any) -> str:
    """A number for a message, however long it is."""
    try:
        return repr(float(value))
    except OverflowError:
        return "too large for a float"

"""Tells failures of the user's reward from failures of the framework that calls it, and checks its answers."""

from __future__ import annotations

import functools
import inspect
import math
from typing import Any, Callable, List, Mapping, Optional

from .failures import RewardFailedError, describe, memory_pool

RAISED = (Exception, SystemExit)
"""Exceptions of a reward to catch; an exit of the interpreter would end the trial without a message."""


def as_reward_error(error: BaseException) -> BaseException:
    """Converts an error that a reward raised to ``RewardFailedError``; out-of-memory errors stay unchanged."""
    if isinstance(error, RewardFailedError) or memory_pool(error) is not None:
        return error
    return RewardFailedError("the reward raised %s" % describe(error))


def guarded(reward: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps ``reward`` so that its failures differ from the framework's; ``None`` stays "not scorable"."""
    name = name_of(reward)

    @functools.wraps(reward)
    async def scored_async(*args: Any, **kwargs: Any) -> Any:
        try:
            values = await reward(*args, **kwargs)
        except RAISED as error:
            raise as_reward_error(error) from error
        return as_numbers(values, name, kwargs.get("completions"))

    @functools.wraps(reward)
    def scored(*args: Any, **kwargs: Any) -> Any:
        try:
            values = reward(*args, **kwargs)
        except RAISED as error:
            raise as_reward_error(error) from error
        return as_numbers(values, name, kwargs.get("completions"))

    found = scored_async if inspect.iscoroutinefunction(reward) else scored
    found.__name__ = name
    return found


def name_of(reward: Callable[..., Any]) -> str:
    """Returns the name of a reward for messages."""
    return str(getattr(reward, "__name__", None) or type(reward).__name__)


def as_numbers(answer: Any, name: str, completions: Any = None) -> List[Optional[float]]:
    """Returns a reward's answer as finite numbers, ``None`` where it cannot score; one for each of ``completions``.

    Raises:
        RewardFailedError: it is something else.
    """
    if isinstance(answer, (str, bytes, Mapping)) or not hasattr(answer, "__iter__"):
        raise RewardFailedError(
            "the reward function %s returned %s; it must return a list with one number for each completion"
            % (name, "None" if answer is None else "a " + type(answer).__name__)
        )
    values = list(answer)
    if completions is not None and len(values) != len(completions):
        raise RewardFailedError(
            "the reward function %s returned %d rewards for %d completions" % (name, len(values), len(completions))
        )
    return [None if value is None else finite(value, index, name) for index, value in enumerate(values)]


def finite(value: Any, index: int, name: str) -> float:
    """Returns ``value`` as a number. Raises ``RewardFailedError`` if it is none, as text never is, or not finite."""
    where = "the reward function %s returned %%s for completion %d" % (name, index)
    try:
        if isinstance(value, (str, bytes)):
            raise TypeError
        number = float(value)
    except OverflowError:
        raise RewardFailedError("%s; rewards must be finite" % where % "a number that is too large") from None
    except (TypeError, ValueError):
        raise RewardFailedError("%s, which is no number" % where % ("%.80r" % (value,))) from None
    if not math.isfinite(number):
        raise RewardFailedError("%s; rewards must be finite" % where % number)
    return number

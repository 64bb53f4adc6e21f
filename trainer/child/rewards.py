"""The reward of a study: a reasoning-gym task, or a function in the user's own file.

What is returned has TRL's signature: called with ``prompts``, ``completions`` and every column of the
prompts file as keyword arguments, it returns one number for each completion.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import json
import sys
from pathlib import Path
from typing import Any, Callable, List, Mapping, Sequence

from .contract import RewardSpec
from .failures import RewardFailedError, describe

ENTRY_COLUMN = "entry"
"""Column of the prompts file that holds a reasoning-gym entry, as JSON text."""

Reward = Callable[..., Any]


class RewardLoadError(RewardFailedError):
    """The reward cannot be used; the message is one sentence that says what to change."""


def load_reward(spec: RewardSpec) -> Reward:
    """The callable ``spec`` names; it always has a ``__name__``.

    Raises:
        RewardLoadError: its file, function, package or task is missing or is not what it should be.
    """
    if spec.kind == "reasoning_gym":
        return _reasoning_gym_reward(spec)
    if spec.kind == "file":
        return _file_reward(spec)
    raise RewardLoadError("unknown reward kind %r: use reasoning_gym or file" % spec.kind)


def create_task(name: str, options: Mapping[str, Any]) -> Any:
    """A reasoning-gym dataset.

    Raises:
        RewardLoadError: the package is missing, there is no such task, or it refuses the options.
    """
    try:
        import reasoning_gym
    except ImportError as error:
        raise RewardLoadError(missing_package(error, "reasoning_gym")) from error
    try:
        return reasoning_gym.create_dataset(name, **options)
    except Exception as error:
        raise RewardLoadError("reasoning-gym task %r cannot be made: %s" % (name, describe(error))) from error


def missing_package(error: ImportError, wanted: str) -> str:
    """One sentence naming the package an import lacked and the command that mends it."""
    module = (error.name or wanted).split(".")[0]
    package = {"reasoning_gym": "reasoning-gym", "yaml": "pyyaml", "sklearn": "scikit-learn"}.get(module, module)
    if not isinstance(error, ModuleNotFoundError):
        return "%s cannot be imported: %s" % (wanted, describe(error))
    return "the package %s is missing in the training environment; install it with: %s -m pip install %s" % (
        module,
        sys.executable,
        package,
    )


def completion_text(completion: Any) -> str:
    """The text of a completion, whether TRL gave it as a string or as a list of messages."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and completion:
        last = completion[-1]
        content = last.get("content") if isinstance(last, Mapping) else last
        return content if isinstance(content, str) else ""
    return ""


def answer_of(text: str) -> str:
    """What stands in the last ``<answer>`` tag of ``text``; without one, all of it."""
    start = text.rfind("<answer>")
    end = text.find("</answer>", start) if start >= 0 else -1
    return (text[start + len("<answer>") : end] if end >= 0 else text).strip()


def _reasoning_gym_reward(spec: RewardSpec) -> Reward:
    task = create_task(spec.name, spec.options)

    def reward(completions: Sequence[Any], **columns: Any) -> List[float]:
        entries = columns.get(ENTRY_COLUMN)
        if entries is None:
            raise RewardLoadError("the prompts have no column %r, which reasoning-gym scores by" % ENTRY_COLUMN)
        scores = []
        for completion, raw in zip(completions, entries, strict=True):
            entry = json.loads(raw) if isinstance(raw, str) else raw
            scores.append(float(task.score_answer(answer_of(completion_text(completion)), entry)))
        return scores

    reward.__name__ = reward.__qualname__ = spec.name
    return reward


def _file_reward(spec: RewardSpec) -> Reward:
    path = Path(spec.path).absolute()
    if not path.is_file():
        raise RewardLoadError("there is no reward file %s" % path)
    module = _load_private(path)
    if not hasattr(module, spec.name):
        found = ", ".join(_functions_of(module)) or "none"
        raise RewardLoadError("%s has no function %r (functions there: %s)" % (path, spec.name, found))
    function = getattr(module, spec.name)
    if not callable(function) or inspect.isclass(function):
        raise RewardLoadError("%s in %s is a %s, not a function" % (spec.name, path, type(function).__name__))
    return _named(function, spec.name)


def _load_private(path: Path) -> Any:
    """Run ``path`` as a module whose name collides with nothing; its neighbours can be imported by it."""
    name = "_autotune_reward_" + hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)  # last, so that it hides nothing the framework imports
    found = importlib.util.spec_from_file_location(name, str(path))
    if found is None or found.loader is None:
        raise RewardLoadError("%s is not a Python file" % path)
    module = importlib.util.module_from_spec(found)
    sys.modules[name] = module
    try:
        found.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        if isinstance(error, KeyboardInterrupt):
            raise
        if isinstance(error, ModuleNotFoundError):
            raise RewardLoadError("%s: %s" % (path, missing_package(error, str(error.name)))) from error
        raise RewardLoadError("%s cannot be loaded: %s" % (path, describe(error))) from error
    return module


def _functions_of(module: Any) -> List[str]:
    own = (n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__)
    return sorted(n for n in own if not n.startswith("_"))


def _named(function: Any, name: str) -> Reward:
    """``function``, or something that calls it and has a ``__name__`` (a callable object may have none)."""
    if getattr(function, "__name__", None):
        return function  # type: ignore[no-any-return]
    target = function.func if isinstance(function, functools.partial) else type(function).__call__
    if inspect.iscoroutinefunction(target):

        async def call_async(*arguments: Any, **columns: Any) -> Any:
            return await function(*arguments, **columns)

        call_async.__name__ = name
        return call_async

    def call(*arguments: Any, **columns: Any) -> Any:
        return function(*arguments, **columns)

    call.__name__ = name
    return call

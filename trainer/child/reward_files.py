"""Rewards that are the user's own code: a function in a file, or one named by its dotted path."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from typing import Any, Callable, ContextManager, Iterator, List, Optional, Sequence

from .failures import RewardFailedError, describe

Reward = Callable[..., Any]

PIP_NAMES = {
    "reasoning_gym": "reasoning-gym",
    "math_verify": "math-verify",
    "latex2sympy2_extended": "math-verify",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "cv2": "opencv-python-headless",
    "PIL": "pillow",
}
"""Module -> its package in pip, if the names differ."""

OUR_NAMES = ("api", "autotune", "search_spaces", "tests", "tools", "trainer")


class RewardLoadError(RewardFailedError):
    """A reward that cannot be used; the message is one sentence with the remedy."""


class OursGiveWay:
    """Import finder that prefers the user's modules over packages of this tool with the same name.

    Nothing in a child is imported under those names, but the tool may be installed in the training
    environment, and the user's ``trainer.py`` beside a reward must be found before ours.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._folders = folders

    def find_spec(self, name: str, path: Optional[Sequence[str]] = None, target: Any = None) -> Any:
        """Finds a module as ``importlib.abc.MetaPathFinder`` does."""
        if path is None and name in OUR_NAMES:
            return importlib.machinery.PathFinder.find_spec(name, self._folders, target)
        return None


_BEFORE: List[int] = []
"""Descriptors of the working directories that reward calls have left and not yet returned to, outermost first."""


@contextlib.contextmanager
def working_in(folder: str) -> Iterator[None]:
    """Runs the block in ``folder``, if it exists; of overlapping blocks the last restores the working directory."""
    _BEFORE.append(os.open(".", os.O_RDONLY))
    try:
        if os.path.isdir(folder):
            os.chdir(folder)
        yield
    finally:
        last = _BEFORE.pop()
        if not _BEFORE:
            os.fchdir(last)
        os.close(last)


def within(reward: Reward, context: Callable[[], ContextManager[None]]) -> Reward:
    """Wraps ``reward``, perhaps a coroutine function, so that each call runs within ``context()``."""

    @functools.wraps(reward)
    async def call_async(*arguments: Any, **columns: Any) -> Any:
        with context():
            return await reward(*arguments, **columns)

    @functools.wraps(reward)
    def call(*arguments: Any, **columns: Any) -> Any:
        with context():
            return reward(*arguments, **columns)

    return call_async if any(map(inspect.iscoroutinefunction, (reward, type(reward).__call__))) else call


def missing_package(error: ImportError, name: str) -> str:
    """Returns a sentence with the missing package of an import and the command that installs it."""
    module = (error.name or name).split(".")[0]
    if not isinstance(error, ModuleNotFoundError):
        return "%s cannot be imported: %s" % (name, describe(error))
    return "the package %s is missing in the training environment; install it with: %s -m pip install %s" % (
        module,
        sys.executable,
        PIP_NAMES.get(module, module),
    )


def file_reward(path: Path, name: str) -> Reward:
    """Loads function ``name`` of the Python file ``path``, which can import modules from its own folder.

    Raises RewardLoadError if the file or function does not exist, or the file fails.
    """
    path = Path(os.path.abspath(str(path)))
    if not path.is_file():
        raise RewardLoadError("there is no reward file %s" % path)
    return _function_of(_load_private(path), name, str(path))


def imported_reward(dotted: str, folder: str) -> Reward:
    """Loads ``package.module.function``, resolved from ``folder`` first, as TRL's own script does.

    Raises RewardLoadError if the import fails, or the object is not a function.
    """
    module_name, _, name = dotted.rpartition(".")
    if not all(part.isidentifier() for part in dotted.split(".")) or not module_name:
        raise RewardLoadError("the reward %r is no dotted path such as my_rewards.score" % dotted)
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise RewardLoadError(_why_not(error, dotted, module_name, folder)) from error
    return _function_of(module, name, module_name)


def _why_not(error: BaseException, dotted: str, module: str, folder: str) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name and (module + ".").startswith(error.name + "."):
        return "the reward %s cannot be found: there is no module %s in %s or in the training environment" % (
            dotted,
            error.name,
            folder or "the working directory",
        )
    if isinstance(error, ModuleNotFoundError):
        return "%s: %s" % (dotted, missing_package(error, module))
    return "%s cannot be loaded, which runs its whole module: %s" % (dotted, describe(error))


def _load_private(path: Path) -> Any:
    """Runs ``path`` as a module with a unique name, which can import modules from its and the working directory."""
    name = "_autotune_reward_" + hashlib.sha256(str(path).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    folders = [folder for folder in dict.fromkeys((str(path.parent), os.getcwd())) if folder not in sys.path]
    sys.path.extend(folders)  # last, so that they hide nothing the framework imports
    sys.meta_path.insert(0, OursGiveWay(folders))
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
        raise RewardLoadError("%s cannot be loaded, which runs all of it: %s" % (path, describe(error))) from error
    return module


def _function_of(module: Any, name: str, where: str) -> Reward:
    if not hasattr(module, name):
        own = (n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__)
        found = ", ".join(sorted(n for n in own if not n.startswith("_"))) or "none"
        raise RewardLoadError("%s has no function %r (functions there: %s)" % (where, name, found))
    function = getattr(module, name)
    if not callable(function) or inspect.isclass(function):
        raise RewardLoadError("%s in %s is a %s, not a function" % (name, where, type(function).__name__))
    return with_name(function, name)


def with_name(function: Any, name: str) -> Reward:
    """Returns ``function``, wrapped if it is a callable object without ``__name__``."""
    if getattr(function, "__name__", None):
        return function  # type: ignore[no-any-return]
    found = within(function, contextlib.nullcontext)
    found.__name__ = name
    return found

"""Loads the rewards of a study from its specification.

Each has TRL's signature: called with ``prompts``, ``completions`` and every column of the prompts file as keyword
arguments, it returns one number for each completion, or ``None`` for a completion that it cannot score.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import importlib.util
import inspect
import json
import math
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from .contract import RewardSpec
from .failures import RewardFailedError, describe, fault_of_reward, memory_pool
from .reward_files import Reward, RewardLoadError, file_reward, imported_reward, missing_package, within, working_in

COLUMNS = ("solution", "answer")
"""Possible names of the prompts' column with the correct answer; the first that exists counts."""
COMPLETION_S = 5.0
START_S = 120.0
VERIFIER = Path(__file__).resolve().parent / "math_verifier.py"


class VerifierLostError(Exception):
    """The math-verify subprocess did not answer in time, or died."""


class Verifier:
    """A subprocess that answers one JSON line with another; it runs math-verify."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._rest = b""
        atexit.register(self.kill)

    @property
    def pid(self) -> Optional[int]:
        """Process id of the running subprocess."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the subprocess and waits up to ``START_S``. Raises ``RewardFailedError`` if it is not ready."""
        command = [sys.executable, str(self._script)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._rest = b""
        try:
            said = self._line(START_S)
        except VerifierLostError:
            self.kill()
            raise RewardFailedError("math-verify could not be started; its last words are in the log") from None
        if not said.get("ready"):
            self.kill()
            raise RewardFailedError("math-verify cannot be used: %s" % said.get("error", "no reason given"))

    def ask(self, question: Dict[str, Any], seconds: float) -> Dict[str, Any]:
        """Returns the subprocess's answer, within ``seconds``. Raises ``VerifierLostError`` without one."""
        if self._process is None:
            self.start()
        process = self._process
        assert process is not None and process.stdin is not None  # noqa: S101, PT018  (narrowing)
        try:
            process.stdin.write(json.dumps(question).encode("ascii") + b"\n")
            return self._line(seconds)
        except (OSError, VerifierLostError) as error:
            self.kill()
            raise VerifierLostError(str(error)) from None

    def kill(self) -> None:
        """Kills the subprocess; the next ``ask`` starts another."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def close(self) -> None:
        """Kills the subprocess for good."""
        self.kill()
        atexit.unregister(self.kill)

    def _line(self, seconds: float) -> Dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None  # noqa: S101, PT018  (narrowing)
        handle, deadline = process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(handle, 65536) if ready else b""
            if not chunk:
                raise VerifierLostError("no answer in %g s" % seconds if not ready else "it died")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else {}


class MathReward:
    """Scores 1 for a completion with the correct answer, 0 for any other; ``None`` if the prompt's is unreadable."""

    __name__ = "math_verify"

    def __init__(self, text_of: Callable[[Any], str], seconds: float = COMPLETION_S, script: Path = VERIFIER) -> None:
        self._text_of = text_of
        self._seconds = seconds
        self._verifier = Verifier(script)
        self._verifier.start()
        self.facts: Dict[str, int] = {"math_verify_lost": 0}
        """Counter of completions for which math-verify gave no answer in time."""

    def close(self) -> None:
        """Kills the math-verify subprocess."""
        self._verifier.close()

    def __call__(self, completions: Sequence[Any], **columns: Any) -> List[Optional[float]]:
        name = next((column for column in COLUMNS if column in columns), None)
        if name is None:
            raise RewardFailedError("the prompts have no column solution or answer, which math-verify scores by")
        return [self._score(completion, gold) for completion, gold in zip(completions, columns[name], strict=True)]

    def _score(self, completion: Any, gold: Any) -> Optional[float]:
        try:
            answer = self._verifier.ask({"gold": str(gold), "text": self._text_of(completion)}, self._seconds)
        except VerifierLostError:
            self.facts["math_verify_lost"] += 1
            return 0.0
        score = answer.get("score")
        return None if score is None else float(score)


RAISED = (Exception, SystemExit)
"""Exceptions of a reward to catch; an exit of the interpreter would end the trial without a message."""


def as_reward_error(error: BaseException) -> BaseException:
    """Converts an error that a reward raised to ``RewardFailedError``; out-of-memory errors stay unchanged."""
    if isinstance(error, RewardFailedError) or memory_pool(error) is not None:
        return error
    return RewardFailedError("the reward raised %s" % fault_of_reward(error))


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
    """Converts a reward's result to one finite number for each completion; ``None`` for an unscorable completion.

    Raises:
        RewardFailedError: the result is anything else.
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
    """Converts ``value`` to a number. Raises ``RewardFailedError`` if it is text, not a number, or not finite."""
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


ENTRY_COLUMN = "entry"
"""Column of the prompts file that holds a reasoning-gym entry, as JSON text."""

OF_FRAMEWORK = frozenset({"ms_swift"})
"""Kinds of reward that the framework itself loads, with its arguments and plugins: only a trial can try them."""
PACKAGES: Mapping[str, str] = {"reasoning_gym": "reasoning_gym", "math_verify": "math_verify"}
"""Kind of reward -> the module it needs."""
TRL_PACKAGES: Mapping[str, str] = {"accuracy_reward": "math_verify", "reasoning_accuracy_reward": "math_verify"}
"""Reward of TRL's own -> the module it needs besides TRL."""


def load_reward(spec: RewardSpec) -> Reward:
    """Returns the callable that ``spec`` names; it always has a ``__name__``.

    Raises RewardLoadError if its file, function, package or task is missing or has another type.
    """
    if spec.kind not in LOADERS:
        raise RewardLoadError("unknown reward kind %r: use one of %s" % (spec.kind, ", ".join(LOADERS)))
    place = functools.partial(working_in, spec.folder)
    with place():
        reward = LOADERS[spec.kind](spec)
    return within(reward, place) if spec.folder else reward


def load_rewards(specs: Sequence[RewardSpec]) -> List[Reward]:
    """Loads the rewards of a trial, in order. Raises ``RewardFailedError`` for a reward that cannot be loaded."""
    try:
        return [load_reward(spec) for spec in specs]
    except Exception as error:
        if memory_pool(error) is not None:
            raise
        raise RewardFailedError(str(error)) from error


def close_rewards(rewards: Sequence[Any]) -> Dict[str, Any]:
    """Ends the subprocesses of the rewards, also of wrapped rewards; returns their counters, for the trial's facts."""
    ended = [own for own in map(inspect.unwrap, rewards) if isinstance(own, MathReward)]
    for reward in ended:
        reward.close()
    return {name: count for reward in ended for name, count in reward.facts.items()}


def create_task(name: str, options: Mapping[str, Any]) -> Any:
    """Returns a reasoning-gym dataset. Raises ``RewardLoadError`` for a missing package or task, or a wrong option."""
    try:
        import reasoning_gym
    except ImportError as error:
        raise RewardLoadError(missing_package(error, "reasoning_gym")) from error
    try:
        return reasoning_gym.create_dataset(name, **options)
    except Exception as error:
        raise RewardLoadError("reasoning-gym task %r cannot be made: %s" % (name, describe(error))) from error


def completion_text(completion: Any) -> str:
    """Returns the text of a completion, given as a string or as a list of messages."""
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence) and completion:
        last = completion[-1]
        content = last.get("content") if isinstance(last, Mapping) else last
        return content if isinstance(content, str) else ""
    return ""


def answer_of(text: str) -> str:
    """Returns the text of the last ``<answer>`` tag; without a tag, the whole text."""
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


def _math_reward(_: RewardSpec) -> Reward:
    if importlib.util.find_spec("math_verify") is None:
        raise RewardLoadError(missing_package(ModuleNotFoundError(name="math_verify"), "math_verify"))
    return MathReward(completion_text)


def _trl_reward(spec: RewardSpec) -> Reward:
    """Makes a reward that ``trl.scripts.grpo`` knows by name, with that script's arguments."""
    from trl import rewards

    if spec.name in ("accuracy_reward", "reasoning_accuracy_reward", "think_format_reward"):
        return getattr(rewards, spec.name)  # type: ignore[no-any-return]
    if spec.name == "get_soft_overlong_punishment":
        return rewards.get_soft_overlong_punishment(  # type: ignore[no-any-return]
            max_completion_len=1280, soft_punish_cache=256
        )
    raise RewardLoadError(
        "TRL has no reward function named %r: use accuracy_reward, reasoning_accuracy_reward, think_format_reward, "
        "get_soft_overlong_punishment or a dotted path such as my_rewards.score" % spec.name
    )


def _open_r1_reward(spec: RewardSpec) -> Reward:
    """Loads a reward of Open-R1's registry with its own defaults; it scores conversations only."""
    source = os.path.join(spec.folder, "src")
    if not os.path.isfile(os.path.join(source, "open_r1", "rewards.py")):
        raise RewardLoadError("the reward %s is Open-R1's: name a checkout of it with --openr1" % spec.name)
    if source not in sys.path:
        sys.path.insert(0, source)
    try:
        configs, rewards = (importlib.import_module("open_r1." + name) for name in ("configs", "rewards"))
        own = rewards.get_reward_funcs(configs.GRPOScriptArguments(dataset_name="prompts", reward_funcs=[spec.name]))[0]
    except ImportError as error:
        raise RewardLoadError(missing_package(error, "open_r1")) from error
    except KeyError:
        raise RewardLoadError("Open-R1's registry has no reward %r" % spec.name) from None

    @functools.wraps(own)
    def reward(completions: Sequence[Any], **columns: Any) -> Any:
        messages = [[{"role": "assistant", "content": completion_text(completion)}] for completion in completions]
        return own(completions=messages, **columns)

    return reward


LOADERS: Mapping[str, Callable[[RewardSpec], Reward]] = {
    "reasoning_gym": _reasoning_gym_reward,
    "file": lambda spec: file_reward(Path(spec.path), spec.name),
    "import": lambda spec: imported_reward(spec.name, spec.path),
    "trl": _trl_reward,
    "math_verify": _math_reward,
    "open_r1": _open_r1_reward,
}

"""Reads a user's configuration into entries with their lines, and collects its faults. Pure; evaluates nothing."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs.model import show
from search_spaces.yaml_text import Entry, read
from trainer.frameworks.common.values import KnobKeyError, count_of

ENVIRONMENT = "env"
"""Key whose mapping TRL's parser copies into the process's environment."""
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Matches the name of an environment variable."""
OF_THE_LAUNCH = re.compile(
    r"(?:CUDA|NVIDIA)_VISIBLE_DEVICES|MASTER_(?:ADDR|PORT)|(?:LOCAL_|NODE_)?RANK|(?:LOCAL_)?WORLD_SIZE|ACCELERATE_\w+"
)
"""Variables on where and how a script is launched; each trial gets its own values."""
_TUNERS = re.compile(r"AUTOTUNE_.*|(?:" + OF_THE_LAUNCH.pattern + ")")
_SECRET = re.compile(r"(?<!MAX_|NEW_)TOKEN(?!IZERS)|SECRET|PASSW|API_?KEY|CREDENTIAL|PRIVATE_?KEY", re.IGNORECASE)


class ConfigError(ValueError):
    """A fault of a configuration, as one finished sentence with file and line."""


T = TypeVar("T")


class Faults:
    """Collects the faults of a configuration, so that the user sees all of them at once."""

    MOST = 20
    """Number of faults at which the reading stops."""

    def __init__(self) -> None:
        self._found: list[str] = []

    @contextmanager
    def caught(self) -> Iterator[None]:
        """Collects a ``ConfigError`` raised in the ``with`` block, and continues after the block."""
        try:
            yield
        except ConfigError as error:
            self.add(error)
        if len(self._found) >= self.MOST:
            self.raise_collected()

    def of(self, read: Callable[[], T], otherwise: T) -> T:
        """Returns the result of ``read``; on ``ConfigError`` collects the error and returns ``otherwise``."""
        with self.caught():
            return read()
        return otherwise

    def add(self, error: ConfigError) -> None:
        """Collects ``error`` unless an equal one is collected."""
        if str(error) not in self._found:
            self._found.append(str(error))

    def raise_collected(self) -> None:
        """Raises ``ConfigError`` with all collected faults, a sentence each, if there are any."""
        if self._found:
            raise ConfigError("\n".join(self._found))


def problem(name: str, line: int, text: str) -> ConfigError:
    """Builds a ``ConfigError`` whose sentence begins with file and line; omits a ``line`` of 0."""
    where = f"{name}, line {line}" if line else name
    return ConfigError(f"{where}: {text}.")


def read_mapping(text: str, name: str, kind: str, expected: str) -> dict[str, Entry]:
    """Reads the keys of a YAML or JSON file.

    Args:
        text: the file, at most 64 KiB; undecodable bytes as surrogates are refused with their line.
        expected: contents of the mapping, in words.

    Raises:
        ConfigError: the file is not a mapping of plain values.
    """
    try:
        document = read(text.encode("utf-8", "surrogatepass"), name, kind=kind, exact=True)
    except SpaceError as error:
        raise ConfigError(str(error)) from None
    if not isinstance(document.value, dict):
        got = f"got {document.described}" if document.line else "and it is empty"
        raise problem(name, document.line, f"expected a mapping of {expected}, {got}")
    return document.value


def closest(key: str, names: Iterable[str], cutoff: float = 0.75, otherwise: str = "remove it") -> str:
    """Returns advice on an unknown ``key``: the most similar name, else ``otherwise``; ``cutoff``: see ``difflib``."""
    close = difflib.get_close_matches(key[:120], names, n=1, cutoff=cutoff)
    return f"did you mean {close[0]}" if close else otherwise


def at_line(value: Any, line: int) -> Entry:
    """Converts plain ``value`` to entries that all have ``line``, the line that names the value's file."""
    if isinstance(value, dict):
        return Entry({key: at_line(item, line) for key, item in value.items()}, line)
    if isinstance(value, list):
        return Entry([at_line(item, line) for item in value], line)
    return Entry(value, line)


def check_storable(key: str, entry: Entry, name: str) -> None:
    """Raises ``ConfigError`` for a value, at any depth, that JSON, a database or an environment cannot hold."""
    value = entry.value
    if isinstance(value, dict):
        for inner, item in value.items():
            check_storable(f"{key}.{inner}", item, name)
    elif isinstance(value, list):
        for item in value:
            check_storable(key, item, name)
    elif isinstance(value, float) and not math.isfinite(value):
        raise problem(name, entry.line, f"{show(key)}: expected a finite number, got {value}")
    elif isinstance(value, int) and abs(value) >= 2**63:
        raise problem(name, entry.line, f"{show(key)}: expected a number of at most 63 bits, got {show(value)}")
    if not _is_text(key) or (isinstance(value, str) and not _is_text(value)):
        raise problem(name, entry.line, f"{show(key)}: it holds a character that is none (a surrogate or NUL)")


def _is_text(text: str) -> bool:
    return not any(c == "\0" or "\ud800" <= c <= "\udfff" for c in text)


def lines_of(entries: Mapping[str, Entry]) -> dict[str, int]:
    """Returns key, and key.inner key of mappings -> line."""
    found = {}
    for key, entry in entries.items():
        found[key] = entry.line
        if isinstance(entry.value, dict):
            found.update({f"{key}.{inner}": item.line for inner, item in entry.value.items()})
    return found


def environment_of(entry: Entry, name: str, *, any_name: bool = False) -> dict[str, str]:
    """Returns the names and texts under ``ENVIRONMENT``, as TRL's parser sets them.

    Args:
        any_name: whether to accept names that no environment can have.

    Raises:
        ConfigError: no mapping of names to plain values, or a variable that a trial cannot have.
    """
    if not isinstance(entry.value, dict):
        raise problem(name, entry.line, f"env: expected a mapping of names to values, got {entry.described}")
    for variable, item in entry.value.items():
        if not any_name and not NAME.fullmatch(variable):
            raise problem(name, item.line, f"env: {show(variable)} is not a name an environment can have")
        why = environment_refusal(variable)
        if why is not None:
            raise problem(name, item.line, f"env.{variable}: {why}")
        if isinstance(item.value, list | dict):
            raise problem(name, item.line, f"env.{variable}: expected text or a number, got {item.described}")
    return {variable: str(item.value) for variable, item in entry.value.items()}


def environment_refusal(name: str) -> str | None:
    """Returns the reason why a configuration may not set the variable ``name``; ``None`` if it may."""
    if _TUNERS.fullmatch(name):
        return "the tuner sets it for each trial; remove it"
    if _SECRET.search(name):
        return "a secret would be stored with the study; set it outside the file"
    return None


@dataclass(frozen=True)
class Imported:
    """Result of reading a framework's configuration."""

    knobs: Mapping[str, KnobValue]
    """Knobs that the file sets; all others have the framework's default."""
    passthrough: Mapping[str, Any]
    """All other keys except inputs, with values as the framework's parser reads them; ``env`` is name -> text."""
    model: str | None
    dataset: Mapping[str, Any]
    """Keys that name the dataset: ``dataset_...``, ``datasets`` and related keys."""
    rewards: tuple[str, ...]
    """Names of the rewards, as in ``reward_funcs``."""
    max_completion_length: int | None
    lines: Mapping[str, int]
    """Key, and key.inner key of mappings -> line, counted from 1."""
    text: str
    """Text of the file."""
    notes: tuple[str, ...] = ()
    """Notes on unexpected handling, a sentence each with file and line."""
    asked: Mapping[str, str] = field(default_factory=dict)
    """Field of a request, or ``KNOB`` and a knob -> finished sentence: its value needs a shell to evaluate, and
    the option that gives it."""
    processes: int = 0
    """Training processes that the launch starts on all nodes, for verl the training GPUs; 0 if unknown."""
    max_prompt_length: int | None = None
    """Maximum in tokens; for Open-R1 the limit at which TRL 0.18 cuts a prompt at its left."""


class Reading:
    """State of reading a user's configuration: its name, the line of each key, its values and its faults."""

    def __init__(self, name: str) -> None:
        self.name, self.faults = name, Faults()
        self.lines: Mapping[str, int] = {}
        self.values: Mapping[str, Any] = {}

    def line(self, key: str) -> int:
        """Returns the line of ``key``, or of the mapping that contains it; 0 if neither exists."""
        while key not in self.lines and "." in key:
            key = key.rpartition(".")[0]
        return self.lines.get(key, 0)

    def problem(self, key: str, text: str) -> ConfigError:
        """Builds the error for ``key``, with its file and line."""
        return problem(self.name, self.line(key), f"{key}: {text}")

    def report(self, error: KnobKeyError) -> None:
        """Collects the fault of a key that cannot become a knob."""
        self.faults.add(self.problem(error.key, error.text))

    def length(self, key: str, *, nullable: bool = True) -> int | None:
        """Returns the tokens that ``key`` sets; ``None`` if unset. Raises ``ConfigError`` for no positive integer."""
        value = self.values.get(key)
        if key not in self.values or (nullable and value is None):
            return None
        try:
            return count_of(key, value)
        except KnobKeyError as error:
            raise self.problem(key, error.text) from None

    def rewards(self, names: Any) -> tuple[str, ...]:
        """Returns ``names``. Raises ``ConfigError`` for a name instead of a list, or too few or many weights."""
        weights = self.values.get("reward_weights")
        if isinstance(names, str):
            raise self.problem("reward_funcs", f"expected a list of names, got {show(names)}; write [{show(names)}]")
        if names and weights is not None and len(weights) != len(names):
            text = f"expected one for each of the {len(names)} reward_funcs, got {len(weights)}"
            raise self.problem("reward_weights", text)
        return tuple(names or ())


def located(sentence: str, name: str, lines: Mapping[str, int]) -> str:
    """Adds file ``name`` and the line of the first key that ``sentence`` mentions."""
    words = re.findall(r"[A-Za-z_][\w.]*", sentence)
    mentioned = next((lines[word] for word in (w.rstrip(".") for w in words) if word in lines), 0)
    return str(problem(name, mentioned, sentence.rstrip(".")))


INPUTS: Mapping[str, str] = {
    "model": "--model",
    "rewards": "--reward",
    "data": "--data",
    "max_prompt_length": "--max-prompt-length",
    "max_completion_length": "--max-completion-length",
}
"""Field of a request -> command-line option."""
KNOB = "set."
"""Prefix of a knob's name, for a knob that ``--set`` can give."""


def asked_for(key: str, inputs: Mapping[str, str], knobs: Mapping[str, str]) -> str:
    """Returns the field of a request, or ``KNOB`` and a knob, that the command line can set for ``key``; empty if none.

    Args:
        inputs: key -> field of a request.
        knobs: knob -> key, for knobs that are one key each.
    """
    named = next((knob for knob, own in knobs.items() if own == key), "")
    return inputs.get(key) or (KNOB + named if named else "")


def unknown(name: str, line: int, key: str, text: str, field: str = "") -> ConfigError:
    """Builds the error for ``key`` whose value ``text`` needs a shell to evaluate; ``field`` is from ``asked_for``."""
    option = INPUTS.get(field) or (f"--set {field.removeprefix(KNOB)}=..." if field else "")
    give = f"give {option}, or " if option else ""
    return problem(name, line, f"{key}: {text} is known to a shell only; {give}write its value out")

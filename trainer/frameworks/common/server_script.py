"""Reads the script that starts a user's rollout server. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from search_spaces.configuration import KnobValue
from search_spaces.knobs import KNOBS
from search_spaces.knobs.model import show
from trainer.frameworks.common.config_entries import ConfigError, Faults, closest, problem, unknown
from trainer.frameworks.common.exported import VISIBLE
from trainer.frameworks.common.fields import Field, FieldError, typed
from trainer.frameworks.common.launcher import launch_of
from trainer.frameworks.common.shell import Command, Word
from trainer.frameworks.common.training_script import commands_of, options_of, training_commands
from trainer.frameworks.common.values import KnobKeyError, parsed

ITS_OWN = frozenset({"model", "model_tag", "revision", "host", "port", "trust_remote_code", "log_level"})
"""Server options that a trial sets itself."""
DTYPES: Mapping[str, str] = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "auto": "auto"}
"""``rollout_dtype`` -> vLLM's name for it."""
TRLS = (("trl", "vllm-serve"), ("trl.scripts.vllm_serve",), ("vllm_serve.py",))
"""Consecutive words of a command that start TRL's server."""
OF_COLOCATED: Mapping[str, str] = {
    "vllm_gpu_memory_utilization": "gpu_memory_utilization",
    "vllm_tensor_parallel_size": "tensor_parallel_size",
    "vllm_max_model_length": "max_model_len",
}
"""TRL's key -> knob, for settings of a colocated engine, which do not reach a server."""
NOT_OF_SERVER = "it is of a colocated engine; the rollout server takes its own on its command line"
"""Note on the keys of ``OF_COLOCATED`` if the run has a server's script."""
_SYNONYMS: Mapping[str, str] = {"half": "fp16", "float": "fp32"} | {word: ours for ours, word in DTYPES.items()}
PORT = "8000"
"""Default port of the rollout servers, and of the trainers' clients."""

Start = tuple[str, ...]
Reads = Callable[[str, Sequence[str]], Mapping[str, KnobValue]]
"""(Option, words after it) -> knobs, or keys of the trainer; empty if a trial's server cannot have the option."""


@dataclass(frozen=True)
class Program:
    """A program that serves rollouts; its options are written with ``_`` for ``-``."""

    starts: Sequence[Start]
    """Consecutive words that identify the program's command, the usual ones first."""
    options: Mapping[str, Reads]
    its_own: frozenset[str] = ITS_OWN
    unset: Mapping[Start, Mapping[str, KnobValue]] = field(default_factory=dict)
    """One of ``starts`` -> knobs' defaults in that program, where they differ from those of a trial's server."""


@dataclass(frozen=True)
class Served:
    """Result of reading a rollout server's command."""

    knobs: Mapping[str, KnobValue] = field(default_factory=dict)
    keys: Mapping[str, KnobValue] = field(default_factory=dict)
    """Trainer's key -> value, for values that are not knobs."""
    notes: tuple[str, ...] = ()
    host: str = ""
    """Address that the server listens at; empty for every address, or if it needs a shell to evaluate."""
    port: str = PORT
    """Port of the server; empty if it needs a shell to evaluate."""
    model: str = ""
    """Model of the server; empty if unknown."""


NO_SERVER = Served()


@dataclass(frozen=True)
class ServerScript:
    """A script that starts a rollout server, and the run that uses it."""

    text: str
    """Text of the script; empty without one."""
    name: str
    """Name of the script in messages."""
    training: str
    """Name of the run in messages."""


def paired(training: str, text: str, name: str, *, itself: str = "") -> ServerScript:
    """Returns the server script ``text``; if empty, the run's own script ``itself``, if it also starts the server."""
    return ServerScript(itself, training, "the training") if itself and not text else ServerScript(text, name, training)


def value_of(knob: str) -> Reads:
    """Returns a function that converts an option's words to the value of ``knob``."""

    def read(option: str, words: Sequence[str]) -> Mapping[str, KnobValue]:
        value = typed(Field(knob, KNOBS[knob].kind.value.replace("choice", "str")), words)
        return {knob: parsed(knob, option, _SYNONYMS.get(value, value) if knob == "rollout_dtype" else value)}

    return read


def read_server(text: str, name: str, program: Program) -> Served:
    """Reads the knobs of the one command in ``text`` that starts ``program``; returns ``NO_SERVER`` without a text.

    Raises:
        ConfigError: with file, line, option, and the expected value or a remedy.
    """
    if not text:
        return NO_SERVER
    faults = Faults()
    command, start, given = _started(text, name, program, faults)
    knobs: dict[str, KnobValue] = {}
    notes: list[str] = []
    for key, (own, words) in given.items():
        with faults.caught():
            found = _knobs(key, own, words, name, program)
            knobs.update(found or {})
            if found == {}:
                notes.append(str(without(name, own.line, own.text)))
    faults.raise_collected()
    if "kv_cache_memory_bytes" not in knobs:  # which vLLM takes in place of a share
        knobs = {**program.unset.get(start, {}), **knobs}
    keys = {key: knobs.pop(key) for key in [*knobs] if key not in KNOBS}
    said = {key: "" if words[0].unknown else words[0].text for key, (_, words) in given.items() if words}
    gpus = with_gpus(knobs, command, name)
    return Served(gpus, keys, tuple(notes), said.get("host", ""), said.get("port", PORT), said.get("model", ""))


def _started(
    text: str, name: str, program: Program, faults: Faults
) -> tuple[Command, Start, dict[str, tuple[Word, list[Word]]]]:
    """Returns the command, the words that start the server, and option -> (its own word, the words after it)."""
    found = _commands(text, name, program.starts)
    if len(found) != 1:
        said = f"expected one command `{' '.join(program.starts[0])} ...`, found {len(found) or 'none'}"
        raise problem(name, found[1][0].words[0].line if found else 0, said)
    command, start, at = found[0]
    words = command.words[at:]
    if words and not words[0].text.startswith("-"):  # `vllm serve MODEL`
        words = (replace(words[0], text="--model"), *words)
    given = options_of(words, name, faults)
    return command, start, {key: (own, words) for key, own, words in given}


def serves(text: str, name: str, starts: Sequence[Start] = TRLS) -> bool:
    """Tells whether a command of the script starts a server by one of ``starts``.

    Raises ConfigError for a text that is not a shell script.
    """
    return bool(_commands(text, name, starts))


def _commands(text: str, name: str, starts: Sequence[Start]) -> list[tuple[Command, Start, int]]:
    return [(command, *place) for command in commands_of(text, name) if (place := _place(command, starts))]


def _place(command: Command, starts: Sequence[Start]) -> tuple[Start, int] | None:
    """Returns (the words that start a server, index after them); ``None`` if there are none."""
    texts = [word.text for word in command.words]
    for at, text in enumerate(texts):
        for start in starts:
            end = at + len(start)
            if start[0] in (text, PurePosixPath(text).name) and texts[at + 1 : end] == [*start[1:]]:
                return start, end
    return None


def _knobs(key: str, own: Word, words: Sequence[Word], name: str, program: Program) -> Mapping[str, KnobValue] | None:
    """Returns the knobs of an option; ``None`` if the trial sets the option itself."""
    written, positive = own.text.partition("=")[0], key.removeprefix("no_")
    own_words = words[1:] if key in program.its_own else words  # a later word may stand for other options
    hidden = next((word for word in own_words if word.unknown), None)
    if hidden is not None:
        raise unknown(name, own.line, written, show(hidden.unknown))
    if key in program.its_own:
        return None
    if positive not in program.options:
        advice = closest(f"--{key}", [f"--{known}" for known in {*program.options, *program.its_own}])
        raise problem(name, own.line, f"{written}: a trial's rollout server takes no such option; {advice}")
    try:
        return program.options[positive](written, [word.text for word in words] if positive == key else ["false"])
    except FieldError as error:
        raise problem(name, own.line, f"{written}: {error}") from None
    except KnobKeyError as error:
        raise problem(name, own.line, f"{error.key}: {error.text}") from None


def training_processes(text: str, name: str) -> int:
    """Returns the number of training processes that a server's script also starts; 0 if none or unknown.

    Raises ConfigError for a text that is not a shell script.
    """
    counted = (launch_of(command.words[:at]).processes for command, at in training_commands(text, name))
    return next((number for number in counted if number), 0)


def unread_options(text: str, name: str, training: str) -> list[str]:
    """Returns notes on training options in the server's script, which replace keys of the file ``training``.

    Raises ConfigError for a text that is not a shell script.
    """
    found = []
    for command, at in training_commands(text, name):
        words = [word.text.partition("=")[0] for word in command.words[at + 1 :]]
        options = [word for word in words if word.startswith("--") and word != "--config"]
        if options and "--config" in words:
            said = f"{', '.join(options)}: the keys of the training are read from {training}; write them into it"
            found.append(str(problem(name, command.words[at].line, said)))
    return found


def with_gpus(knobs: Mapping[str, KnobValue], command: Command, name: str) -> dict[str, KnobValue]:
    """Returns ``knobs`` with ``rollout_gpus`` for all replicas. Raises ConfigError if the server sees fewer GPUs."""
    size, count = int(knobs.get("tensor_parallel_size", 1)), int(knobs.get("rollout_data_parallel_size", 1))
    shown = command.environment.get(VISIBLE)
    if shown is not None and not shown.unknown and size * count > _count_gpus(shown.text):
        text = f"{VISIBLE}={shown.text} has fewer GPUs than tensor_parallel_size {size} × {count} replicas"
        raise problem(name, shown.line, text)
    return {**knobs, "rollout_gpus": size * count}


def _count_gpus(devices: str) -> int:
    """Returns the number of GPUs in ``CUDA_VISIBLE_DEVICES`` as CUDA counts: up to an unknown name, without repeats."""
    named = list(takewhile(lambda device: device and not device.startswith("-"), map(str.strip, devices.split(","))))
    return len(set(named))


def without(name: str, line: int, option: str) -> ConfigError:
    """Builds the error on an option that a trial's server cannot have."""
    return problem(name, line, f"{option}: a trial's rollout server does without it")


def unused(name: str, training: str, mode: str) -> ConfigError:
    """Builds the error on server script ``name`` if ``training`` uses no server; the key ``mode`` would set one."""
    return problem(name, 0, f"it starts a rollout server, and {training} uses none; write {mode} there")


def check_pair(server: Served, name: str, training: str, keys: Mapping[str, Any]) -> None:
    """Checks that the training uses the server that the script starts.

    Raises:
        ConfigError: host or port differ.
    """
    host, port = _address_of(keys)
    listens = "" if _reached(server.host, host) else server.host
    if server.port and port and port != server.port:
        listens, host = f"port {server.port}", f"port {port}"
    if listens:
        raise problem(name, 0, f"the server listens at {listens}, and {training} asks {host}; make them the same")


def other_model(server: Served, name: str, model: Any) -> list[str]:
    """Returns a note if the script ``name`` starts the server with another model than the trained one."""
    theirs, ours = (PurePosixPath(str(path or "")).name.lower() for path in (server.model, model))
    if not theirs or not ours or theirs == ours:
        return []
    return [str(problem(name, 0, f"the server has {show(server.model)}; a trial's has the model that is trained"))]


def _reached(listens: str, client: str) -> bool:
    """Tells whether a client's address ``client`` may reach a server that listens at ``listens``; any host name may."""
    try:
        server, other = (ip_address(host.replace("localhost", "127.0.0.1")) for host in (listens, client))
    except ValueError:
        return True
    near = server.is_loopback and (other.is_loopback or other.is_unspecified)
    return server.is_unspecified or server == other or near


def _address_of(keys: Mapping[str, Any]) -> tuple[str, str]:
    """Returns (host, port) of the server that the training uses; empty if unknown."""
    if not keys.get("vllm_server_base_url"):
        return str(keys.get("vllm_server_host") or ""), str(keys.get("vllm_server_port") or PORT)
    try:
        url = urlsplit(str(keys["vllm_server_base_url"]))
        return url.hostname or "", str(url.port or (443 if url.scheme == "https" else 80))
    except ValueError:
        return "", ""

"""A user's own TRL config: knobs become the baseline, the rest is workload. Pure; opens and evaluates nothing.

In the parent the order is: ``named_files`` of the text, which the caller reads, ``read_keys`` (and its result to the
child's ``describe``), ``fields_of`` what the child answers, ``import_config``, and only then, if the child said that
TRL refuses the keys, ``imported.located``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.errors import SpaceError
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from search_spaces.whole_numbers import whole_number
from search_spaces.yaml_text import Entry, plain
from trainer.frameworks.common.accelerate_file import FSDP, AccelerateFile, read_file
from trainer.frameworks.common.config_entries import (
    ENVIRONMENT,
    Faults,
    at_least_one,
    at_line,
    check_storable,
    check_weights,
    environment_of,
    line_of,
    lines_of,
    meant,
    problem,
    read_mapping,
    refuse_one_reward,
)
from trainer.frameworks.common.deepspeed import ZERO, at, said_otherwise
from trainer.frameworks.common.fields import Field, FieldError, typed
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.common.script_folder import placed
from trainer.frameworks.common.server_script import (
    NO_SERVER,
    NOT_OF_SERVER,
    OF_COLOCATED,
    Served,
    ServerScript,
    check_pair,
    other_model,
    paired,
    read_server,
    training_processes,
    unread_options,
    unused,
)
from trainer.frameworks.common.trainer_keys import all_knobs
from trainer.frameworks.common.training_script import is_script
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.trl.key_handling import INPUTS, PRESETS, PROCESSES, REFUSED_INSIDE, SHARDED, note, refusal
from trainer.frameworks.trl.keys import from_keys, rest
from trainer.frameworks.trl.script import Script, plain_keys, read_script
from trainer.frameworks.trl.server import PROGRAM, starts_server, wants_server

FILES = ("deepspeed", "fsdp_config")
"""Keys that take a mapping, or the path of a JSON file with one."""
_NO_FILES: Mapping[str, str] = {}
_NO_REWARDS: tuple[str, ...] = ()
NO_LAUNCH = AccelerateFile()
"""Launch of an unknown number of processes."""


_RENAMED: Mapping[str, str] = {"offload_params": "cpu_offload"}
"""accelerate's key without ``fsdp_`` -> the key of ``fsdp_config``."""
_FIRST = 1
"""FSDP version if accelerate's file sets none."""


def named_files(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Returns key -> (path as written, line) of the JSON files that the config names.

    Raises ConfigError like ``read_keys``.
    """
    if is_script(text, name):
        return _files_of(text, name)
    entries = _entries(text, name, _NO_FILES, Faults())
    launch = {key: entry for key, entry in entries.items() if key in SHARDED and _names_file(entry.value)}
    found = {key: entries[key] for key in FILES if _is_path(entries.get(key))} | launch
    return {key: (str(entry.value), entry.line) for key, entry in found.items()}


def read_keys(text: str, name: str, files: Mapping[str, str] = _NO_FILES) -> dict[str, Any]:
    """Returns the file's keys as plain YAML values, for the child's ``describe``, without keys that are always refused.

    Args:
        text: the file, at most 64 KiB; undecodable bytes as surrogates are refused with their line.
        files: key -> text of the file it names (``named_files``), which replaces the path.

    Raises:
        ConfigError: the file is no mapping of plain values.
    """
    entries, _ = _launch(_entries(text, name, files, Faults()), name, files, Faults())
    return plain_keys(entries) if is_script(text, name) else {key: entry.plain for key, entry in entries.items()}


def _files_of(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Returns key -> (path, line) of a script's options that name a file: one word, no JSON."""
    found: dict[str, tuple[str, int]] = {}
    script = read_script(text, name, Faults())
    for key, entry in script.keys.items():
        word = plain_keys({key: entry})[key]
        if not isinstance(word, str):
            continue
        if _names_file(word) if key in SHARDED else key in FILES and _is_path(Entry(word, 0)):
            found[key] = (placed(word, script.folder), entry.line)
    return found


def import_config(
    text: str,
    name: str,
    fields: Mapping[str, Field],
    processes: int = 1,
    files: Mapping[str, str] = _NO_FILES,
    accelerate: AccelerateFile = NO_LAUNCH,
    *,
    server: str = "",
    server_name: str = "the script of the rollout server",
) -> Imported:
    """Reads the file's keys into knobs, inputs and ``passthrough``.

    Args:
        fields: the installed TRL's keys.
        processes: training processes, for ``generation_batch_size``, if the launch sets no number.
        accelerate: accelerate's file of the launch.
        server: a shell script that starts the rollout server; its options win. Empty without one.

    Raises:
        ConfigError: naming file, line, key, and what was expected or what to do.
    """
    faults = Faults()
    script = read_script(text, name, Faults()) if is_script(text, name) else None
    entries, own_launch = _launch(_entries(text, name, files, faults), name, files, faults)
    accelerate = own_launch if accelerate is NO_LAUNCH else accelerate
    values = _values(entries, name, fields, script, files, faults)
    launched = own_launch.processes or _launched(script, accelerate, server, server_name, faults)
    beside = keys_beside(values, accelerate)
    whole = {**values, **beside}
    knobs = _knobs(whole, values, entries, fields, launched or processes, name, accelerate, faults)
    environment = faults.of(lambda: _environment(entries, name), _NO_FILES)
    rewards = faults.of(lambda: _rewards(values, entries, name), _NO_REWARDS)
    served_by = paired(name, server, server_name, itself=text if script and starts_server(text, name, knobs) else "")
    served = faults.of(lambda: _served(served_by, knobs, values, entries, name), NO_SERVER)
    faults.raise_collected()
    own = {**({ENVIRONMENT: dict(environment)} if ENVIRONMENT in entries else {}), **served.keys}
    return Imported(
        knobs={**knobs, **served.knobs},
        passthrough={**{key: value for key, value in rest(whole).items() if key not in INPUTS}, **own},
        model=values.get("model_name_or_path"),
        dataset={key: values[key] for key in values if fields[key].group == "dataset" or key.startswith("dataset_")},
        rewards=rewards,
        max_completion_length=_longest(values, entries, name),
        lines=lines_of(entries),
        text=text,
        notes=(*_notes(values, entries, name, script), *_beside_notes(beside, accelerate), *served.notes),
        asked=script.asked if script else {},
        processes=launched,
    )


def _longest(values: Mapping[str, Any], entries: Mapping[str, Entry], name: str) -> int | None:
    key = "max_completion_length"
    return at_least_one(key, values[key], name, line_of(entries, key)) if key in values else None


def _launch(
    entries: dict[str, Entry], name: str, files: Mapping[str, str], faults: Faults
) -> tuple[dict[str, Entry], AccelerateFile]:
    """Returns the script's own keys, and the launch that the other keys of ``trl grpo``'s file describe."""
    own = {key: entry for key, entry in entries.items() if key not in (PROCESSES, *SHARDED)}
    said = {key: str(value) for key, value in plain_keys(entries).items() if key in (PROCESSES, *SHARDED)}
    found = NO_LAUNCH
    for key in (key for key in SHARDED if key in said):
        if said[key] not in PRESETS and key not in files:
            text = f"{key}: {show(said[key])} is no file, and TRL has {', '.join(PRESETS)} by that key"
            faults.add(problem(name, entries[key].line, text))
            continue
        preset = PRESETS.get(said[key])
        with faults.caught():
            found = read_file(preset or files[key], said[key], _NO_FILES)
        if preset:
            of = f"{name}, line {entries[key].line}: {key} {said[key]}"
            found = replace(found, name=of, lines=dict.fromkeys(found.lines, 0))
    count = whole_number(said[PROCESSES]) if PROCESSES in said else found.processes
    if PROCESSES in said and not count:
        faults.add(problem(name, entries[PROCESSES].line, f"{PROCESSES}: expected a whole number of at least 1"))
    return own, replace(found, processes=count) if count else found


def _launched(script: Script | None, accelerate: AccelerateFile, server: str, server_name: str, faults: Faults) -> int:
    """Returns the number of training processes that a launch starts; 0 if unknown."""
    for error in script.unread if script and accelerate is NO_LAUNCH else ():
        faults.add(error)
    counted = script.launch.processes if script else faults.of(lambda: training_processes(server, server_name), 0)
    return counted or accelerate.processes or 0


def _served(
    script: ServerScript, knobs: dict[str, KnobValue], values: Mapping[str, Any], entries: dict[str, Entry], name: str
) -> Served:
    """Reads the server's script; removes a colocated engine's settings from ``knobs`` and ``entries``, with a note."""
    if not script.text:
        return NO_SERVER
    if not wants_server(knobs):
        mode = "vllm_mode: server" if script.training == name else "--use_vllm --vllm_mode server"
        raise unused(script.name, script.training, mode)
    found = read_server(script.text, script.name, PROGRAM)
    check_pair(found, script.name, script.training, values)
    for knob in OF_COLOCATED.values():
        knobs.pop(knob, None)
    gone = {key: entries.pop(key) for key in OF_COLOCATED if key in entries}  # nothing is told of their lines any more
    notes = (str(problem(name, entry.line, f"{key}: {NOT_OF_SERVER}")) for key, entry in gone.items())
    other = other_model(found, script.name, values.get("model_name_or_path"))
    unread = unread_options(script.text, script.name, name) if script.name != name else []
    return replace(found, notes=(*notes, *other, *unread, *found.notes))


def _knobs(
    whole: Mapping[str, Any],
    values: Mapping[str, Any],
    entries: Mapping[str, Entry],
    fields: Mapping[str, Field],
    processes: int,
    name: str,
    accelerate: AccelerateFile,
    faults: Faults,
) -> dict[str, KnobValue]:
    """Reads the knobs of the configuration and its launch; reports each fault at the file that has it."""

    def report_error(error: KnobKeyError) -> None:
        key, _, place = error.key.partition(".")
        if key in values or key not in whole:
            faults.add(problem(name, line_of(entries, error.key), f"{error.key}: {error.text}"))
        elif key == "deepspeed":
            faults.add(accelerate.problem(place, error.text))
        else:
            said, line = place_of(error.key, accelerate)
            faults.add(problem(accelerate.name, line, f"{said}: {error.text}"))

    knobs = all_knobs(lambda keys: from_keys(keys, processes), whole, report_error)
    # DeepSpeed's precision is compared with the configuration's own keys, not with the launcher's.
    compared = {**values, "deepspeed": whole.get("deepspeed")}
    for place, text in _said_otherwise(compared, from_keys(_half(values)), fields, processes):
        report_error(KnobKeyError(f"deepspeed.{place}", text))
    return knobs


def _half(values: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: values[key] for key in ("bf16", "fp16") if isinstance(values.get(key), bool)}
    return {} if found.get("bf16") and found.get("fp16") else found


def _environment(entries: Mapping[str, Entry], name: str) -> Mapping[str, str]:
    return environment_of(entries[ENVIRONMENT], name) if ENVIRONMENT in entries else _NO_FILES


def _beside_notes(beside: Mapping[str, Any], accelerate: AccelerateFile) -> Iterator[str]:
    stage = at(beside.get("deepspeed"), (ZERO, "stage"))
    if "deepspeed" in beside and not stage:
        text = "deepspeed_config: at stage 0 a trial trains without DeepSpeed, by DDP"
        yield str(problem(accelerate.name, accelerate.line("deepspeed_config"), text))


def _said_otherwise(
    values: Mapping[str, Any], knobs: Mapping[str, KnobValue], fields: Mapping[str, Field], processes: int
) -> Iterator[tuple[str, str]]:
    """Yields (place, problem) for DeepSpeed values that contradict the keys."""
    unset = {key: field.default for key, field in fields.items()}
    precision = knobs.get("precision", defaults("trl")["precision"])
    computing = {
        "bf16": precision == "bf16" or values.get("bf16_full_eval") is True,
        "fp16": precision == "fp16" or values.get("fp16_full_eval") is True,
    }
    return said_otherwise(values.get("deepspeed"), {**values, **computing}, unset, processes)


def _entries(text: str, name: str, files: Mapping[str, str], faults: Faults) -> dict[str, Entry]:
    """Returns the keys in file order, without those always refused; a named file's content replaces its path."""
    found: dict[str, Entry] = {}
    script = is_script(text, name)
    given = read_script(text, name, faults).keys if script else read_mapping(text, name, "config", "TRL's keys")
    for key, entry in given.items():
        with faults.caught():
            check_storable(key, entry, name)
            why = refusal(key, plain_keys({key: entry})[key] if script else entry.plain)
            if why is not None:
                raise problem(name, entry.line, f"{key}: {why}")
            found[key] = _from_file(key, entry, files[key], name) if key in FILES and key in files else entry
    return found


def _is_path(entry: Entry | None) -> bool:
    return entry is not None and isinstance(entry.value, str) and entry.value.strip()[:1] not in ("", "{")


def _names_file(value: object) -> bool:
    """Tells whether the value is a path rather than a name of TRL's own files."""
    return isinstance(value, str) and value not in PRESETS and ("/" in value or "." in value)


def _from_file(key: str, entry: Entry, text: str, name: str) -> Entry:
    """Returns the mapping in a JSON file, at the line that names the file."""
    try:
        found = json.loads(text)
        mapping = plain(found, name) if isinstance(found, dict) else None
    except (ValueError, RecursionError, SpaceError) as error:
        raise problem(name, entry.line, f"{key}: {show(entry.value)} is not JSON ({error})") from None
    if mapping is None or not isinstance(mapping.value, dict):
        raise problem(name, entry.line, f"{key}: {show(entry.value)} holds no JSON object")
    placed = at_line(mapping.plain, entry.line)
    check_storable(key, placed, name)
    return placed


def _value(key: str, entry: Entry, name: str, fields: Mapping[str, Field], words: Sequence[str] | None = None) -> Any:
    """Converts a value by its type; ``words`` are those of a script's option."""
    if key not in fields:
        advice = meant(key, [*fields, ENVIRONMENT])
        raise problem(name, entry.line, f"TRL's GRPO script has no key {show(key)}; {advice}")
    try:
        value = fields[key].typed(entry.plain) if words is None else typed(fields[key], words)
    except FieldError as error:
        raise problem(name, entry.line, f"{key}: {error}") from None
    inside = _inside(key, entry, value, name)
    for inner in inside:
        if (key, inner) in REFUSED_INSIDE:
            raise problem(name, inside[inner].line or entry.line, f"{key}.{inner}: {REFUSED_INSIDE[key, inner]}")
    return value


def _values(
    entries: Mapping[str, Entry],
    name: str,
    fields: Mapping[str, Field],
    script: Script | None,
    files: Mapping[str, str],
    faults: Faults,
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, entry in entries.items():
        with faults.caught():
            if key != ENVIRONMENT:
                values[key] = _value(key, entry, name, fields, _words(entry, key, script, files))
    return values


def _words(entry: Entry, key: str, script: Script | None, files: Mapping[str, str]) -> list[str] | None:
    """Returns the words of a script's option; ``None`` for any other value."""
    if script is None or key in files or not isinstance(entry.value, list):
        return None
    return [str(item.value) for item in entry.value]


def _inside(key: str, entry: Entry, value: Any, name: str) -> Mapping[str, Entry]:
    """Returns the entries of a mapping that is written as YAML or as JSON text, which TRL also accepts."""
    if isinstance(entry.value, dict) or not isinstance(value, dict):
        return entry.value if isinstance(entry.value, dict) else {}
    try:
        found = plain(value, name)
    except SpaceError:
        raise problem(name, entry.line, f"{key}: it is nested too deep") from None
    check_storable(key, Entry(found.value, entry.line), name)
    return found.value if isinstance(found.value, dict) else {}


def _rewards(values: Mapping[str, Any], entries: Mapping[str, Entry], name: str) -> tuple[str, ...]:
    given = values.get("reward_funcs")
    refuse_one_reward(given, name, line_of(entries, "reward_funcs"))
    check_weights(given or (), values.get("reward_weights"), name, line_of(entries, "reward_weights"))
    return tuple(given or ())


def _notes(values: Mapping[str, Any], entries: Mapping[str, Entry], name: str, script: Script | None) -> Iterator[str]:
    yield from script.notes if script else ()
    for key in values:
        said = note(key, values)
        if said is not None:
            yield str(problem(name, line_of(entries, key), f"{key}: {said}"))


def keys_beside(values: Mapping[str, Any], file: AccelerateFile) -> dict[str, Any]:
    """Returns the keys that ``file`` sets and ``values`` of the configuration leave open.

    transformers takes DeepSpeed and FSDP from the launcher's variables if its own keys set neither
    (``training_args.py:1655-1690`` of 5.17); a key of the configuration wins.
    """
    found: dict[str, Any] = {}
    if file.deepspeed is not None and not values.get("deepspeed"):
        found["deepspeed"] = file.deepspeed
    if file.fsdp is not None and not values.get("fsdp"):
        own = {name.removeprefix("fsdp_"): value for name, value in file.fsdp.items()}
        renamed = {_RENAMED.get(name, name): value for name, value in own.items()}
        found.update(fsdp=True, fsdp_config={"version": _FIRST, **renamed})
    off = values.get("bf16") is False and not values.get("fp16")
    if off and file.deepspeed is None and file.precision in ("bf16", "fp16"):
        found[file.precision] = True  # TRL itself sets bf16 where it is not said
    return found


def place_of(key: str, file: AccelerateFile) -> tuple[str, int]:
    """Returns (accelerate's name, line) of TRL's ``key`` in ``fsdp_config``."""
    inner = key.partition(".")[2]
    names = {name: old for old, name in _RENAMED.items()}
    told = f"{FSDP}.fsdp_{names.get(inner, inner)}"
    return (told, file.lines[told]) if told in file.lines else (FSDP, file.line(FSDP))

"""A user's own ms-swift run: knobs become the baseline, the rest is workload. Pure; opens and runs nothing.

In the parent the order is that of TRL's: ``named_files`` of the text, which the caller reads, ``read_keys`` (and its
result to the child's ``describe``), ``fields_of`` what the child answers, ``import_config``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show
from search_spaces.legality.swift_passthrough import GONE, OF_MEGATRON
from search_spaces.whole_numbers import whole_number
from trainer.frameworks.common.asked import unknown
from trainer.frameworks.common.config_entries import (
    NAME,
    OF_THE_LAUNCH,
    Faults,
    at_least_one,
    check_weights,
    environment_refusal,
    meant,
    problem,
)
from trainer.frameworks.common.deepspeed import batch_unset, said_otherwise
from trainer.frameworks.common.fields import Field, FieldError, typed
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.common.launcher import sharding_of, uncounted, uncounted_by
from trainer.frameworks.common.script_folder import moved, placed
from trainer.frameworks.common.server_script import (
    NO_SERVER,
    NOT_OF_SERVER,
    Served,
    ServerScript,
    check_pair,
    other_model,
    paired,
    unused,
)
from trainer.frameworks.common.trainer_keys import all_knobs
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.environment import knobs_of
from trainer.frameworks.ms_swift.given import ALONE, Argument, Given, asked_of, given, server_knobs
from trainer.frameworks.ms_swift.key_handling import COUNTING, DATASET, INPUTS, LAUNCH, NOT_NEEDED, note, refusal
from trainer.frameworks.ms_swift.keys import SERVED, from_keys, rest
from trainer.frameworks.ms_swift.objective import completed
from trainer.frameworks.ms_swift.sharding import DEEPSPEED, FSDP

FILES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"deepspeed": DEEPSPEED, "fsdp": FSDP}
"""Arguments that take a preset's name, JSON text, or the path of a JSON file -> their presets."""
_NO_FILES: Mapping[str, str] = {}
_SHARDING_WORDS = frozenset({"true", "full_shard", "shard_grad_op", "hybrid_shard", "auto_wrap", "offload"})
"""Words of transformers' ``--fsdp`` that ms-swift's does not take (``arguments/sft_args.py:284-320``)."""
_LENGTHS = ("max_completion_length", "max_new_tokens", "response_length")


_NO_REWARDS: tuple[str, ...] = ()


def named_files(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Returns argument -> (path as written, line) of the JSON files that the run names.

    Raises ConfigError like ``read_keys``.
    """
    said = _given(text, name)
    found = said.arguments
    return {
        key: (placed(found[key].words[0], said.folder), found[key].line)
        for key, presets in FILES.items()
        if key in found and _is_path(found[key].words, presets)
    }


def read_keys(text: str, name: str) -> dict[str, Any]:
    """Returns the arguments as words, for the child's ``describe``; Megatron-SWIFT's begin with ``megatron.PREFIX``.

    Raises ConfigError for a text without such a run.
    """
    found = _given(text, name)
    prefix, gone = (megatron.PREFIX, megatron.SERVERS) if found.megatron else ("", frozenset())
    gone = gone | _gone(found.megatron).keys()
    known = {key: own for key, own in found.arguments.items() if not own.unknown and key not in gone}
    return {prefix + key: list(own.words) for key, own in known.items()}


def _gone(of_megatron: bool) -> dict[str, str]:
    """Returns removed arguments of the run's command -> replacement."""
    return {**GONE, **(megatron.GONE if of_megatron else OF_MEGATRON)}


def import_config(
    text: str,
    name: str,
    fields: Mapping[str, Field],
    processes: int = 1,
    files: Mapping[str, str] = _NO_FILES,
    *,
    server: str = "",
    server_name: str = "the rollout script",
) -> Imported:
    """Reads the run's arguments into knobs, inputs and ``passthrough``, which has the whole objective.

    Args:
        text: a shell script with one ``swift rlhf`` or ``megatron rlhf``, or the YAML or JSON file one is given.
        name: name of the text in messages; its ending tells the kind of file.
        fields: the installed ms-swift's arguments.
        processes: training processes, for ``generation_batch_size``, if the text has no number.
        files: argument -> text of the file it names (``named_files``).
        server: a shell script with ``swift rollout`` in another file; overrides one in ``text``.
        server_name: name of ``server`` in messages.

    Raises:
        ConfigError: naming file, line, argument, and what was expected or what to do.
    """
    found, faults = _given(text, name), Faults()
    described, fields = fields, _fields(found, name, fields)
    script = paired(name, server, server_name, itself=text if found.serves else "")
    values = _values(found, name, fields, files, faults)
    colocated, notes = _of_colocated(values, found, script.text == text, name) if script.text else (set[str](), [])
    values = {key: value for key, value in values.items() if key not in colocated}
    environment: dict[str, str] = faults.of(lambda: _environment(found, name), {})
    launched = faults.of(lambda: _launched(found, name), 0)
    knobs, own = _knobs(values, environment, launched or processes, found, name, fields, faults)
    rewards = faults.of(lambda: _rewards(values, found, name), _NO_REWARDS)
    served = faults.of(lambda: _served(script, knobs, values, described), NO_SERVER)
    faults.raise_collected()
    passthrough = _passed(values, fields, found)
    return Imported(
        knobs={**knobs, **served.knobs},
        passthrough={**passthrough, "env": own} if own else passthrough,
        model=values.get("model"),
        dataset={key: values[key] for key in DATASET if key in values},
        rewards=rewards,
        max_completion_length=_length(values, found, name),
        lines={key: line for key, line in _lines(found) if key not in colocated},
        text=text,
        notes=(*_notes(values, found, name), *notes, *served.notes),
        asked=_asked(found, name),
        processes=launched,
    )


def _fields(found: Given, name: str, fields: Mapping[str, Field]) -> Mapping[str, Field]:
    """Returns the fields of the run's own command and of its rollout server, out of all of the installed ms-swift."""
    start = len(megatron.PREFIX)
    theirs = {key[start:]: field for key, field in fields.items() if key.startswith(megatron.PREFIX)}
    if not found.megatron:
        return {key: field for key, field in fields.items() if not key.startswith(megatron.PREFIX)}
    if not theirs:
        raise problem(name, 0, "the installed ms-swift does not say which arguments `megatron rlhf` takes")
    return {**{key: fields[key] for key in found.served}, **theirs}


def _passed(values: Mapping[str, Any], fields: Mapping[str, Field], found: Given) -> dict[str, Any]:
    """Returns the arguments that pass through unchanged, with the whole objective."""
    left = megatron.rest(values) if found.megatron else rest(values)
    own = {key: value for key, value in left.items() if key not in INPUTS}
    return completed(own, fields, megatron=found.megatron)


def _of_colocated(values: Mapping[str, Any], found: Given, itself: bool, name: str) -> tuple[set[str], list[str]]:
    """Returns (colocated-engine arguments that a server does not get, the notes on them).

    ``itself`` tells that the run's own script starts the server.
    """
    if values.get("vllm_mode") != "server":
        return set(), []
    keys = set(SERVED).difference(found.served if itself else ())
    notes = [str(problem(name, own.line, f"{key}: {NOT_OF_SERVER}")) for key, own in found.engine.items()]
    return keys, notes


def _served(
    script: ServerScript, knobs: Mapping[str, KnobValue], values: Mapping[str, Any], fields: Mapping[str, Field]
) -> Served:
    """Reads the settings of the server's script."""
    if not script.text:
        return NO_SERVER
    if knobs.get("rollout_mode") != "server":
        raise unused(script.name, script.training, "--vllm_mode server")
    found = server_knobs(script.text, script.name, fields)
    alone = {key: value[0] for key, value in values.items() if isinstance(value, list) and len(value) == 1}
    check_pair(found, script.name, script.training, alone)
    return replace(found, notes=(*other_model(found, script.name, values.get("model")), *found.notes))


def _asked(found: Given, name: str) -> dict[str, str]:
    """Returns the missing fields that the command line has to give, as ``Imported.asked``."""
    return {
        field: str(unknown(name, own.line, key, show(own.unknown), field))
        for key, own in found.arguments.items()
        if own.unknown and key not in NOT_NEEDED and (field := asked_of(key, found.arguments))
    }


def _knobs(
    values: Mapping[str, Any],
    environment: Mapping[str, str],
    processes: int,
    found: Given,
    name: str,
    fields: Mapping[str, Field],
    faults: Faults,
) -> tuple[dict[str, KnobValue], dict[str, str]]:
    """Returns (the knobs of arguments and variables, the other variables)."""

    def report_error(error: KnobKeyError) -> None:
        faults.add(problem(name, _line(found, error.key), f"{error.key}: {error.text}"))

    for option, word in sharding_of(found.launch):
        text = f"--{option}: ms-swift shards by --deepspeed or --fsdp; write that behind the script instead"
        faults.add(problem(name, word.line, text))
    read = megatron.from_keys if found.megatron else from_keys
    knobs = all_knobs(lambda keys: read(keys, processes), values, report_error)
    for place, text in () if found.megatron else _said_otherwise(values, knobs, fields, processes):
        report_error(KnobKeyError(f"deepspeed.{place}", text))
    own: dict[str, str] = {}
    try:
        more, own = knobs_of(environment)
        knobs.update(more)
    except KnobKeyError as error:
        report_error(error)
    if knobs.get("rollout_mode") == "server" and (found.serves or "rollout_data_parallel_size" in knobs):
        size = int(knobs.get("tensor_parallel_size", defaults("ms_swift")["tensor_parallel_size"]))
        knobs["rollout_gpus"] = size * int(knobs.get("rollout_data_parallel_size", 1))
    return knobs, own


def _values(
    found: Given, name: str, fields: Mapping[str, Field], files: Mapping[str, str], faults: Faults
) -> dict[str, Any]:
    """Returns the arguments by their types, without values that only a shell knows."""
    values: dict[str, Any] = {}
    for key, own in found.arguments.items():
        with faults.caught():
            if not own.unknown or key not in fields:
                values[key] = _value(key, own, name, fields, files)
            why = refusal(key, values.get(key))
            if found.megatron and why is None:
                why = megatron.refusal(key, values.get(key))
            if why is not None:
                raise problem(name, own.line, f"{key}: {why}")
    return values


def _said_otherwise(
    values: Mapping[str, Any], knobs: Mapping[str, KnobValue], fields: Mapping[str, Field], processes: int
) -> Iterator[tuple[str, str]]:
    """Yields (place, problem) for DeepSpeed values that contradict the arguments."""
    unset = {**{key: field.default for key, field in fields.items()}, **batch_unset("ms_swift")}
    unset = {**completed(values, fields), **{key: value for key, value in unset.items() if value is not None}}
    if "precision" in knobs:
        unset.update(bf16=knobs["precision"] == "bf16", fp16=knobs["precision"] == "fp16")
    return said_otherwise(values.get("deepspeed"), values, unset, processes)


def _given(text: str, name: str) -> Given:
    found = given(text, name)
    if "rlhf_type" not in found.arguments:
        raise problem(name, 0, "rlhf_type: expected grpo, got nothing, which means dpo")
    return found


def _is_path(words: tuple[str, ...], presets: Mapping[str, Any]) -> bool:
    if len(words) != 1 or words[0] in presets or words[0].lstrip().startswith("{"):
        return False
    return not set(words[0].split()) <= _SHARDING_WORDS


def _value(key: str, own: Argument, name: str, fields: Mapping[str, Field], files: Mapping[str, str]) -> Any:
    gone = _gone(megatron.ROWS in fields)
    if key in gone:
        raise problem(name, own.line, f"ms-swift has no argument {key}; {gone[key]}")
    if key not in fields:
        raise problem(name, own.line, f"ms-swift has no argument {show(key)}; {meant(key, fields)}")
    if key in FILES:
        return _sharding(key, own, name, files)
    try:
        value = typed(fields[key], own.words)
    except FieldError as error:
        raise problem(name, own.line, f"{key}: {error}") from None
    if key == "loss_type" and isinstance(value, list):
        if len(value) != 1:
            raise problem(name, own.line, f"loss_type: expected one word, got {len(value)}")
        return value[0]
    return value


def _sharding(key: str, own: Argument, name: str, files: Mapping[str, str]) -> Any:
    """Returns the mapping of a preset's name, JSON text or a file."""
    if len(own.words) != 1:
        raise problem(name, own.line, f"{key}: expected one word, got {len(own.words)}")
    word = own.words[0]
    if word in FILES[key]:
        return FILES[key][word]
    if not word.lstrip().startswith("{") and key not in files:
        expected = f"expected {', '.join(FILES[key])}, JSON or a file, got {show(word)}"
        meant = "; fsdp2 is its full_shard auto_wrap" if key == "fsdp" and set(word.split()) & _SHARDING_WORDS else ""
        raise problem(name, own.line, f"{key}: {expected}{meant}")
    try:
        found = json.loads(files.get(key, word))
    except (ValueError, RecursionError) as error:
        raise problem(name, own.line, f"{key}: {show(word)} is not JSON ({error})") from None
    if not isinstance(found, dict):
        raise problem(name, own.line, f"{key}: {show(word)} holds no JSON object")
    return found


def _environment(found: Given, name: str) -> dict[str, str]:
    """Returns the run's own variables, without launch variables."""
    own: dict[str, str] = {}
    for variable, setting in found.environment.items():
        if variable in LAUNCH or OF_THE_LAUNCH.fullmatch(variable):
            continue
        if not NAME.fullmatch(variable):
            raise problem(name, setting.line, f"{show(variable)} is not a name an environment can have")
        why = environment_refusal(variable)
        if why is not None:
            raise problem(name, setting.line, f"{variable}: {why}")
        own[variable] = setting.words[0] if setting.words else ""
    return own


def _launched(found: Given, name: str) -> int:
    """Returns training processes on all nodes, from the launcher or from ``swift``'s variables; 0 if not set."""
    if found.launch.options is not None:
        return found.launch.processes
    counted = dict(COUNTING)
    for variable in counted:
        if variable in found.hidden:
            return 0
        if variable in found.environment:
            entry = found.environment[variable]
            text = entry.words[0] if entry.words else ""
            count = whole_number(text)
            if not count:
                raise problem(name, entry.line, f"{variable}: expected a whole number of at least 1, got {show(text)}")
            counted[variable] = count
    return counted["NPROC_PER_NODE"] * counted["NNODES"]


def _rewards(values: Mapping[str, Any], found: Given, name: str) -> tuple[str, ...]:
    rewards = tuple(values.get("reward_funcs") or ())
    check_weights(rewards, values.get("reward_weights"), name, _line(found, "reward_weights"))
    if "soft_overlong" in rewards and values.get("soft_cache_length") is None:
        raise problem(name, _line(found, "reward_funcs"), "reward_funcs: soft_overlong needs soft_cache_length")
    return rewards


def _length(values: Mapping[str, Any], found: Given, name: str) -> int | None:
    """Returns the prompt length; the last name that ms-swift reads counts least (rlhf_args.py)."""
    for key in reversed(_LENGTHS):
        if values.get(key) is not None:
            return at_least_one(key, values[key], name, _line(found, key))
    return None


def _notes(values: Mapping[str, Any], found: Given, name: str) -> Iterator[str]:
    for key in values:
        said = note(key, values)
        if said is not None:
            yield str(problem(name, _line(found, key), f"{key}: {said}"))
    without = {key: own for key, own in found.arguments.items() if own.unknown and key in NOT_NEEDED}
    hidden = {**found.hidden, **without}
    for key, own in hidden.items():
        if key not in LAUNCH and not OF_THE_LAUNCH.fullmatch(key):
            said = f"{key}: {show(own.unknown)} is known to a shell only; a trial does without it"
            yield str(problem(name, own.line, said))
    yield from moved(name, found.folder)
    yield from _uncounted(found, name)


def _uncounted(found: Given, name: str) -> Iterator[str]:
    """Yields sentences on variables that leave the number of processes unknown, or that are not read."""
    alone = (found.launch.options or {}).get(ALONE)
    for key, own in {**found.environment, **found.hidden}.items() if alone else ():
        if alone and key in COUNTING:
            said = f"{key}: only `swift rlhf` reads it, and {alone.text} starts one process; write that or torchrun"
            yield str(problem(name, own.line, said))
    if found.launch.options is not None:
        yield from uncounted(found.launch, name)
        return
    for key in (key for key in COUNTING if key in found.hidden):
        yield uncounted_by(key, found.hidden[key].line, found.hidden[key].unknown, name)


def _lines(found: Given) -> Iterator[tuple[str, int]]:
    for key, own in found.arguments.items():
        yield key, own.line
        yield from ((f"{key}.{inner}", line) for inner, line in own.inner.items())


def _line(found: Given, key: str) -> int:
    place = found.arguments.get(key) or found.arguments.get(key.partition(".")[0]) or found.environment.get(key)
    return place.line if place is not None else 0

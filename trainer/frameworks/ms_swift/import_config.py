"""Reads a user's own ms-swift run: knobs become the baseline, the rest is workload. Pure; opens and runs nothing.

The parent calls, as for TRL: ``named_files`` of the text, whose files it reads; ``read_keys``, whose result goes to the
child's ``describe``; ``fields_of`` the child's answer; ``import_config``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from search_spaces.configuration import KnobValue
from search_spaces.knobs import defaults
from search_spaces.knobs.model import show, whole_number
from search_spaces.legality.swift_passthrough import GONE, OF_MEGATRON
from trainer.frameworks.common import config_entries, server_script
from trainer.frameworks.common.config_entries import Imported, Reading
from trainer.frameworks.common.deepspeed import batch_unset, said_otherwise
from trainer.frameworks.common.fields import Field, FieldError, typed
from trainer.frameworks.common.launcher import sharding_of, uncounted, uncounted_by
from trainer.frameworks.common.script_folder import folder_notes, in_folder
from trainer.frameworks.common.server_script import Served, ServerScript
from trainer.frameworks.common.trainer_keys import all_knobs
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.ms_swift import megatron
from trainer.frameworks.ms_swift.given import ALONE, Argument, Given, asked_of, read_given, server_knobs
from trainer.frameworks.ms_swift.key_handling import COUNTING, DATASET, INPUTS, LAUNCH, NOT_NEEDED, note, refusal
from trainer.frameworks.ms_swift.keys import SERVED, from_keys, knobs_of, rest
from trainer.frameworks.ms_swift.render import completed
from trainer.frameworks.ms_swift.sharding import DEEPSPEED, FSDP

FILES: Mapping[str, Mapping[str, Mapping[str, Any]]] = {"deepspeed": DEEPSPEED, "fsdp": FSDP}
"""Arguments that take a preset's name, JSON text, or the path of a JSON file -> their presets."""
_NO_FILES: Mapping[str, str] = {}
_SHARDING_WORDS = frozenset({"true", "full_shard", "shard_grad_op", "hybrid_shard", "auto_wrap", "offload"})
"""Words of transformers' ``--fsdp`` that ms-swift's ``--fsdp`` does not take (``arguments/sft_args.py:284-320``)."""
_LENGTHS = ("max_completion_length", "max_new_tokens", "response_length")


def named_files(text: str, name: str) -> dict[str, tuple[str, int]]:
    """Returns argument -> (path, line) of the JSON files that the run names. Raises ConfigError like ``read_keys``."""
    run = _read_given(text, name)
    found = run.arguments
    return {
        key: (in_folder(found[key].words[0], run.folder), found[key].line)
        for key, presets in FILES.items()
        if key in found and _is_path(found[key].words, presets)
    }


def read_keys(text: str, name: str) -> dict[str, Any]:
    """Returns the arguments as words, for the child's ``describe``; Megatron-SWIFT's begin with ``megatron.PREFIX``.

    Raises ConfigError for a text without such a run.
    """
    found = _read_given(text, name)
    prefix, gone = (megatron.PREFIX, megatron.SERVERS) if found.megatron else ("", frozenset())
    gone = gone | _gone(found.megatron).keys()
    known = {key: own for key, own in found.arguments.items() if not own.unknown and key not in gone}
    return {prefix + key: list(own.words) for key, own in known.items()}


def _gone(of_megatron: bool) -> dict[str, str]:
    """Returns removed argument -> replacement, for the run's command."""
    return {**GONE, **(megatron.GONE if of_megatron else OF_MEGATRON)}


def _read_given(text: str, name: str) -> Given:
    found = read_given(text, name)
    if "rlhf_type" not in found.arguments:
        raise config_entries.problem(name, 0, "rlhf_type: expected grpo, got nothing, which means dpo")
    return found


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
    """Reads the run's arguments into knobs, inputs and ``passthrough``, as TRL's ``import_config``.

    The text is a shell script with one ``swift rlhf`` or ``megatron rlhf``, or, by ``name``'s ending, the YAML or JSON
    file that such a command takes. The passthrough has the whole objective.
    """
    run = _Run(_read_given(text, name), name, fields)
    faults, found = run.faults, run.found
    script = server_script.paired(name, server, server_name, itself=text if found.serves else "")
    run.read(files)
    colocated = run.of_colocated(script.text == text) if script.text else []
    environment: dict[str, str] = faults.of(run.environment, {})
    launched = faults.of(run.launched, 0)
    knobs, variables = run.knobs(environment, launched or processes)
    rewards = faults.of(run.named_rewards, tuple[str, ...]())
    served = faults.of(lambda: run.server_of(script, knobs, fields), server_script.NO_SERVER)
    faults.raise_collected()
    passthrough = run.passthrough()
    asked = {
        field: str(config_entries.unknown(name, own.line, key, show(own.unknown), field))
        for key, own in found.arguments.items()
        if own.unknown and key not in NOT_NEEDED and (field := asked_of(key, found.arguments))
    }
    return Imported(
        knobs={**knobs, **served.knobs},
        passthrough={**passthrough, "env": variables} if variables else passthrough,
        model=run.values.get("model"),
        dataset={key: run.values[key] for key in DATASET if key in run.values},
        rewards=rewards,
        max_completion_length=run.longest(),
        lines={key: line for key, line in run.argument_lines() if key not in run.gone},
        text=text,
        notes=(*run.notes(), *colocated, *served.notes),
        asked=asked,
        processes=launched,
    )


class _Run(Reading):
    """State of reading a run of ``swift rlhf`` or ``megatron rlhf``."""

    def __init__(self, run: Given, name: str, fields: Mapping[str, Field]) -> None:
        super().__init__(name)
        self.found = run
        self.gone: frozenset[str] = frozenset()
        """Arguments of a colocated engine that were removed."""
        start = len(megatron.PREFIX)
        self.fields = {key: field for key, field in fields.items() if not key.startswith(megatron.PREFIX)}
        """Fields of the arguments of the run's own command and of its rollout server."""
        if run.megatron:
            theirs = {key[start:]: field for key, field in fields.items() if key.startswith(megatron.PREFIX)}
            if not theirs:
                raise config_entries.problem(
                    name, 0, "the installed ms-swift does not say which arguments `megatron rlhf` takes"
                )
            self.fields = {**{key: fields[key] for key in run.served}, **theirs}
        variables = {key: own.line for key, own in run.environment.items()}
        self.lines = {**variables, **{key: own.line for key, own in run.arguments.items()}}

    def read(self, files: Mapping[str, str]) -> None:
        """Reads the arguments by their types, except values that need a shell to evaluate."""
        values: dict[str, Any] = {}
        for key, own in self.found.arguments.items():
            with self.faults.caught():
                if not own.unknown or key not in self.fields:
                    values[key] = self._value(key, own, files)
                why = refusal(key, values.get(key))
                if self.found.megatron and why is None:
                    why = megatron.refusal(key, values.get(key))
                if why is not None:
                    raise self.problem(key, why)
        self.values = values

    def of_colocated(self, itself: bool) -> list[str]:
        """Removes a colocated engine's arguments, which a server does not get; returns a note on each.

        ``itself``: the run's own script starts the server.
        """
        if self.values.get("vllm_mode") != "server":
            return []
        self.gone = frozenset(SERVED).difference(self.found.served if itself else ())
        self.values = {key: value for key, value in self.values.items() if key not in self.gone}
        return [
            str(config_entries.problem(self.name, own.line, f"{key}: {server_script.NOT_OF_SERVER}"))
            for key, own in self.found.engine.items()
        ]

    def _value(self, key: str, own: Argument, files: Mapping[str, str]) -> Any:
        gone = _gone(self.found.megatron)
        if key in gone:
            raise config_entries.problem(self.name, own.line, f"ms-swift has no argument {key}; {gone[key]}")
        if key not in self.fields:
            text = f"ms-swift has no argument {show(key)}; {config_entries.closest(key, self.fields)}"
            raise config_entries.problem(self.name, own.line, text)
        if key in FILES:
            return self._sharding(key, own, files)
        try:
            value = typed(self.fields[key], own.words)
        except FieldError as error:
            raise self.problem(key, str(error)) from None
        if key == "loss_type" and isinstance(value, list):
            if len(value) != 1:
                raise self.problem(key, f"expected one word, got {len(value)}")
            return value[0]
        return value

    def _sharding(self, key: str, own: Argument, files: Mapping[str, str]) -> Any:
        """Returns the mapping that ``own`` gives as a preset's name, JSON text or a file."""
        if len(own.words) != 1:
            raise self.problem(key, f"expected one word, got {len(own.words)}")
        word = own.words[0]
        if word in FILES[key]:
            return FILES[key][word]
        if not word.lstrip().startswith("{") and key not in files:
            expected = f"expected {', '.join(FILES[key])}, JSON or a file, got {show(word)}"
            words = key == "fsdp" and set(word.split()) & _SHARDING_WORDS
            raise self.problem(key, expected + ("; fsdp2 is its full_shard auto_wrap" if words else ""))
        try:
            mapping = json.loads(files.get(key, word))
        except (ValueError, RecursionError) as error:
            raise self.problem(key, f"{show(word)} is not JSON ({error})") from None
        if not isinstance(mapping, dict):
            raise self.problem(key, f"{show(word)} holds no JSON object")
        return mapping

    def passthrough(self) -> dict[str, Any]:
        """Returns the arguments that pass through unchanged, with the whole objective."""
        left = megatron.rest(self.values) if self.found.megatron else rest(self.values)
        own = {key: value for key, value in left.items() if key not in INPUTS}
        return completed(own, self.fields, megatron=self.found.megatron)

    def server_of(self, script: ServerScript, knobs: Mapping[str, KnobValue], fields: Mapping[str, Field]) -> Served:
        """Reads the settings of the server's script."""
        if not script.text:
            return server_script.NO_SERVER
        if knobs.get("rollout_mode") != "server":
            raise server_script.unused(script.name, script.training, "--vllm_mode server")
        found = server_knobs(script.text, script.name, fields)
        alone = {key: value[0] for key, value in self.values.items() if isinstance(value, list) and len(value) == 1}
        server_script.check_pair(found, script.name, script.training, alone)
        return replace(
            found, notes=(*server_script.other_model(found, script.name, self.values.get("model")), *found.notes)
        )

    def knobs(self, environment: Mapping[str, str], processes: int) -> tuple[dict[str, KnobValue], Mapping[str, str]]:
        """Returns (the knobs of arguments and variables, the other variables)."""
        for option, word in sharding_of(self.found.launch):
            text = f"--{option}: ms-swift shards by --deepspeed or --fsdp; write that behind the script instead"
            self.faults.add(config_entries.problem(self.name, word.line, text))
        read = megatron.from_keys if self.found.megatron else from_keys
        knobs = all_knobs(lambda keys: read(keys, processes), self.values, self.report)
        for place, text in () if self.found.megatron else self._said_otherwise(knobs, processes):
            self.faults.add(self.problem(f"deepspeed.{place}", text))
        own: Mapping[str, str] = {}
        try:
            more, own = knobs_of(environment)
            knobs.update(more)
        except KnobKeyError as error:
            self.report(error)
        if knobs.get("rollout_mode") == "server" and (self.found.serves or "rollout_data_parallel_size" in knobs):
            size = int(knobs.get("tensor_parallel_size", defaults("ms_swift")["tensor_parallel_size"]))
            knobs["rollout_gpus"] = size * int(knobs.get("rollout_data_parallel_size", 1))
        return knobs, own

    def _said_otherwise(self, knobs: Mapping[str, KnobValue], processes: int) -> Iterator[tuple[str, str]]:
        """Yields (path, problem) for DeepSpeed values that contradict the arguments."""
        unset = {**{key: field.default for key, field in self.fields.items()}, **batch_unset("ms_swift")}
        unset = {key: value for key, value in unset.items() if value is not None}
        unset = {**completed(self.values, self.fields), **unset}
        if "precision" in knobs:
            unset.update(bf16=knobs["precision"] == "bf16", fp16=knobs["precision"] == "fp16")
        return said_otherwise(self.values.get("deepspeed"), self.values, unset, processes)

    def environment(self) -> dict[str, str]:
        """Returns the run's own variables, without variables of the launch."""
        own: dict[str, str] = {}
        for variable, setting in self.found.environment.items():
            if variable in LAUNCH or config_entries.OF_THE_LAUNCH.fullmatch(variable):
                continue
            if not config_entries.NAME.fullmatch(variable):
                text = f"{show(variable)} is not a name an environment can have"
                raise config_entries.problem(self.name, setting.line, text)
            why = config_entries.environment_refusal(variable)
            if why is not None:
                raise config_entries.problem(self.name, setting.line, f"{variable}: {why}")
            own[variable] = setting.words[0] if setting.words else ""
        return own

    def launched(self) -> int:
        """Returns the training processes on all nodes, from the launcher or from ``swift``'s variables; 0 if unset."""
        if self.found.launch.options is not None:
            return self.found.launch.processes
        counted = dict(COUNTING)
        for variable in counted:
            if variable in self.found.hidden:
                return 0
            if variable in self.found.environment:
                entry = self.found.environment[variable]
                text = entry.words[0] if entry.words else ""
                count = whole_number(text)
                if not count:
                    said = f"{variable}: expected a whole number of at least 1, got {show(text)}"
                    raise config_entries.problem(self.name, entry.line, said)
                counted[variable] = count
        return counted["NPROC_PER_NODE"] * counted["NNODES"]

    def named_rewards(self) -> tuple[str, ...]:
        """Returns the names of the rewards."""
        rewards = self.rewards(self.values.get("reward_funcs"))
        if "soft_overlong" in rewards and self.values.get("soft_cache_length") is None:
            raise self.problem("reward_funcs", "soft_overlong needs soft_cache_length")
        return rewards

    def longest(self) -> int | None:
        """Returns the maximum completion length in tokens; of several names set, the last in ``_LENGTHS`` counts."""
        return next((length for key in reversed(_LENGTHS) if (length := self.length(key)) is not None), None)

    def notes(self) -> Iterator[str]:
        """Yields notes on arguments and variables with an unexpected handling."""
        said = ((key, note(key, self.values)) for key in self.values)
        yield from (str(self.problem(key, text)) for key, text in said if text is not None)
        without = {key: own for key, own in self.found.arguments.items() if own.unknown and key in NOT_NEEDED}
        for key, own in {**self.found.hidden, **without}.items():
            if key not in LAUNCH and not config_entries.OF_THE_LAUNCH.fullmatch(key):
                text = f"{key}: {show(own.unknown)} is known to a shell only; a trial does without it"
                yield str(config_entries.problem(self.name, own.line, text))
        yield from folder_notes(self.name, self.found.folder)
        yield from self._uncounted()

    def _uncounted(self) -> Iterator[str]:
        """Yields notes on variables that leave the number of processes unknown, and on variables not read."""
        found = self.found
        alone = (found.launch.options or {}).get(ALONE)
        for key, own in {**found.environment, **found.hidden}.items() if alone else ():
            if alone and key in COUNTING:
                said = f"{key}: only `swift rlhf` reads it, and {alone.text} starts one process; write that or torchrun"
                yield str(config_entries.problem(self.name, own.line, said))
        if found.launch.options is not None:
            yield from uncounted(found.launch, self.name)
            return
        for key in (key for key in COUNTING if key in found.hidden):
            yield uncounted_by(key, found.hidden[key].line, found.hidden[key].unknown, self.name)

    def argument_lines(self) -> Iterator[tuple[str, int]]:
        """Yields (argument, or argument.inner key; its line)."""
        for key, own in self.found.arguments.items():
            yield key, own.line
            if key == "torch_dtype" and self.found.arguments.keys().isdisjoint(("bf16", "fp16")):
                yield "precision", own.line  # which follows from it
            yield from ((f"{key}.{inner}", line) for inner, line in own.inner.items())


def _is_path(words: tuple[str, ...], presets: Mapping[str, Any]) -> bool:
    named = len(words) == 1 and words[0] not in presets and not words[0].lstrip().startswith("{")
    return named and not set(words[0].split()) <= _SHARDING_WORDS

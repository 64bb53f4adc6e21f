"""Reads a user's own verl run: knobs become the baseline, the rest is workload. Pure; opens and evaluates nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from search_spaces.knobs.model import show
from trainer.frameworks.common.config_entries import (
    OF_THE_LAUNCH,
    Imported,
    Reading,
    asked_for,
    at_line,
    check_storable,
    environment_refusal,
    problem,
    unknown,
)
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.script_folder import folder_notes, folder_of
from trainer.frameworks.common.trainer_keys import KeyHandling, all_knobs
from trainer.frameworks.verl import megatron
from trainer.frameworks.verl.key_handling import (
    COMPLETION_LENGTH,
    DATASET,
    GPUS,
    INPUTS,
    MODEL_PATH,
    NODES,
    PROMPT_LENGTH,
    REWARD_NAME,
    REWARD_PATH,
    handling_of,
    part_refusal,
    refusal,
)
from trainer.frameworks.verl.key_tables import BESIDE, NATIVE, REFERENCE
from trainer.frameworks.verl.keys import BATCH, flattened, from_keys, rest
from trainer.frameworks.verl.ray import CPUS, ENVIRONMENT, cpus_of, knobs_of, other_variables
from trainer.frameworks.verl.reading import PROGRAM, Given, read_given
from trainer.frameworks.verl.unknown_keys import check_known, notes_of

_ESTIMATOR = "algorithm.adv_estimator"
SWITCH = "trainer.v1.separate_async.hybrid_rollout.enable_switch"
ENTROPY = "actor_rollout_ref.actor.entropy_coeff"
_GPUS_OF_A_NODE = 8
"""Default of ``trainer.n_gpus_per_node`` in verl 0.9.1."""
_INPUTS: Mapping[str, str] = {
    MODEL_PATH: "model",
    REWARD_PATH: "rewards",
    PROMPT_LENGTH: "max_prompt_length",
    COMPLETION_LENGTH: "max_completion_length",
}
"""Key -> field of a request; prompts and GPUs always come from the command line."""
_BY_ITSELF = {knob: key for knob, key in NATIVE.items() if key not in {*BATCH, *BESIDE.get(knob, ())}}
"""Knob -> its key, for knobs that are one key each and not part of the batch."""
_NO_FILES: Mapping[str, str] = {}
_NO_FIELDS: Mapping[str, Field] = {}
_SEEN = ("data.image_key", "data.video_key", "data.audio_key")
"""Keys that name columns of images, videos or audio."""


def read_keys(text: str, name: str) -> dict[str, Any]:
    """Returns the overrides that the file sets, by their keys. Raises ``ConfigError`` like ``import_config``."""
    return read_given(text, name, folder_of(name)).values


def import_config(
    text: str,
    name: str,
    fields: Mapping[str, Field] = _NO_FIELDS,
    processes: int = 0,
    files: Mapping[str, str] = _NO_FILES,
    *,
    folder: str = ".",
) -> Imported:
    """Reads the file's keys into knobs, inputs and ``passthrough``, as TRL's ``import_config``.

    Args:
        text: as for ``reading.read_given``; ``folder``: the folder of the file.
        fields: not used; verl's keys are a table (``unknown_keys``). ``files`` is not used either.
        processes: GPUs that train; 0 takes the file's number.
    """
    del fields, files
    run = _Run(read_given(text, name, folder), name)
    script, values = run.script, run.values
    run.refuse_parts()
    if _ESTIMATOR not in {**script.values, **script.unknown}:
        said = f"{_ESTIMATOR}: verl trains with GAE where nothing says otherwise; set it to grpo"
        own = any(key.startswith("actor_") for key in values)
        raise problem(name, 0, said if own else f"{said}, or name the file's own --framework")
    gpus = run.faults.of(lambda: processes or run.gpus(), 0)
    asked = run.checked(gpus)
    knobs = all_knobs(lambda keys: from_keys(keys, gpus), values, run.report, BATCH) if gpus else {}
    run.faults.raise_collected()
    return Imported(
        knobs={**knobs, **(knobs_of(script.environment) if script.script else {})},
        passthrough=run.passthrough(),
        model=run.text(MODEL_PATH),
        dataset={key: value for key, value in {**script.unknown, **values}.items() if key in DATASET},
        rewards=run.named_rewards(),
        max_completion_length=run.length(COMPLETION_LENGTH),
        lines=dict(script.lines),
        text=text,
        notes=tuple(run.notes(gpus)),
        max_prompt_length=run.length(PROMPT_LENGTH),
        processes=gpus,
        asked=asked,
    )


class _Run(Reading):
    """State of reading a run of verl."""

    def __init__(self, script: Given, name: str) -> None:
        super().__init__(name)
        self.script, self.lines, self.values = script, script.lines, flattened(script.values)

    def passthrough(self) -> dict[str, Any]:
        """Returns the settings that pass through unchanged, with the script's other variables."""
        passed = {key: value for key, value in rest(self.values).items() if key not in INPUTS}
        passed = {key: value for key, value in passed.items() if handling_of(key) is not KeyHandling.REFUSED}
        own = other_variables(self.script.environment)
        others = {name: value for name, value in own.items() if not OF_THE_LAUNCH.fullmatch(name)}
        return {**passed, ENVIRONMENT: others} if others else passed

    def checked(self, gpus: int) -> dict[str, str]:
        """Returns field of a request -> sentence with line and option, for fields that the command line has to give.

        Collects faults of keys and variables.
        """
        for key in self.script.values:
            with self.faults.caught():
                self._check(key, gpus)
        for key in self.values:
            with self.faults.caught():
                check_known(key, self.script.added, self.name, self.line(key))
        for variable in self.script.environment:
            reason = environment_refusal(variable)
            if reason is not None and not OF_THE_LAUNCH.fullmatch(variable):
                line = self.lines.get(f"env.{variable}", 0)
                self.faults.add(problem(self.name, line, f"{variable}: {reason}"))
        found = {}
        for key, written in self.script.unknown.items():
            field = asked_for(key, _INPUTS, _BY_ITSELF)
            error = unknown(self.name, self.lines[key], key, written, field)
            if field:
                found[field] = str(error)
            elif not key.startswith("env.") and handling_of(key) not in (KeyHandling.MEASURING, KeyHandling.INPUT):
                self.faults.add(error)
        return found

    def refuse_parts(self) -> None:
        """Refuses an engine that trials do not support, before other faults: such an engine has other keys."""
        for key, value in self.script.values.items():
            why = part_refusal(key, value)
            if why is not None:
                raise self.problem(key, why)
        both = megatron.refusal(self.script.values)
        if both is not None:
            raise self.problem(*both)

    def _check(self, key: str, gpus: int) -> None:
        value, together = self.script.values[key], self.script.values.get(NATIVE["sequence_parallel_size"], 1)
        check_storable(key, at_line(value, self.line(key)), self.name)
        why = refusal(key, value, gpus // together if isinstance(together, int) and together > 0 else gpus)
        if why is not None:
            raise self.problem(key, why)

    def gpus(self) -> int:
        """Returns the number of training GPUs on all nodes."""
        visible = self.script.environment.get("CUDA_VISIBLE_DEVICES", "").strip(", ")
        seen = len(visible.split(",")) if visible and GPUS in self.script.unknown else _GPUS_OF_A_NODE
        found = 1
        for key, default in ((GPUS, seen), (NODES, 1)):
            value = self.values.get(key, default)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 65536:
                raise self.problem(key, f"expected a whole number of at least 1, got {show(value)}")
            found *= value
        return found

    def text(self, key: str) -> str | None:
        """Returns the text of ``key``; ``None`` if unset. Raises ``ConfigError`` for an empty text or other value."""
        value = self.values.get(key)
        if value is not None and (not isinstance(value, str) or not value):
            raise self.problem(key, f"expected a path or a name, got {show(value)}")
        return value

    def named_rewards(self) -> tuple[str, ...]:
        """Returns ``path:function`` of verl's custom reward; empty if verl chooses by the data's source."""
        path = self.text(REWARD_PATH)
        return (f"{path}:{self.values.get(REWARD_NAME) or 'compute_score'}",) if path else ()

    def notes(self, gpus: int) -> Iterator[str]:
        """Yields notes on settings with an unexpected handling."""
        yield from self._without()
        yield from notes_of({key: self.line(key) for key in self.values}, self.script.added, self.name)
        for key, text in _unexpected(self.values, gpus):
            yield str(problem(self.name, self.line(key), f"{key}{text}"))

    def _without(self) -> Iterator[str]:
        """Yields notes on settings that a trial ignores: they need a shell to evaluate, or each trial sets its own."""
        script, name = self.script, self.name
        names = [key for key in script.unknown if key.startswith("env.") or handling_of(key) is KeyHandling.MEASURING]
        if names:
            listed = ", ".join(key.removeprefix("env.") for key in names)
            yield str(problem(name, script.lines[names[0]], f"a trial does without {listed}, known to a shell only"))
        for key in (key for key in (NODES, GPUS) if key in script.unknown):
            said = f"{key}: {script.unknown[key]} is known to a shell only; --nodes and --gpus say what is held"
            yield str(problem(name, script.lines[key], said))
        for written, line in script.unset:
            yield str(problem(name, line, f"{written} is not set in the script; a trial is given no words for it"))
        yield from folder_notes(name, script.folder)
        if script.others:
            text = f"it starts {PROGRAM} {len(script.others) + 1} times and says different things; the last is read"
            yield str(problem(name, script.others[0], text))
        launch = [variable for variable in script.environment if OF_THE_LAUNCH.fullmatch(variable)]
        if launch:
            text = f"{', '.join(launch)}: each trial is given the GPUs that the tuner holds, and places of its own"
            yield str(problem(name, script.lines.get(f"env.{launch[0]}", 0), text))


def _unexpected(values: Mapping[str, Any], gpus: int) -> Iterator[tuple[str, str]]:
    """Yields (key, note) for settings with an unexpected effect."""
    nodes, each = values.get(NODES, 1), values.get(GPUS, _GPUS_OF_A_NODE)
    if isinstance(nodes, int) and isinstance(each, int) and gpus not in (0, nodes * each):
        yield NODES, f" {nodes}, {GPUS} {each}: read for {gpus} GPUs; --nodes {nodes} --gpus {each} are the file's own"
    own, needed = values.get(CPUS), cpus_of(values, gpus)
    if isinstance(own, int) and own < needed and values.get(NODES, 1) == 1:
        yield CPUS, f" {own}: verl holds {needed} CPUs in Ray's count and would wait for ever; a trial says more"
    if values.get(NATIVE["entropy_checkpointing"]) is True and not values.get(ENTROPY):
        yield NATIVE["entropy_checkpointing"], f": it does nothing without {ENTROPY}, which is 0"
    if values.get(SWITCH) is True:
        text = ": verl then moves GPUs between training and rollout while it trains; no trial runs so,"
        yield SWITCH, f"{text} and a plan and an export have the split that is set"
    images = next((key for key in _SEEN if values.get(key)), None)
    if images is not None:
        yield images, ": a trial's prompts are text; of a vision-language model it measures the language part"
    for knob, beside in BESIDE.items():
        own, reference = NATIVE[knob], beside[-1]
        differs = values.get(reference) is not None and values.get(reference) != values.get(own)
        if reference.startswith(REFERENCE) and differs:
            yield reference, f": a trial gives the reference model what {own} says"
    sizes = "actor_rollout_ref.rollout.cudagraph_capture_sizes"
    if values.get(sizes):
        yield sizes, ": a trial says the largest, and vLLM chooses those below it"

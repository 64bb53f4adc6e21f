"""Reads a user's Open-R1 recipe, accelerate file and launch: knobs become the baseline, other keys the workload.

Pure; opens and evaluates nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from search_spaces.configuration import KnobValue
from search_spaces.knobs.model import show
from search_spaces.legality.openr1_rules import FRAMEWORK, REWARDS, unknown_rewards
from trainer.frameworks.common import config_entries, deepspeed, server_script
from trainer.frameworks.common.accelerate_file import AccelerateFile, read_file
from trainer.frameworks.common.config_entries import ConfigError, Imported
from trainer.frameworks.common.fields import Field
from trainer.frameworks.common.server_script import Served
from trainer.frameworks.common.trainer_keys import all_knobs
from trainer.frameworks.common.values import KnobKeyError
from trainer.frameworks.open_r1.keys import (
    FIELDS,
    INPUTS,
    OBJECTIVE,
    OWN,
    PROGRAM,
    SERVER_KEYS,
    acting,
    from_keys,
    refusal,
    rest,
    wants_server,
)
from trainer.frameworks.trl.import_config import Config, Script

_SAID_ELSEWHERE = frozenset({"gradient_clipping", "fp16", "bf16", "scheduler"})
"""Keys of DeepSpeed that the recipe also sets; the values are compared."""


_OF_THE_RUN = frozenset(
    {
        *(("steps_per_print",), ("wall_clock_breakdown",), ("zero_allow_untested_optimizer",)),
        (deepspeed.ZERO, "stage3_gather_16bit_weights_on_model_save"),
    }
)
"""Paths in DeepSpeed's configuration on output and saving, without an effect on figures."""


_HALF = ("bf16", "fp16")


@dataclass(frozen=True)
class Accelerate:
    """Result of reading an accelerate file."""

    knobs: Mapping[str, KnobValue]
    file: AccelerateFile = field(default_factory=AccelerateFile)


def read_accelerate(text: str, name: str, files: Mapping[str, str] | None = None) -> Accelerate:
    """Reads the knobs of an accelerate file, which may be empty, and of the DeepSpeed file that it names (``files``).

    Raises ConfigError, with the line, for a key or a value that no trial supports.
    """
    if not text:
        return Accelerate({})
    found = read_file(text, name, files or {})
    if found.fsdp is not None:
        line, why = found.line("distributed_type"), "an Open-R1 trial shards with DeepSpeed, not with FSDP; use zero3"
        raise config_entries.problem(name, line, f"distributed_type: {why}")
    try:
        knobs = deepspeed.zero_knobs({"deepspeed": found.deepspeed})
    except KnobKeyError as error:
        raise found.problem(error.key.removeprefix("deepspeed."), error.text) from None
    for place in _without_knob(found.deepspeed or {}, knobs):
        raise found.problem(place, "an Open-R1 trial's DeepSpeed is not told it; remove it")
    return Accelerate(acting(knobs), found)


def _without_knob(settings: Mapping[str, Any], knobs: Mapping[str, KnobValue]) -> Iterator[str]:
    """Yields dotted paths in DeepSpeed's configuration whose values no knob can set."""
    ours = deepspeed.deepspeed_config(knobs, "cuda")
    for place, value in deepspeed.leaves(deepspeed.zero_rest(settings)):
        if (
            place[0] not in _SAID_ELSEWHERE
            and place not in _OF_THE_RUN
            and value not in (deepspeed.AUTO, deepspeed.at(ours, place))
        ):
            yield ".".join(place)


def precision_beside(recipe: Mapping[str, Any], accelerate: Accelerate) -> dict[str, KnobValue]:
    """Returns the precision of ``mixed_precision`` if the recipe enables none (transformers 4.52)."""
    if accelerate.file.precision not in _HALF or any(recipe.get(key) is True for key in _HALF):
        return {}
    return {"precision": accelerate.file.precision}


def differing(recipe: Mapping[str, Any], accelerate: Accelerate, processes: int) -> Iterator[ConfigError]:
    """Yields an error for each value of DeepSpeed that contradicts the recipe, with its line in the accelerate file."""
    file, half = accelerate.file, str(precision_beside(recipe, accelerate).get("precision", ""))
    computing = {key: recipe.get(key) is True or half == key for key in _HALF}
    unset = {**OBJECTIVE, **deepspeed.batch_unset(FRAMEWORK)}
    for place, text in deepspeed.said_otherwise(file.deepspeed, {**recipe, **computing}, unset, processes):
        yield file.problem(place, text)
    if file.deepspeed is not None and half and recipe.get(half) is False:
        text = f"mixed_precision: {half} here and {half} false in the recipe differ, which transformers refuses beside"
        yield config_entries.problem(file.name, file.line("mixed_precision"), f"{text} DeepSpeed; write one of them")


def notes_beside(recipe: Mapping[str, Any], accelerate: Accelerate) -> Iterator[str]:
    """Yields notes on unexpected combinations of the recipe and the accelerate file."""
    file, half = accelerate.file, str(precision_beside(recipe, accelerate).get("precision", ""))
    if half and file.deepspeed is not None and recipe.get(half) is None:
        text = f"mixed_precision: a trial computes in {half}; transformers refuses it beside DeepSpeed until the recipe"
        yield str(config_entries.problem(file.name, file.line("mixed_precision"), f"{text} says {half}: true too"))


_NOTHING: Mapping[str, str] = {}
DEFAULT_REWARDS = ["accuracy", "format", "tag_count"]
"""Rewards of a recipe that names none (``open_r1/configs.py``, ``GRPOScriptArguments``)."""


def read_keys(text: str, name: str) -> dict[str, Any]:
    """Returns the recipe's keys as plain YAML values, without keys that a trial cannot honour.

    Raises ConfigError for a text that is not a mapping of plain values.
    """
    recipe = _Recipe(text, name)
    return {key: recipe.plain(key) for key in recipe.entries}


def import_config(
    text: str,
    name: str,
    fields: Mapping[str, Field] = FIELDS,
    processes: int = 0,
    files: Mapping[str, str] = _NOTHING,
    *,
    accelerate: str = "",
    accelerate_name: str = "accelerate.yaml",
    server: str = "",
    server_name: str = "the launch of the rollout server",
) -> Imported:
    """Reads the recipe's keys into knobs, inputs and ``passthrough``, as TRL's ``import_config``.

    Args:
        processes: training processes; 0: the accelerate file's number.
        files: text of the DeepSpeed file that the accelerate file names, by ``deepspeed_config_file``.
        accelerate: text of the accelerate file.
    """
    recipe = _Recipe(text, name)
    faults, script = recipe.faults, recipe.script or Script({})
    known = recipe.values = recipe.typed(fields, [key for key in recipe.entries if key in fields])
    for error in script.unread if not accelerate else ():
        faults.add(error)
    beside = faults.of(lambda: read_accelerate(accelerate, accelerate_name, files), Accelerate({}))
    counted = faults.of(lambda: server_script.training_processes(server, server_name), 0)
    launched = script.launch.processes or counted or beside.file.processes or 0
    knobs = recipe.knobs_beside(beside, processes or launched or 1)
    rewards = faults.of(recipe.named_rewards, tuple[str, ...]())
    notes = [*recipe.notes_on(fields, server=wants_server(knobs))]
    faults.raise_collected()
    served = recipe.server_beside(server, server_name, knobs)  # takes a server's share out of the knobs
    own = {"env": recipe.environment(any_name=True)} if "env" in recipe.entries else {}
    return Imported(
        knobs={**knobs, **beside.knobs, **served.knobs},
        passthrough={**{key: value for key, value in rest(known).items() if key not in INPUTS}, **own},
        model=known.get("model_name_or_path"),
        dataset={key: value for key, value in known.items() if fields[key].group == "dataset"},
        rewards=rewards,
        max_completion_length=recipe.length("max_completion_length"),
        lines=recipe.lines,
        text=text,
        notes=(*notes, *notes_beside(known, beside), *served.notes),
        asked=script.asked,
        max_prompt_length=recipe.length("max_prompt_length"),
        processes=launched,
    )


class _Recipe(Config):
    """State of reading a recipe."""

    FRAMEWORK, KIND = OWN, ("recipe", "Open-R1's keys")
    OTHERS: ClassVar[Mapping[str, str]] = {}
    INSIDE: ClassVar[Mapping[tuple[str, str], str]] = {}
    refusal = staticmethod(refusal)

    def knobs_beside(self, accelerate: Accelerate, processes: int) -> dict[str, KnobValue]:
        """Returns the recipe's knobs, with the accelerate file's precision if the recipe sets none."""
        knobs = all_knobs(lambda keys: from_keys(keys, processes), self.values, self.report)
        for error in differing(self.values, accelerate, processes):
            self.faults.add(error)
        return {**knobs, **precision_beside(self.values, accelerate)}

    def server_beside(self, launch: str, name: str, knobs: dict[str, KnobValue]) -> Served:
        """Reads the server's launch; removes a colocated engine's knobs, which no server gets, from ``knobs``."""
        if not wants_server(knobs):
            return server_script.NO_SERVER
        for knob in server_script.OF_COLOCATED.values():
            knobs.pop(knob, None)
        found = server_script.read_server(launch, name, PROGRAM)
        if launch:
            server_script.check_pair(found, name, self.name, self.values)
        other = server_script.other_model(found, name, self.values.get("model_name_or_path"))
        return replace(found, notes=(*other, *server_script.unread_options(launch, name, self.name), *found.notes))

    def named_rewards(self) -> tuple[str, ...]:
        """Returns the names of the rewards. Raises ``ConfigError`` for a name outside Open-R1's registry."""
        names = self.values.get("reward_funcs", DEFAULT_REWARDS)
        strange = [] if isinstance(names, str) else unknown_rewards(names or ())
        if strange:
            advice = config_entries.closest(strange[0], REWARDS, 0.8, f"it has {', '.join(REWARDS)}")
            own = "one of your own is not written there, but given with --reward FILE.py:FUNCTION"
            raise self.problem("reward_funcs", f"Open-R1's registry has no {show(strange[0])}; {advice}; {own}")
        return self.rewards(names)

    def notes_on(self, fields: Mapping[str, Field], *, server: bool) -> Iterator[str]:
        """Yields notes on keys that a trial ignores; collects faults of a script's unknown options."""
        yield from self.script.notes if self.script else ()
        for key in (key for key in self.entries if key not in fields and key != config_entries.ENVIRONMENT):
            advice = config_entries.closest(key, fields, 0.8, "")
            said = "Open-R1 has no such key and passes over it" + (f"; {advice}" if advice else "")
            if self.script:
                self.faults.add(self.problem(key, f"Open-R1's script has no such option; {advice or 'remove it'}"))
            else:
                yield str(config_entries.problem(self.name, self.line(key), f"{show(key)}: {said}"))
        for key in self.values if server else ():
            if key in server_script.OF_COLOCATED:
                yield str(self.problem(key, server_script.NOT_OF_SERVER))
            elif key in SERVER_KEYS:
                yield str(self.problem(key, "a trial starts a rollout server of its own"))

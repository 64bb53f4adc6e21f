"""Reads a user's configuration for a described machine: starts no process and inspects no hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from autotune.domain import Configuration, Resources
from autotune.frameworks import Integration, framework_named
from autotune.specification import build
from autotune.specification.config_faults import UNKNOWN_PROMPT, read_whole, with_placeholders
from autotune.specification.request import Request, ResolvedRequest
from search_spaces.batch import BATCH_KNOBS, training_gpus
from search_spaces.configuration import ModelFacts
from search_spaces.space import SearchSpace
from trainer.child.contract import Result
from trainer.frameworks.common.exported import Export, ExportRequest


class Recorded:
    """Lists a framework's recorded keys, in the version that this program was written for."""

    def known_fields(self, framework: str = "trl") -> Mapping[str, Any] | None:
        """Returns the recorded fields."""
        return framework_named(framework).recorded_fields

    def describe(self, keys: Mapping[str, Any], framework: str = "trl") -> Result:
        """Returns the recorded fields; the framework's own check is not made."""
        del keys
        return Result(ok=True, data={"fields": self.known_fields(framework)})


@dataclass(frozen=True)
class Paper:
    """A configuration on a described machine."""

    request: ResolvedRequest
    framework: Integration
    space: SearchSpace
    machine: Resources
    notes: list[str] = field(default_factory=list)
    """Sentences on values that may surprise the user."""
    left_out: str = ""
    """Sentence of ``build.planned`` on knobs left out."""
    prompt: int | None = None
    """Tokens of the longest prompt; ``None`` if unknown."""
    own_data: bool = True
    """True if the prompts are those of the configuration."""

    def baseline(self, facts: ModelFacts) -> Configuration:
        """Returns the complete configuration.

        Raises:
            UsageError: no trial could run it.
        """
        resources = build.resources_for(self.machine, self.request, facts, {})
        baseline = build.baseline_of(self.request, self.space, resources)
        build.check_passthrough(self.request, baseline, resources)
        build.check_baseline(self.request, baseline, resources)
        return baseline

    def exported(self) -> Export:
        """Returns the files that train with the configuration, as texts.

        Raises:
            UsageError: no trial could run it, or the framework cannot express it.
        """
        own, baseline = self.request, self.baseline(ModelFacts())
        said = Configuration({n: v for n, v in baseline.items() if n in own.baseline or n in BATCH_KNOBS})
        wanted = ExportRequest(
            title=f"{own.config_name}, not measured",
            configuration=said,
            python=own.python,
            model=own.model,
            rewards=own.rewards,
            rows_per_update=own.rows_per_update,
            max_completion_length=own.max_completion_length,
            passthrough=own.passthrough,
            device=self.machine.device,
            max_prompt_length=self.prompt,
            world_size=training_gpus(baseline, self.machine),
            nodes=self.machine.nodes,
            user_config=own.config or "",
            own_data=self.own_data,
            folder=own.folder,
            accelerate=own.accelerate,
            checkout=own.checkout,
        )
        return self.framework.export(wanted)


def read(request: Request, machine: Resources, *, exported: bool = False) -> Paper:
    """Reads the configuration of ``request`` as ``start`` would read it on ``machine``.

    Args:
        exported: the configuration must name a reward; otherwise a placeholder replaces it. Prompts are never read.

    Raises:
        UsageError: with every fault of it.
        SpaceError: the space cannot be read.
    """
    framework, notes = framework_named(request.framework), list[str]()
    machine = replace(machine, framework=framework.name)
    own_reward = exported and framework.names_reward
    asked = replace(with_placeholders(request), model=request.model)
    asked = replace(asked, rewards=request.rewards) if own_reward else asked
    whole = read_whole(asked, Recorded(), machine, "", notes.append)
    whole = whole if own_reward else replace(whole, rewards=request.rewards)
    prompt, whole = whole.max_prompt_length, replace(whole, max_prompt_length=whole.max_prompt_length or UNKNOWN_PROMPT)
    own = replace(request, own_dataset=whole.own_dataset, own_rewards=not request.rewards)
    space, left_out = build.planned(build.load_space(whole, machine), framework, server=True)
    return Paper(whole, framework, space, machine, notes, left_out, prompt, own.trains_on_own_data)

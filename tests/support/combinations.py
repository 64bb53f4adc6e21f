"""A configuration on a machine, as the random ones of a framework: the rules it breaks, its rows, its export."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from search_spaces.batch import model_parallel, training_gpus
from search_spaces.configuration import Configuration, ModelFacts, Resources
from search_spaces.legality import RULES, Case, Reference
from trainer.child.contract import RewardSpec
from trainer.frameworks.common.exported import ExportRequest

PROMPT, COMPLETION = 512, 1024
LONGEST = PROMPT + COMPLETION
REWARDS = {
    "verl": (RewardSpec("reasoning_gym", "chain_sum", options={"min_terms": 2}),),
    "ms_swift": (RewardSpec("ms_swift", "accuracy"),),
}


@dataclass(frozen=True)
class Combination:
    """A configuration on a machine."""

    configuration: Configuration
    resources: Resources

    @property
    def rules(self) -> set[str]:
        """Those it breaks, against itself as the baseline."""
        reference = Reference.own(self.configuration, self.resources)
        case = Case(self.configuration, self.resources, reference)
        return {rule.name for rule in RULES if rule.judge(case) is not None}

    @property
    def training(self) -> int:
        """GPUs that train."""
        return training_gpus(self.configuration, self.resources)

    @property
    def ranks(self) -> int:
        return max(1, self.training // model_parallel(self.configuration))

    @property
    def rows(self) -> int:
        values = self.configuration
        return self.ranks * int(values["micro_batch_size"]) * int(values["gradient_accumulation_steps"])

    def wanted(self, **changes: Any) -> ExportRequest:
        given: dict[str, Any] = {
            "title": "a combination",
            "configuration": self.configuration,
            "python": f"/envs/{self.resources.framework.removeprefix('ms_')}/bin/python",
            "model": "/models/small",
            "rewards": REWARDS[self.resources.framework],
            "rows_per_update": self.rows,
            "max_completion_length": COMPLETION,
            "max_prompt_length": PROMPT,
            "device": "cuda",
            "world_size": self.training,
        }
        return ExportRequest(**{**given, **changes})


def machine(framework: str, gpus: int, model: ModelFacts, nodes: int = 1) -> Resources:
    return Resources(
        gpus=gpus,
        nodes=nodes,
        device="cuda",
        framework=framework,
        compute_capability=(9, 0),
        max_prompt_length=PROMPT,
        max_completion_length=COMPLETION,
        model=model,
    )

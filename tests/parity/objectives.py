"""TRL's objectives, and what each averages over: there a knob that cuts the batch changes what is learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.parity.running import Case

CUT = {"micro_batch_size": 4}
PARTS = {**CUT, "steps_per_generation": 2}


@dataclass(frozen=True)
class Objective:
    """One of TRL's, by the keys that choose it."""

    name: str
    keys: Mapping[str, Any]
    averages_over: frozenset[str]
    """``micro-batch``: over the rows of each; ``generation``: over those of each. Else over rows, or an update."""

    @property
    def cases(self) -> tuple[Case, Case, Case]:
        """An update in one micro-batch; in four; in four of two generations."""
        return (
            Case(self.name, {}, self.keys),
            Case(f"{self.name}-cut", CUT, self.keys),
            Case(f"{self.name}-parts", PARTS, self.keys),
        )


_ROWS: frozenset[str] = frozenset()
_GENERATION = frozenset({"generation"})
_MICRO = frozenset({"micro-batch", "generation"})
OBJECTIVES = (
    Objective("dapo", {"loss_type": "dapo"}, _GENERATION),
    Objective("cispo", {"loss_type": "cispo"}, _GENERATION),
    Objective("vespo", {"loss_type": "vespo"}, _GENERATION),
    Objective("grpo", {"loss_type": "grpo"}, _ROWS),
    Objective("dr_grpo", {"loss_type": "dr_grpo"}, _ROWS),
    Objective("sapo", {"loss_type": "sapo"}, _ROWS),
    Objective("luspo", {"loss_type": "luspo", "importance_sampling_level": "sequence"}, _ROWS),
    Objective("bnpo", {"loss_type": "bnpo"}, _MICRO),
    Objective("entropy-bonus", {"loss_type": "grpo", "entropy_coef": 0.1}, _MICRO),
    Objective("entropy-quantile", {"loss_type": "grpo", "top_entropy_quantile": 0.5}, _MICRO),
    Objective("batch-scale", {"loss_type": "grpo", "scale_rewards": "batch"}, _GENERATION),
    Objective(
        "normalised-rewards", {"loss_type": "grpo", "multi_objective_aggregation": "normalize_then_sum"}, _GENERATION
    ),
)

"""The reward of a trial; verl loads it by ``reward.custom_reward_function.path``."""

from __future__ import annotations

from typing import Any

from autotune_in_verl import ours  # type: ignore[import-not-found]

scoring = ours("scoring")


def compute_score(
    data_source: Any, solution_str: str, ground_truth: str, extra_info: Any = None, **_others: Any
) -> float:
    """Returns the score of one completion."""
    del data_source
    return float(scoring.score(solution_str, ground_truth, extra_info))

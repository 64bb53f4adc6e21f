"""What to try next: the only room that imports optuna."""

from autotune.proposals.proposer import make_proposer

__all__ = ["make_proposer"]

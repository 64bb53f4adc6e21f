"""What to try next: the only room that imports optuna."""

from autotune.proposals.proposer import make_proposer, named_sampler

__all__ = ["make_proposer", "named_sampler"]

"""What to try next: the only room that imports optuna."""

from autotune.proposals.grey_box import GreyBoxSampler
from autotune.proposals.making import make_proposer, named_sampler
from autotune.proposals.sweep import SweepProposer

__all__ = ["GreyBoxSampler", "SweepProposer", "make_proposer", "named_sampler"]

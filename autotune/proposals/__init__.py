"""Proposes the next configuration; the only room that imports optuna."""

from autotune.proposals.optuna_storage import write_storage
from autotune.proposals.proposer import make_proposer
from autotune.proposals.samplers import named_sampler
from autotune.proposals.samplers.grey_box import GreyBoxSampler
from autotune.proposals.sweep import SweepProposer

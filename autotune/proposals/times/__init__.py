"""The phase-time model: how long a cycle takes, phase by phase, before and while trials are run."""

from autotune.proposals.times.features import Features, features
from autotune.proposals.times.machine import SHEETS, Hardware, presumed, probed, sheet_of
from autotune.proposals.times.model import PhaseTimes, PredictedCycle, carried_over, predicted
from autotune.proposals.times.roofline import flat, roofline

__all__ = [
    "SHEETS",
    "Features",
    "Hardware",
    "PhaseTimes",
    "PredictedCycle",
    "carried_over",
    "features",
    "flat",
    "predicted",
    "presumed",
    "probed",
    "roofline",
    "sheet_of",
]

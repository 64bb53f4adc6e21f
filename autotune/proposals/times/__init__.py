"""The phase-time model: predicts the duration of a cycle by phase, before and during the trials."""

from autotune.machine.data_sheets import SHEETS, Hardware, presumed, probed, sheet_of
from autotune.proposals.times.features import features
from autotune.proposals.times.model import PhaseTimes, carried_over
from autotune.proposals.times.starts import first_cycle_s

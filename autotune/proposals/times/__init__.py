"""The phase-time model: how long a cycle takes, phase by phase, before and while trials are run."""

from autotune.machine.data_sheets import SHEETS, Hardware, presumed, probed, sheet_of
from autotune.proposals.times.features import features
from autotune.proposals.times.model import PhaseTimes, carried_over
from autotune.proposals.times.starts import first_cycle_s

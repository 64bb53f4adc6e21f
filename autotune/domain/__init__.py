"""Frozen values of the tuner: studies, trials, outcomes and recommendations.

Durations are in seconds, memory in bytes, lengths in tokens; timestamps are UTC seconds since the epoch.
"""

from autotune.domain.outcomes import Ceiling, Outcome
from autotune.domain.recommendations import ALONE, ENOUGH_CYCLES, Gain, LengthFigure, Recommendation, RecommendationRow
from autotune.domain.studies import (
    Budget,
    EarlierStudy,
    Event,
    Fingerprint,
    Objective,
    PriorKnowledge,
    Study,
    StudySpec,
    StudyStatus,
    Workload,
)
from autotune.domain.trials import Trial, TrialDraft, TrialKind, TrialState
from search_spaces.configuration import Configuration, Resources
from trainer.child.contract import (
    CycleKind,
    CycleRecord,
    FailureReason,
    GpuUse,
    Peaks,
    Phase,
    Pool,
    ProcessUse,
    Protocol,
    RewardSpec,
    StartupRecord,
)

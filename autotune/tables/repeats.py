"""Repeats of the rows of a sweep, each measured in a fresh process."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.domain import Configuration, Study, Trial, TrialDraft, TrialKind
from autotune.statistics.lengths import replayed

SOURCE = "verify/repeat"
"""``Trial.source`` of a repeat."""


def draft(study: Study, trials: Sequence[Trial], configuration: Configuration) -> TrialDraft:
    """Returns a repeat with a search trial's protocol, at the lengths recorded for the configuration."""
    lengths = replayed(study, trials, configuration)
    protocol = replace(study.spec.protocol, natural=0, maximum=0, double=0, lengths=lengths)
    return study.draft(TrialKind.VERIFY, configuration, protocol, SOURCE)

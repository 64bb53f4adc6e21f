"""Drafts of the baseline and of retries, and the measuring protocol of the next trial. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from autotune.domain import Configuration, CycleKind, Protocol, Study, Trial, TrialDraft, TrialKind
from autotune.statistics import early_stopping, retries
from autotune.statistics.lengths import MANY_ROWS, NATURAL_CYCLES, replayed
from search_spaces.knobs import moving_lengths
from search_spaces.native import emulated

RESTLESS = 0.5
"""Share of disturbed cycles above which a repeat is more likely to be disturbed again than to be clean."""
JUDGED_FROM = 4
"""Fewest cycles from which that share is judged; a first trial has more."""
MOST_REPEATS = 12
"""Most repeated cycles of a trial that counts for a gain."""


def baseline_draft(study: Study) -> TrialDraft:
    """Returns trial 0: the user's present configuration, with natural-length cycles that provide the lengths."""
    return study.draft(TrialKind.BASELINE, study.spec.baseline, protocol_of(study), "baseline")


def retry_draft(study: Study, trials: Sequence[Trial], configuration: Configuration) -> TrialDraft:
    """Returns a repeat of a tried configuration, measured as a search trial but outside the search."""
    return study.draft(TrialKind.VERIFY, configuration, protocol_of(study, trials, configuration), retries.SOURCE)


def protocol_of(study: Study, trials: Sequence[Trial] = (), configuration: Configuration | None = None) -> Protocol:
    """Returns the protocol of the next measured trial of ``configuration``, or of the baseline: recorded lengths, or
    natural cycles that provide them."""
    lengths = replayed(study, trials, configuration)
    if lengths:
        return replace(study.spec.protocol, natural=0, lengths=lengths)
    natural = 1 if study.spec.workload.rows_per_update >= MANY_ROWS else NATURAL_CYCLES
    return replace(study.spec.protocol, natural=study.spec.protocol.natural or natural)


def search_protocol(study: Study, trials: Sequence[Trial], configuration: Configuration | None = None) -> Protocol:
    """Returns the protocol of the next search trial, without repeats if this machine mostly disturbs repeats too.

    A trial with emulated FP8, which no look could end, or with its own lengths has no looks and the specified number of
    cycles.
    """
    protocol = protocol_of(study, trials, configuration)
    same_lengths = configuration is None or moving_lengths(configuration) == moving_lengths(study.spec.baseline)
    if configuration is None or (same_lengths and not emulated(configuration)):
        protocol = early_stopping.with_looks(protocol)
    return without_repeats(protocol, trials)


def without_repeats(protocol: Protocol, trials: Sequence[Trial]) -> Protocol:
    """Returns ``protocol`` without repeats of disturbed cycles, on a machine that disturbs most repeats too."""
    return replace(protocol, max_repeats=0) if is_noisy_machine(trials) else protocol


def with_repeats(protocol: Protocol, trials: Sequence[Trial]) -> Protocol:
    """Returns ``protocol`` with the repeats that undisturbed cycles need on this machine, times 1.5: n p / (1 - p) for
    n cycles of which a share p is disturbed (negative binomial). No repeats if the result is far above
    ``MOST_REPEATS``."""
    share = disturbed_share(trials)
    needed = 1.5 * protocol.recorded * share / max(1e-9, 1.0 - share)
    repeats = max(protocol.max_repeats, math.ceil(needed)) if needed < 3 * MOST_REPEATS else 0
    return replace(protocol, max_repeats=min(MOST_REPEATS, repeats))


def is_noisy_machine(trials: Sequence[Trial]) -> bool:
    """Tells whether more than ``RESTLESS`` of the repeatable cycles were disturbed."""
    return disturbed_share(trials) > RESTLESS


def disturbed_share(trials: Sequence[Trial]) -> float:
    """Returns the share of cycles after the warm-up in which other programs took time; 0 before ``JUDGED_FROM``."""
    of_rank_0 = ((t.protocol, c) for t in trials for c in t.cycles if c.rank == 0)
    judged = [(how, c) for how, c in of_rank_0 if c.cycle_kind is not CycleKind.WARMUP]
    return sum(how.objects(c.outside_cpu) for how, c in judged) / len(judged) if len(judged) >= JUDGED_FROM else 0.0

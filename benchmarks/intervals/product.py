"""All that is asked of the product: what comes next, and what it says of the answer's gain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from autotune.domain import Configuration, Protocol, Trial
from autotune.statistics import evidence
from autotune.statistics.lengths import NATURAL_CYCLES
from autotune.study import confirmation, protocols

ROUNDS = confirmation.MAX_ROUNDS
BASELINE = Protocol(natural=NATURAL_CYCLES)
ANSWER = Protocol(natural=1, maximum=1, double=1)
"""Of ``study.confirmation.protocol_for``, where lengths are recorded."""


class Statement(NamedTuple):
    """A gain as the product states it; natural logarithms of the ratio."""

    middle: float
    low: float
    high: float
    faster: bool
    """The answer would be recommended."""


def stated(trials: Sequence[Trial], answer: Configuration, baseline: Configuration) -> Statement | None:
    """What a study with these trials says; ``None``: nothing."""
    gain = evidence.gain(trials, answer, baseline)
    if gain is None:
        return None
    return Statement(_log(gain.value), _log(gain.low), _log(gain.high), gain.low > 0.0 and gain.decided)


def _log(gain: float) -> float:
    return math.log1p(gain) if gain > -1.0 else -math.inf


def fastest(trials: Sequence[Trial]) -> Configuration:
    """The configuration that measured fastest."""
    return max(trials, key=lambda trial: evidence.merit([trial])).configuration


def searching(trials: Sequence[Trial]) -> Protocol:
    """Of the next search trial, without interim looks."""
    return protocols.without_repeats(Protocol(), trials)


def next_of_round(
    trials: Sequence[Trial], answer: Configuration, baseline: Configuration
) -> tuple[int, Configuration, Protocol] | None:
    """The round that is owed, what of it runs next, and how; ``None`` once the gain is decided, or after ``ROUNDS``."""
    owed = confirmation._owed(trials, [answer], baseline)
    if not owed:
        return None
    pair, configuration = owed[0]
    protocol = confirmation.of_reference(Protocol()) if configuration == baseline else ANSWER
    return pair, configuration, protocols.with_repeats(protocol, trials)

"""Plans a long run at natural lengths, and compares its tokens/hour with the stated figure. Pure.

``length_model`` converts the stated figure to the lengths of each cycle.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from autotune.domain import Configuration, CycleKind, CycleRecord, Study, Trial, TrialDraft, TrialKind
from autotune.errors import UsageError
from autotune.statistics.distributions import t95
from autotune.verify.compare_run import TOLERANCE, longest_rows
from autotune.verify.length_model import LengthPrediction

SOURCE = "verify/steps"
"""``Trial.source`` of a long run. Without a cycle at the recorded lengths, it has no figure of its own."""

MOST_CYCLES = 10_000
LEAST_CYCLES = 3
_TIMES = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,3})?)x")
_STEPS = re.compile(r"[0-9]{1,7}")


@dataclass(frozen=True)
class PhaseGap:
    """Measured and predicted seconds of one phase, averaged over the compared cycles."""

    phase: str
    predicted: float
    measured: float

    @property
    def excess(self) -> float:
        """Measured minus predicted seconds; positive if the phase took longer."""
        return self.measured - self.predicted


@dataclass(frozen=True)
class LongVerdict:
    """A long run compared with the prediction and with the unconverted figure. Tokens/hour, tokens and seconds."""

    stated: float
    """Stated tokens/hour, at the recorded lengths."""
    predicted: float
    """Stated tokens/hour, converted to the lengths of each cycle."""
    measured: float
    """Measured tokens/hour, over the same cycles as ``predicted``."""
    raw: float
    """Measured tokens/hour over all cycles, disturbed ones included."""
    low: float
    high: float
    """95 % interval of the ratio, from the spread of the cycles."""
    cycles: int
    updates: int
    disturbed: int
    """Cycles that other programs or a changed clock disturbed; not compared unless most cycles were disturbed."""
    compared: int
    """Number of compared cycles."""
    stated_length: float
    observed_length: float
    stated_longest: float
    observed_longest: float
    """Mean of the longest completion of a generation, in tokens."""
    early: float
    late: float
    """Measured ÷ predicted, of the first and of the last third of the cycles."""
    phases: tuple[PhaseGap, ...]
    """Measured and predicted seconds by phase, largest difference first."""
    rests_on: str

    @property
    def ratio(self) -> float:
        """Measured ÷ predicted tokens/hour."""
        return self.measured / self.predicted

    @property
    def agrees(self) -> bool:
        """True if measured and predicted differ by at most ``TOLERANCE``."""
        return abs(self.ratio - 1.0) <= TOLERANCE

    @property
    def reason(self) -> str:
        """The phases that differ from the prediction, with the difference; largest first."""
        total = sum(gap.excess for gap in self.phases)
        alike = [gap for gap in self.phases if gap.excess * total > 0]
        said = [
            f"{gap.phase} took {abs(gap.excess):.2f} s a cycle {'longer' if gap.excess > 0 else 'less'} than predicted "
            f"({gap.measured:.2f} s instead of {gap.predicted:.2f} s)"
            for gap in alike
            if abs(gap.excess) >= 0.1 * abs(total)
        ]
        return "; ".join(said) or "no phase differs"


def cycles_asked(text: str, behind: int, updates_a_cycle: int) -> int:
    """Parses ``--steps`` to a number of cycles: ``10x`` is ten times the ``behind`` cycles of the figure, ``200`` is
    200 updates.

    Raises:
        UsageError: the text is neither, or gives too few or too many cycles.
    """
    times, steps = _TIMES.fullmatch(text.strip()), _STEPS.fullmatch(text.strip())
    if times is not None:
        count = math.ceil(float(times[1]) * behind)
    elif steps is not None:
        count = math.ceil(int(steps[0]) / updates_a_cycle)
    else:
        raise UsageError(
            f"--steps takes a number of steps (200) or a multiple of what was measured (10x), not {text!r}"
        )
    if not LEAST_CYCLES <= count <= MOST_CYCLES:
        raise UsageError(
            f"--steps {text} is {count} cycles; at least {LEAST_CYCLES} and at most {MOST_CYCLES:,} are run"
        )
    return count


def draft(study: Study, configuration: Configuration, cycles: int) -> TrialDraft:
    """Returns a trial in a fresh process: the usual warm-up, then ``cycles`` cycles at natural lengths."""
    protocol = replace(study.spec.protocol, natural=cycles, recorded=0, maximum=0, double=0, lengths=study.lengths)
    return study.draft(TrialKind.VERIFY, configuration, protocol, SOURCE)


def alike(trials: Iterable[Trial], configuration: Configuration) -> list[Trial]:
    """Returns the feasible short trials of a configuration, which the length model of its long run is fitted to."""
    return [t for t in trials if t.configuration == configuration and t.feasible and not is_long(t)]


def is_long(trial: Trial) -> bool:
    """Tells whether ``verify --steps`` ran this trial."""
    return trial.source == SOURCE


def natural(trial: Trial) -> list[CycleRecord]:
    """Returns the accepted natural-length cycles of rank 0."""
    return [c for c in trial.cycles if c.cycle_kind is CycleKind.NATURAL and c.accepted and c.rank == 0]


def compare(prediction: LengthPrediction, cycles: Sequence[CycleRecord]) -> LongVerdict | None:
    """Compares a long run with its prediction; ``None`` with fewer than ``LEAST_CYCLES`` cycles."""
    cycles = [c for c in cycles if c.completion_tokens > 0 and c.lengths]
    if len(cycles) < LEAST_CYCLES:
        return None
    quiet = [c for c in cycles if not c.noisy]
    counted = quiet if len(quiet) >= max(LEAST_CYCLES, len(cycles) / 2) else cycles
    expected = [prediction.seconds(c) for c in counted]
    ratios = [sum(e.values()) / c.seconds for c, e in zip(counted, expected, strict=True)]
    tokens, seconds = sum(c.completion_tokens for c in counted), sum(c.seconds for c in counted)
    predicted_s = sum(sum(e.values()) for e in expected)
    spread = t95(len(ratios) - 1) * statistics.stdev(map(math.log, ratios)) / math.sqrt(len(ratios))
    third = max(1, len(counted) // 3)
    lengths = [n for c in counted for n in c.lengths]
    generations = max(1, prediction.shape.rows // prediction.shape.generation_rows)
    return LongVerdict(
        stated=prediction.tokens_per_hour,
        predicted=3600.0 * tokens / predicted_s,
        measured=3600.0 * tokens / seconds,
        raw=3600.0 * sum(c.completion_tokens for c in cycles) / sum(c.seconds for c in cycles),
        low=predicted_s / seconds * math.exp(-spread),
        high=predicted_s / seconds * math.exp(spread),
        cycles=len(cycles),
        updates=sum(c.updates for c in cycles),
        disturbed=sum(c.noisy for c in cycles),
        compared=len(counted),
        stated_length=prediction.mean_length,
        observed_length=statistics.fmean(lengths),
        stated_longest=prediction.at_once.longest / generations,
        observed_longest=statistics.fmean([n for c in counted for n in longest_rows(c.lengths, prediction.shape)]),
        early=_ratio(counted[:third], expected[:third]),
        late=_ratio(counted[-third:], expected[-third:]),
        phases=_gaps(counted, expected),
        rests_on=prediction.rests_on,
    )


def _ratio(cycles: Sequence[CycleRecord], expected: Sequence[dict[str, float]]) -> float:
    return sum(sum(e.values()) for e in expected) / sum(c.seconds for c in cycles)


def _gaps(cycles: Sequence[CycleRecord], expected: Sequence[dict[str, float]]) -> tuple[PhaseGap, ...]:
    names = dict.fromkeys([*(p for e in expected for p in e), *(p for c in cycles for p in c.phases)])
    found = [
        PhaseGap(
            name,
            statistics.fmean(e.get(name, 0.0) for e in expected),
            statistics.fmean(c.phases.get(name, 0.0) for c in cycles),
        )
        for name in names
    ]
    return tuple(sorted(found, key=lambda gap: -abs(gap.excess)))

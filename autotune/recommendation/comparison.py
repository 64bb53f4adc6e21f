"""Compares two trials, or the best configurations of two studies. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.domain import Configuration, Gain, RecommendationRow, Study, Trial
from autotune.domain.differences import differing
from autotune.insights.usage import TrialUse, use_of
from autotune.recommendation.reading import StudyReading
from autotune.recommendation.recommend import row_of
from autotune.recommendation.whole_run import Estimate
from autotune.statistics import evidence
from autotune.statistics.lengths import completions, spread_words
from autotune.wording.numbers import counted, format_size, rate, signed_percent
from autotune.wording.sentences import gain_words
from autotune.wording.text import brief, clean, knob_value
from search_spaces.configuration import KnobValue
from search_spaces.knobs import moving_lengths
from search_spaces.native import emulated
from trainer.child.contract import encode

_PLACES = ("prompts",)
"""Fields of a workload that are paths; their content is compared by its digest."""


@dataclass(frozen=True)
class ComparedSide:
    """One side of a comparison: a trial, or all trials that measured a study's best configuration."""

    label: str
    study: str
    framework: str
    """Name of the framework in the catalogue; it defines the value of a knob that is not set."""
    configuration: Configuration
    trials: tuple[int, ...]
    outcome: str
    """Outcome as a sentence; ``OK`` if the trials ended well."""
    rows_per_update: int
    speed: Estimate | None
    """Tokens/hour; ``None`` if nothing was measured."""
    cycle_s: float | None
    """Mean seconds of a speed cycle."""
    cycles: int
    """Undisturbed cycles behind the figures; 0 if the speed is a lower bound."""
    disturbed: int
    """Disturbed timed cycles, which are left out."""
    cycle_tokens: float | None
    """Mean completion tokens of a speed cycle."""
    phases: Mapping[str, float]
    """Mean seconds of a speed cycle by phase."""
    startup: Mapping[str, float]
    """Mean seconds of the start-up by part."""
    host_peak: int | None
    """Highest host memory in bytes."""
    device_peak: int | None
    """Highest device memory in bytes."""
    use: TrialUse | None
    """Resource use in the speed cycles; ``None`` if it was not recorded."""


@dataclass(frozen=True)
class Comparison:
    """Two sides and the conclusions from them."""

    a: ComparedSide
    b: ComparedSide
    ratio: Gain | None
    """Tokens/hour of b over a, minus 1; ``None`` for one configuration, or if a side has no undisturbed cycle."""
    differs: tuple[str, ...] = ()
    """Other differences, as ``path: a -> b``; unless empty, the ratio also contains their effect."""
    baselines: tuple[ComparedSide, ComparedSide] | None = None
    """Baselines of two studies, which show how similar machines and workloads are."""

    @property
    def changes(self) -> Mapping[str, tuple[KnobValue | None, KnobValue | None]]:
        """Knobs that differ, as (a, b)."""
        return self.a.configuration.difference(self.b.configuration)

    @property
    def comparable(self) -> bool:
        """True if only knobs differ."""
        return not self.differs

    @property
    def decided(self) -> bool:
        """True if the interval of the ratio excludes zero."""
        return self.ratio is not None and self.ratio.decided


def compare_trials(record: StudyReading, a: Trial, b: Trial) -> Comparison:
    """Compares two trials of one study: figures of the two runs, and the gain of their configurations by all runs."""
    here, there = (_side(f"#{t.number}", record, t.configuration, [t]) for t in (a, b))
    differs = []
    if a.rows_per_update != b.rows_per_update:
        differs.append(f"rows per update: {a.rows_per_update} -> {b.rows_per_update}")
    if moving_lengths(a.configuration) != moving_lengths(b.configuration):
        before, after = (spread_words(completions([t])) if t.speed_cycles() else "not measured" for t in (a, b))
        differs.append(f"completion lengths: {before} -> {after}")
    ratio = evidence.gain(record.trials, b.configuration, a.configuration)
    return Comparison(here, there, ratio, tuple(differs))


def compare_studies(a: StudyReading, b: StudyReading) -> Comparison:
    """Compares the first recommended rows of two studies, and their baselines."""
    best = tuple(_best(record) for record in (a, b))
    base = tuple(_runs(record, record.study.spec.baseline, "baseline") for record in (a, b))
    return Comparison(best[0], best[1], _ratio(*best), differences(a, b), (base[0], base[1]))


def differences(a: StudyReading, b: StudyReading) -> tuple[str, ...]:
    """Lists the differences that affect the figures of two studies, except knobs, as ``path: a -> b``."""
    found = differing(_workload(a.study), _workload(b.study), "workload")
    if a.study.spec.framework != b.study.spec.framework:
        found.append(f"framework: {a.study.spec.framework} -> {b.study.spec.framework}")
    if a.fingerprint is None or b.fingerprint is None:
        if a.fingerprint is not b.fingerprint:
            found.append("fingerprint: known of one study only")
    else:
        found += differing(encode(a.fingerprint.hardware), encode(b.fingerprint.hardware), "hardware")
        found += differing(encode(a.fingerprint.software), encode(b.fingerprint.software), "software")
    if a.study.spec.memory_limit != b.study.spec.memory_limit:
        limits = (format_size(s.study.spec.memory_limit) if s.study.spec.memory_limit else "none" for s in (a, b))
        found.append(f"memory limit: {' -> '.join(limits)}")
    if sorted(a.study.lengths) != sorted(b.study.lengths):
        found.append(f"recorded lengths: {_lengths(a.study)} -> {_lengths(b.study)}")
    return tuple(found)


def verdict(comparison: Comparison) -> str:
    """States the ratio and its certainty in one sentence."""
    a, b, found = comparison.a, comparison.b, comparison.ratio
    names = f"{clean(b.label)} over {clean(a.label)}"
    if found is None and not comparison.changes and not comparison.differs:
        ran = "" if a.speed is None or b.speed is None else f" ({signed_percent(b.speed.value / a.speed.value - 1.0)})"
        return f"{names}: two runs of one configuration{ran}, which is no gain"
    if found is None:
        bad = [f"{clean(s.label)}: {_why_none(s)}" for s in (a, b) if not s.cycles or s.outcome == "emulated"]
        return f"{names}: no ratio; {'; '.join(bad) or 'a run of one of the two configurations failed'}"
    doubt = "it includes no difference" if found.low <= 0 <= found.high else "too few undisturbed cycles to decide"
    by = f", by {counted(found.pairs, 'A/B round')}" if found.pairs else ""
    return f"{names}: {gain_words(found)} tokens/hour{by}{'' if comparison.decided else f'; {doubt}'}"


def _why_none(side: ComparedSide) -> str:
    return clean(side.outcome) if side.speed is None or side.outcome == "emulated" else "all its cycles were disturbed"


def _ratio(a: ComparedSide, b: ComparedSide) -> Gain | None:
    """Computes the gain of ``b`` over ``a`` from two studies; ``None`` if a side was not measured or emulated FP8."""
    cycles = min(a.cycles, b.cycles)
    if a.speed is None or b.speed is None or not cycles or emulated(a.configuration) or emulated(b.configuration):
        return None
    middle = math.log(b.speed.value / a.speed.value)
    error = math.hypot(*(math.log(side.speed.high / side.speed.value) for side in (a, b) if side.speed))
    return Gain(math.expm1(middle), math.expm1(middle - error), math.expm1(middle + error), 0, cycles)


def _workload(study: Study) -> dict[str, Any]:
    found: dict[str, Any] = encode(study.spec.workload)
    return {key: value for key, value in found.items() if key not in _PLACES}


def _lengths(study: Study) -> str:
    mean = statistics.fmean(study.lengths or [0])
    return f"mean {mean:.1f} tokens over {len(study.lengths)} rows" if study.lengths else "none yet"


def _best(record: StudyReading) -> ComparedSide:
    spec, row = record.study.spec, record.first_row
    return _runs(record, spec.baseline if row is None else row.configuration, spec.name)


def _runs(record: StudyReading, configuration: Configuration, label: str) -> ComparedSide:
    held = evidence.feasible(record.trials).get(configuration)
    runs = evidence.basis(held) if held else [t for t in record.trials if t.configuration == configuration]
    return _side(label, record, configuration, runs)


def _side(label: str, record: StudyReading, configuration: Configuration, runs: Sequence[Trial]) -> ComparedSide:
    study, measured = record.study, [t for t in runs if t.tokens_per_hour is not None]
    cycles = [c for t in runs for c in t.speed_cycles()]
    outcomes = [_outcome(t) for t in runs]
    return ComparedSide(
        label=label,
        study=study.spec.name,
        framework=study.spec.framework,
        configuration=configuration,
        trials=tuple(t.number for t in runs),
        outcome=next((o for o in outcomes if o != "OK"), outcomes[0] if outcomes else "not run"),
        rows_per_update=runs[0].rows_per_update if runs else study.spec.workload.rows_per_update,
        speed=_interval(record.trials, measured),
        cycle_s=statistics.fmean(c.seconds for c in cycles) if cycles else None,
        cycles=sum(not c.noisy for c in cycles),
        disturbed=sum(c.noisy for t in runs for c in t.timed_cycles()),
        cycle_tokens=statistics.fmean(c.completion_tokens for c in cycles) if cycles else None,
        phases=_mean([c.phases for c in cycles]),
        startup=_mean([t.startup for t in runs if t.startup]),
        host_peak=max((p for t in runs if (p := t.host_peak) is not None), default=None),
        device_peak=max((p for t in runs if (p := t.device_peak) is not None), default=None),
        use=use_of(cycles),
    )


def _outcome(trial: Trial) -> str:
    if trial.outcome is None:
        return trial.state.value.lower()
    return "emulated" if trial.outcome.ok and trial.emulated else trial.outcome.sentence()


def _interval(trials: Sequence[Trial], measured: Sequence[Trial]) -> Estimate | None:
    if not measured:
        return None
    value, error = evidence.speed(measured), evidence.half_width(trials, measured)
    return Estimate(value, value * math.exp(-error), value * math.exp(error))


def _mean(found: Sequence[Mapping[str, float]]) -> Mapping[str, float]:
    """Returns the mean by name; a missing name counts as 0."""
    names = dict.fromkeys(name for each in found for name in each)
    return {name: sum(each.get(name, 0.0) for each in found) / len(found) for name in names}


def keep(reading: StudyReading, values: Mapping[str, KnobValue | None]) -> RecommendationRow | None:
    """Finds the best measured configuration with the baseline's numerics in which knobs have these values."""
    spec = reading.study.spec
    able = (s for s in reading.standings if all(s.configuration.get(name) == value for name, value in values.items()))
    best = next((s for s in able if s.same_learning), None)
    return None if best is None else row_of(spec, reading.trials, best.configuration)


def loss_words(reading: StudyReading, row: RecommendationRow) -> str:
    """Formats the loss of a configuration compared with the recommended one: ``-19.6 % (95 % interval ...), #10``."""
    if reading.first_row is None or row.configuration == reading.first_row.configuration:
        return "nothing: the answer has it"
    lost = evidence.gain(reading.trials, row.configuration, reading.first_row.configuration)
    return f"{'nothing comparable' if lost is None else gain_words(lost)}, #{row.trials[0]}"


def keeping_words(reading: StudyReading, values: Mapping[str, KnobValue | None]) -> tuple[str, ...]:
    """Lists sentences on the best configuration that keeps these values, and its loss."""
    kept = ", ".join(f"{clean(name)} {knob_value(value, name)}" for name, value in values.items())
    row = keep(reading, values)
    if row is None:
        return (f"with {kept}: nothing was measured; `autotune start --set` begins with it",)
    changed = brief(row.configuration, reading.study.spec.baseline)
    speed = f"{rate(row.tokens_per_hour)} tokens/hour"
    return (f"with {kept} the best measured has {speed}: {changed}", f"against the answer: {loss_words(reading, row)}")

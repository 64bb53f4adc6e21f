"""Sentences about a recommendation, the same on the end screen and on the page."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import ALONE, Configuration, Gain, Objective, Recommendation, RecommendationRow, Resources, Trial
from autotune.statistics import retries
from autotune.statistics.lengths import figures_of
from autotune.wording import numbers
from autotune.wording.numbers import counted, format_size, per_second, percent, rate, signed_percent, tells_nothing
from autotune.wording.text import clean
from trainer.child.contract import CurrentPhase

NO_INTERVAL = "nothing ran twice, so no interval"
TOO_WIDE = "its runs differ too much for an interval"
PERMITTED_MARK = "°"
PERMITTED_NOTE = f"{PERMITTED_MARK} changes numerics or the update: never the first answer; tried after it is confirmed"

LENGTHS = {"1x": "this policy's lengths", "2x": "twice those", "maximum": "the limit"}
UNITS = {Objective.PER_HOUR: "tokens/hour", Objective.PER_GPU_HOUR: "tokens per GPU-hour"}


def model_name(model: str) -> str:
    """Returns the last part of a folder or hub id."""
    return clean(model.rstrip("/").rsplit("/", 1)[-1]) or "-"


def machine_words(resources: Resources) -> str:
    """Describes the machine of a trial: ``CPU, 2 cores, 2 training processes`` or ``2 GPUs``."""
    if resources.gpus:
        return counted(resources.total_gpus, "GPU")
    ranks = f", {resources.cpu_ranks} training processes" if resources.cpu_ranks > 1 else ""
    return f"CPU, {counted(resources.cpu_cores, 'core')}{ranks}"


def headline(row: RecommendationRow, recommendation: Recommendation, baseline: Configuration) -> str:
    """Describes the result of the first row in one sentence."""
    if row.configuration == baseline and ALONE in recommendation.notes:
        return "Only your baseline has a figure so far: there is nothing to compare it with."
    if row.configuration == baseline:
        return "Nothing is proven to beat your baseline with the same numerics: keep it."
    if row.gain is None:
        how = "failed" if recommendation.baseline_failed else "was not measured"
        return f"Your baseline {how}; this is the first configuration that fits."
    sure = "Best configuration" if row.confirmed else "Best so far, not confirmed"
    return f"{sure}: {gain_figure(row.gain)} {UNITS[row.objective]} over {over(recommendation)}."


def gain_figure(gain: Gain) -> str:
    """Formats a gain: ``+21.3 %`` or ``3.20x``; only ``faster`` if its interval is uninformative."""
    return signed_percent(gain.value, gain.low, gain.high)


def over(recommendation: Recommendation) -> str:
    """Returns the name of the configuration that gains are relative to: ``the baseline`` or ``reference #3``."""
    return "the baseline" if recommendation.baseline == "ok" else f"reference #{recommendation.reference}"


def measured_words(trial: Trial) -> str:
    """Formats a trial's tokens/hour: ``226.0k``; ``≤ 171.2k`` if it was stopped early; ``-`` without a figure."""
    return rate(trial.tokens_per_hour) if trial.at_most is None else f"≤ {rate(trial.at_most)}"


def speed_words(row: RecommendationRow, instead: str = "") -> str:
    """Formats a row's speed: ``226.0k (95 % interval 220.0k to 232.0k)``, ``instead``, then ``; 62.8 tokens/s``; with
    several GPUs ``; 56.5k or 15.7 tokens/s for each of 4 GPUs``."""
    speed, interval = (row.tokens_per_hour, row.low, row.high), interval_words(row.low, row.high)
    each = f"{rate(row.tokens_per_hour_per_gpu)} or " if row.gpus > 1 else ""
    return f"{rate(*speed)} ({interval}){instead}; {each}{per_second(*speed, row.gpus)}"


def interval_words(low: float, high: float) -> str:
    """Formats ``95 % interval 220.0k to 232.0k``, or the reason that there is none."""
    if low == high:
        return NO_INTERVAL
    least, most = (rate(end, low, high) for end in (low, high))
    return TOO_WIDE if tells_nothing(low, high) else f"95 % interval {least} to {most}"


def lengths_words(row: RecommendationRow) -> str:
    """Lists measured speeds by length: ``226.0k at this policy's lengths (56 tokens a completion), 180.0k at the limit
    (128)``."""
    said: list[str] = []
    for figure in figures_of(row):
        unit = "" if said else " tokens a completion"
        mean = "" if figure.mean_length is None else f" ({figure.mean_length:.0f}{unit})"
        if figure.tokens_per_hour is not None:
            speed = rate(figure.tokens_per_hour, row.low, row.high)
            said.append(f"{speed} at {LENGTHS.get(figure.at, figure.at)}{mean}")
    return ", ".join(said)


def row_gain_words(row: RecommendationRow) -> str:
    """Formats the gain of a row as ``gain_words`` does, in both objectives if the reference uses another number of
    GPUs. Empty for the reference itself."""
    if row.gain is None:
        return ""
    if row.gpus == row.reference_gpus or not row.reference_gpus:
        return gain_words(row.gain)
    ordered = sorted(UNITS, key=lambda objective: objective is not row.objective)
    said = [f"{gain_words(found)} {UNITS[o]}" for o in ordered if (found := row.gain_in(o)) is not None]
    return f"{', '.join(said)}, with {row.gpus} GPUs instead of {row.reference_gpus}"


def gain_words(gain: Gain) -> str:
    """Formats a gain: ``+40.0 % (95 % interval +30.0 % to +50.0 %)``; says so if it has no interval."""
    if gain.low == gain.high:
        return f"{gain_figure(gain)} ({NO_INTERVAL})"
    return numbers.ratio_words(gain.value, gain.low, gain.high, level_words(gain.level))


def level_words(level: float) -> str:
    """Formats a confidence level: ``95 %``, ``99.9 %``."""
    return f"{100.0 * level:g} %"


def evidence_words(row: RecommendationRow) -> str:
    """Describes how a row was confirmed, with the numbers of its trials."""
    numbers = ", ".join(f"#{n}" for n in row.trials)
    worst = "longest batch passed" if row.worst_case_passed else "longest batch NOT passed"
    if row.gain is not None and row.gain.pairs > 0:
        rounds = counted(row.gain.pairs, "A/B round")
        how = f"confirmed in fresh processes, {rounds}, {row.gain.cycles} cycles"
    elif row.gain is None and not row.confirmed:
        how = "measured once, not confirmed" if len(row.trials) == 1 else "not confirmed"
    else:
        how = "measured in fresh processes again" if row.confirmed else "from search trials, not confirmed"
    return f"{how}; {worst}; trials {numbers}"


def memory_words(row: RecommendationRow) -> str:
    """Describes a row's memory: peaks of host and GPU, and the free share."""
    peaks = [("host", row.host_peak), ("GPU", row.device_peak)]
    known = [f"{name} peak {format_size(value)}" for name, value in peaks if value is not None]
    if row.headroom is not None:
        known.append(f"{percent(row.headroom)} headroom")
    return ", ".join(known) or "not measured"


def baseline_words(recommendation: Recommendation, baseline: Configuration) -> str:
    """Describes the baseline's result."""
    row = recommendation.rows[0] if recommendation.rows else None
    text = clean(recommendation.baseline)
    if text == "ok":
        return "ok, and kept" if row is not None and row.configuration == baseline else "ok; gains are stated over it"
    if row is not None and row.gain is not None:
        return f"{text}; {gain_figure(row.gain)} over reference #{recommendation.reference}"
    return f"{text}; reference #{recommendation.reference} is recommended"


def nothing_words(trials: Sequence[Trial]) -> str:
    """Describes the result of a study that recommends nothing, in one sentence."""
    ended = [t for t in trials if t.state.is_finished]
    if any(retries.decided(t) for t in ended):
        return "No configuration was feasible."
    if any(retries.stopped_by_budget(t) for t in ended):
        return "Nothing was measured: the budget ended before a trial did."
    return "Nothing was measured, through no fault of a configuration." if ended else "Nothing has been measured yet."


def phase_words(phase: CurrentPhase) -> str:
    """Describes a running trial's phase: ``update, cycle 2``, or the part of the start-up."""
    name = clean(phase.phase).replace("_", " ")
    if phase.cycle < 0:
        return f"{name} (start-up)"
    return f"{name}, cycle {phase.cycle}"

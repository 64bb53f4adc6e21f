"""Report sections on the search: each trial, the effects of knobs, the use of GPU and host, and the reasons."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.domain import Pool, Study, Trial, TrialState
from autotune.domain.differences import DERIVED
from autotune.insights.feasibility import advice, feasibility
from autotune.insights.ranking import pareto
from autotune.insights.roofline import roof_of
from autotune.insights.standings import outcome_word
from autotune.insights.usage import trial_use
from autotune.insights.usage_words import LEGEND, by_phase, energy_words, speed_sentence
from autotune.insights.why import Why, knob_lines, ruled_words
from autotune.recommendation.reading import StudyReading
from autotune.report.markdown import code, table
from autotune.statistics import evidence
from autotune.statistics.retries import disproved
from autotune.wording.numbers import format_duration, format_size, rate
from autotune.wording.sentences import measured_words
from autotune.wording.text import changes, in_order, knob_value

SHOWN = 10
"""Most points of the Pareto front that are shown."""


def outcome(trial: Trial) -> str:
    """Returns the state or outcome of a trial as one word in a code span."""
    return code(outcome_word(trial))


def against(trial: Trial, study: Study) -> str:
    """Lists the knobs that differ from the baseline, without derived ones, in a code span."""
    changed = changes(trial.configuration, study.spec.baseline)
    chosen = [f"{name} {after}" for name, _, after in changed if name not in DERIVED]
    return code(", ".join(chosen)) if chosen else "the baseline" if not changed else code(changed)


def trials_section(reading: StudyReading) -> list[str]:
    """Lists each trial in a row, in the order they ran."""
    if not reading.trials:
        return ["None has been run."]
    rows = []
    for trial in reading.trials:
        peak = trial.device_peak or trial.host_peak
        rows.append(
            [
                f"#{trial.number}",
                code(trial.kind.value),
                code(trial.source),
                outcome(trial),
                measured_words(trial),
                reading.gain_words(trial) or "-",
                "-" if peak is None else format_size(peak),
                "-" if trial.seconds is None else format_duration(trial.seconds),
                against(trial, reading.study),
            ]
        )
    heads = ["trial", "kind", "by", "outcome", "tokens/hour", "gain", "peak", "took", "against the baseline"]
    return [
        "Speeds are those of single runs; gains are of their configurations, by all their runs.",
        table(heads, rows, right=(0, 4, 5, 6, 7)),
    ]


def failures_section(study: Study, trials: Sequence[Trial]) -> list[str]:
    """Builds the table of failed trials with cause and remedy; empty if none failed."""
    failed = [t for t in sorted(trials, key=lambda t: t.number) if t.state is TrialState.FAIL and t.outcome is not None]
    mended = disproved(trials)
    rows = [
        [
            f"#{t.number}",
            against(t, study),
            code(t.outcome.sentence() if t.outcome is not None else ""),
            code(advice(t, trials)),
            "disproved by a retry" if t.number in mended else "",
        ]
        for t in failed
    ]
    return [table(["trial", "against the baseline", "cause", "suggestion", ""], rows, right=(0,))] if rows else []


def knobs_section(reading: StudyReading) -> list[str]:
    """Builds the paragraphs on speed against memory, and on knob values with failures."""
    return [*_front(reading.study, reading.trials), *_feasibility(reading.trials)]


def _front(study: Study, trials: Sequence[Trial]) -> list[str]:
    pool = Pool.DEVICE if study.spec.resources.gpus else Pool.HOST
    front = pareto(trials, pool)[:SHOWN]
    rows = [[f"#{p.trial}", rate(p.tokens_per_hour), format_size(p.peak)] for p in front]
    said = f"Speed against {pool.value} memory: nothing tried is both faster and smaller than one of these."
    return [said, table(["trial", "tokens/hour", "peak"], rows, right=(0, 1, 2))] if rows else []


def _feasibility(trials: Sequence[Trial]) -> list[str]:
    records = [r for r in feasibility(trials) if r.failures]
    order = {name: place for place, name in enumerate(in_order({r.knob for r in records}))}
    rows = [
        [
            code(r.knob),
            code(knob_value(r.value, r.knob)),
            f"{r.feasible} of {r.tried}",
            code(", ".join(f"{n} {cause}" for cause, n in r.failures.items())),
        ]
        for r in sorted(records, key=lambda r: order[r.knob])
    ]
    return ["Values some trials failed with:", table(["knob", "value", "feasible", "failures"], rows)] if rows else []


def why_section(why: Why | None) -> list[str]:
    """Builds the section on limits, contributions of knobs and ruled-out configurations; empty without an answer."""
    if why is None:
        return []
    parts = [
        "What each changed knob contributes to the gain, with its 95 % interval, by one model of all trials. Shares "
        "multiply to what the changes do together."
    ]
    for row in why.rows:
        parts.append(f"### {code(row.title)}")
        parts.append("\n".join(f"- bound by: {code(limit)}" for limit in row.limits))
        parts.append("\n".join(f"- {code(line)}" for line in knob_lines(row)))
    if why.began:
        parts.append("The search began with what earlier studies measured:")
        parts.append("\n".join(f"- {code(words)}" for words in why.began))
    about = "" if why.exact else "about "
    was = "was" if why.tried == 1 else "were"
    said = f"Of {about}{why.combinations} combinations {about}{why.legal} are legal and {why.tried} {was} run."
    if not why.ruled_out:
        return [*parts, said]
    parts.append(f"{said} What ruled out others; one may be counted several times:")
    parts.append("\n".join(f"- {code(ruled_words(ruled))}" for ruled in why.ruled_out))
    return parts


def usage_section(reading: StudyReading) -> list[str]:
    """Builds tables on the use of GPU and host, for the reference and a trial of each row; empty without records."""
    roof = roof_of(reading.study, reading.fingerprint)
    parts = []
    for name, trial in _trials_of_rows(reading).items():
        use = trial_use(trial)
        cells = by_phase(use)
        if cells is None:
            continue
        parts.append(f"### {code(name)}, trial #{trial.number}")
        parts += [f"- {code(said)}" for said in (speed_sentence(trial, roof), energy_words(use)) if said]
        parts.append(table(cells.heads, cells.rows, right=range(1, len(cells.heads))))
    if parts:
        parts.insert(0, f"In the mean speed cycle. {LEGEND}.")
    return parts


def _trials_of_rows(reading: StudyReading) -> dict[str, Trial]:
    """Returns name -> trial for the reference and a trial of each row of the answer; each trial once."""
    by_number = {trial.number: trial for trial in reading.trials}
    anchor = evidence.reference(reading.trials, reading.study.spec.baseline)
    named = {} if anchor is None else {anchor.kind.value: anchor}
    for row in reading.recommendation.rows if reading.recommendation is not None else ():
        measured = next((by_number[n] for n in row.trials if n in by_number and by_number[n].speed_cycles()), None)
        if measured is not None and measured not in named.values():
            named[row.title] = measured
    return named

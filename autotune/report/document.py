"""Builds the report from its sections; writes those on the answer, the workload and the machine."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import replace

from autotune.charts.history import history
from autotune.documents.study import plain, timestamp
from autotune.domain import RecommendationRow, Study, StudySpec, TrialState
from autotune.insights.why import Why
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.report import found, measured
from autotune.report.markdown import bars, block, code, facts, sections, table
from autotune.statistics import evidence
from autotune.wording.numbers import counted, format_duration, format_size
from autotune.wording.sentences import (
    baseline_words,
    evidence_words,
    headline,
    lengths_words,
    measured_words,
    memory_words,
    nothing_words,
    row_gain_words,
    speed_words,
)
from autotune.wording.text import changes, in_order, knob_value
from trainer.child.contract import encode


def report(reading: StudyReading, *, legal: int | None = None, plot: str = "", reasons: Why | None = None) -> str:
    """Builds the text of the report, ending in a newline.

    Args:
        legal: number of legal combinations of the space; ``None`` if they were not counted.
        plot: name of the plot file beside the report; empty if there is none.
        reasons: reasons for the answer; ``None`` if there are none.
    """
    reading = replace(reading, trials=tuple(sorted(reading.trials, key=lambda t: t.number)))
    spec, trials = reading.study.spec, reading.trials
    text = sections(
        [
            ("Answer", _answer(reading)),
            ("Where the time goes", _times(reading, plot)),
            ("What the GPU and the host did", found.usage_section(reading)),
            ("Why", found.why_section(reasons)),
            ("Workload", [_workload(reading.study)]),
            ("Machine and versions", [_machine(reading)]),
            ("How it was measured", measured.protocol(reading.study, trials)),
            ("Baseline", _baseline(reading)),
            ("All trials", found.trials_section(reading)),
            ("Failures", found.failures_section(reading.study, trials)),
            ("What the knobs did", found.knobs_section(reading)),
            ("Reproduce it", measured.reproduce(reading.study, reading.recommendation)),
            ("Not measured", [measured.limits(reading.study, trials, reading.recommendation, legal)]),
        ]
    )
    return f"# Study {code(spec.name)}\n\n{_head(reading)}\n\n{text}\n"


def _head(reading: StudyReading) -> str:
    study, (wall_s, gpu_s) = reading.study, reading.spent
    gpu = f", {gpu_s / 3600:.2f} GPU-hours" if gpu_s else ""
    begun = timestamp(study.created_at) or "at an unknown time"
    return (
        f"Begun {begun}; {counted(len(reading.trials), 'trial')} in {format_duration(wall_s)}{gpu}. "
        f"Study digest {code(study.spec.digest[:16])}."
    )


def _answer(reading: StudyReading) -> list[str]:
    recommendation, baseline = reading.recommendation, reading.study.spec.baseline
    if recommendation is None or not recommendation.rows:
        if any(t.emulated and t.feasible for t in reading.trials):
            return ["**No configuration can be recommended:** those that held ran FP8 in emulation."]
        failed = any(t.state is TrialState.FAIL for t in reading.trials)
        return [f"**{nothing_words(reading.trials)}**" + (" The failures below say why." if failed else "")]
    said = [f"**{headline(recommendation.rows[0], recommendation, baseline)}**"]
    if reading.source is not AnswerSource.RECOMMENDATION:
        said.append("The study has not given its recommendation on these trials; this is what they support so far.")
    for row in recommendation.rows:
        said += _row(row, reading.study.spec)
    said.append(facts([("baseline", code(baseline_words(recommendation, baseline)))]))
    said.append(facts([("note", code(note)) for note in recommendation.notes]))
    said.append(f"The study ended because: {code(recommendation.ended_by)}.")
    return said


def _row(row: RecommendationRow, spec: StudySpec) -> list[str]:
    changed = [(code(n), code(b), code(a)) for n, b, a in changes(row.configuration, spec.baseline)]
    return [
        f"### {code(row.title)}",
        table(["knob", "baseline", "here"], changed) if changed else "No knob differs from the baseline.",
        facts(
            [
                ("tokens/hour", speed_words(row)),
                ("gain", row_gain_words(row)),
                ("tokens/hour by length", lengths_words(row)),
                ("evidence", evidence_words(row)),
                ("memory", memory_words(row)),
                ("bound by", code(row.limit) if row.limit else ""),
            ]
        ),
    ]


def _times(reading: StudyReading, plot: str) -> list[str]:
    anchor = evidence.reference(reading.trials, reading.study.spec.baseline)
    shown: list[tuple[str, Mapping[str, float]]] = []
    if anchor is not None:
        shown.append((f"trial #{anchor.number} ({anchor.kind.value})", anchor.phase_shares))
    for row in reading.recommendation.rows if reading.recommendation is not None else ():
        shown.append((row.title, row.phase_shares))
    lines: list[str] = []
    for title, shares in shown:
        if shares:
            ordered = dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))
            lines += [*([""] if lines else []), title, *(f"  {line}" for line in bars(ordered))]
    parts = ["Shares of the speed cycles' time, by phase; phases do not overlap.", block(lines)] if lines else []
    if plot:
        legend = history(reading.trials, reading.study.spec).legend
        parts.append(f"![tokens/hour of every trial in the order they ran]({plot})")
        parts.append("; ".join(f"{mark.glyph} {mark.words}" for mark in legend))
    return parts


def _workload(study: Study) -> str:
    spec, load = study.spec, study.spec.workload
    rewards = ", ".join(f"{reward.kind} {reward.name}".strip() for reward in load.rewards)
    own = [(f"{code(key)}", code(_json(value))) for key, value in sorted(load.passthrough.items())]
    return facts(
        [
            ("model", f"{code(load.model)} (digest {code(load.model_sha256[:16])})"),
            ("framework", code(spec.framework)),
            ("prompts", f"{code(load.prompts)} (SHA-256 {code(load.prompts_sha256[:16])})"),
            ("reward", code(rewards)),
            ("completions per update", str(load.rows_per_update)),
            ("longest prompt and completion", f"{load.max_prompt_length} and {load.max_completion_length} tokens"),
            ("completion lengths replayed", _lengths(study)),
            *((f"passed through: {key}", value) for key, value in own),
        ]
    )


def _json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, sort_keys=True)


def _lengths(study: Study) -> str:
    if not study.lengths:
        return "none recorded"
    low, high = min(study.lengths), max(study.lengths)
    return f"{len(study.lengths)} rows, mean {statistics.fmean(study.lengths):.1f}, {low} to {high} tokens"


def _machine(reading: StudyReading) -> str:
    spec, seen = reading.study.spec, reading.fingerprint
    limit = "none" if spec.memory_limit is None else format_size(spec.memory_limit)
    rows = [("training interpreter", code(spec.python)), ("memory limit of a trial's process tree", limit)]
    if seen is None:
        return facts([*rows, ("hardware and versions", "not recorded")])
    hardware = [(code(k), _hardware(k, v)) for k, v in sorted(encode(seen.hardware).items()) if v not in (None, [])]
    software = [(code(k), code(v)) for k, v in sorted(seen.software.items())]
    return facts([*rows, *hardware, *software, ("fingerprint", code(seen.digest[:16]))])


def _hardware(name: str, value: object) -> str:
    if name == "memory" and isinstance(value, int):
        return format_size(value)
    return code(value if isinstance(value, str) else _json(value))


def _baseline(reading: StudyReading) -> list[str]:
    spec = reading.study.spec
    own = [t for t in reading.trials if t.configuration == spec.baseline]
    values = [(code(n), code(knob_value(spec.baseline[n], n))) for n in in_order(spec.baseline)]
    runs = [f"#{t.number} {code(t.kind.value)}: {found.outcome(t)}, {measured_words(t)} tokens/hour" for t in own]
    return [table(["knob", "value"], values), "\n".join(f"- {run}" for run in runs)]

"""Builds the report: the values of its template ``report.md.jinja``, which contains the text."""

from __future__ import annotations

import json
import math
import re
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from autotune.charts.history import history
from autotune.documents.study import plain, timestamp
from autotune.domain import CycleKind, Pool, RecommendationRow, StudySpec, Trial, TrialKind, TrialState
from autotune.domain.differences import DERIVED
from autotune.insights.feasibility import advice, feasibility
from autotune.insights.ranking import pareto
from autotune.insights.roofline import roof_of
from autotune.insights.standings import outcome_word, source_words
from autotune.insights.usage import trial_use
from autotune.insights.usage_words import USAGE_LEGEND, by_phase, energy_words, speed_sentence
from autotune.insights.why import Why, knob_lines, ruled_words
from autotune.recommendation.reading import AnswerSource, StudyReading
from autotune.report.markdown import bars, block, cell, code, facts, table
from autotune.statistics import evidence
from autotune.statistics.retries import disproved
from autotune.wording.numbers import counted, format_duration, format_size, percent, rate
from autotune.wording.sentences import (
    baseline_words,
    evidence_words,
    headline,
    lengths_words,
    level_words,
    measured_words,
    memory_words,
    nothing_words,
    row_gain_words,
    speed_words,
)
from autotune.wording.text import changes, clean, in_order, knob_value
from search_spaces.knobs import moving_lengths
from trainer.child.contract import StartupPart, encode

FRONT = 10
"""Most points of the Pareto front that are shown."""
MINIMUM_GROUPS = 100
"""Groups below which the share of groups with differing rewards is too uncertain to rank on."""


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # noqa: S701 - Markdown, where foreign text is in code spans
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = (block, cell, code, counted, knob_lines, measured_words, nothing_words, outcome_word, rate, ruled_words)
    made.filters.update({word.__name__: word for word in words})
    made.filters.update(duration=format_duration, size=format_size, percent=percent, source=source_words)
    made.globals.update(advice=advice, baseline_words=baseline_words, headline=headline, table=table)
    return made


def report(reading: StudyReading, *, legal: int | None = None, plot: str = "", reasons: Why | None = None) -> str:
    """Builds the text of the report, ending in a newline.

    Args:
        legal: number of legal combinations of the space; ``None`` if they were not counted.
        plot: name of the plot file beside the report; empty if there is none.
        reasons: reasons for the answer; ``None`` if there are none.
    """
    reading = replace(reading, trials=tuple(sorted(reading.trials, key=lambda t: t.number)))
    spec, trials = reading.study.spec, reading.trials
    environment = _environment().overlay()
    environment.filters = {
        **environment.filters,
        "against": lambda trial: against(trial, spec),
        "changes_table": lambda row: _changes_table(row, spec),
        "row_facts": _row_facts,
    }
    rendered = environment.get_template("report.md.jinja").render(
        reading=reading,
        spec=spec,
        load=spec.workload,
        trials=trials,
        recommendation=reading.recommendation,
        legal=legal,
        plot=plot,
        why=reasons,
        **_of_study(reading),
        **_of_trials(trials, spec),
    )
    return re.sub(r"\n{3,}", "\n\n", rendered).strip() + "\n"


def _of_study(reading: StudyReading) -> dict[str, Any]:
    spec = reading.study.spec
    wall_s, gpu_s = reading.spent
    values = [(code(n), code(knob_value(spec.baseline[n], n))) for n in in_order(spec.baseline)]
    return {
        "begun": timestamp(reading.study.created_at) or "at an unknown time",
        "wall_s": wall_s,
        "gpu_s": gpu_s,
        "given": reading.source is AnswerSource.RECOMMENDATION,
        "phase_lines": _phase_lines(reading),
        "legend": history(reading.trials, spec).legend,
        "usage": list(_usage(reading)),
        "usage_legend": USAGE_LEGEND,
        "workload": _workload(reading),
        "machine": _machine(reading),
        "baseline_table": table(["knob", "value"], values),
        "commands": _commands(reading),
    }


def _of_trials(trials: Sequence[Trial], spec: StudySpec) -> dict[str, Any]:
    own = [c for t in trials for c in t.cycles if c.rank == 0]
    pool = Pool.DEVICE if spec.resources.gpus else Pool.HOST
    lengths = moving_lengths(spec.baseline)
    return {
        "emulated": any(t.emulated and t.feasible for t in trials),
        "failed": any(t.state is TrialState.FAIL for t in trials),
        "failures": [t for t in trials if t.state is TrialState.FAIL and t.outcome is not None],
        "mended": disproved(trials),
        "confirmed": any(t.kind is TrialKind.CONFIRM for t in trials),
        "other_lengths": any(moving_lengths(t.configuration) != lengths for t in trials),
        "level": level_words(evidence.ON_SEVERAL_NODES) if evidence.on_several_nodes(trials) else "",
        "spread": math.sqrt(evidence.process_noise(trials).process.variance),
        "cycles": [c for c in own if c.cycle_kind is CycleKind.RECORDED],
        "groups": sum(c.groups for c in own if c.cycle_kind is CycleKind.NATURAL),
        "least_groups": MINIMUM_GROUPS,
        "startups": startups(trials),
        "tried": len({t.configuration for t in trials}),
        "pool": pool,
        "front": pareto(trials, pool)[:FRONT],
        "failing_values": _failing_values(trials),
    }


def against(trial: Trial, spec: StudySpec) -> str:
    """Lists the knobs that differ from the baseline, except derived ones, as a table cell."""
    changed = changes(trial.configuration, spec.baseline)
    chosen = [f"{name} {after}" for name, _, after in changed if name not in DERIVED]
    return cell(", ".join(chosen)) if chosen else "the baseline" if not changed else cell(changed)


def _changes_table(row: RecommendationRow, spec: StudySpec) -> str:
    changed = [(code(n), code(b), code(a)) for n, b, a in changes(row.configuration, spec.baseline)]
    return table(["knob", "baseline", "here"], changed) if changed else "No knob differs from the baseline."


def _row_facts(row: RecommendationRow) -> str:
    return facts(
        [
            ("tokens/hour", speed_words(row)),
            ("gain", row_gain_words(row)),
            ("tokens/hour by length", lengths_words(row)),
            ("evidence", evidence_words(row)),
            ("memory", memory_words(row)),
            ("bound by", code(row.limit) if row.limit else ""),
        ]
    )


def _phase_lines(reading: StudyReading) -> list[str]:
    """Returns a bar for each phase of the reference and of each recommended row, largest first."""
    anchor = evidence.reference(reading.trials, reading.study.spec.baseline)
    shown: list[tuple[str, Mapping[str, float]]] = []
    if anchor is not None:
        shown.append((f"trial #{anchor.number} ({anchor.kind.value})", anchor.phase_shares))
    shown += [(row.title, row.phase_shares) for row in _rows(reading)]
    lines: list[str] = []
    for title, shares in shown:
        if shares:
            ordered = dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))
            lines += [*([""] if lines else []), title, *(f"  {line}" for line in bars(ordered))]
    return lines


def _rows(reading: StudyReading) -> Sequence[RecommendationRow]:
    return reading.recommendation.rows if reading.recommendation is not None else ()


def _usage(reading: StudyReading) -> Iterator[tuple[str, Trial, list[str], Any]]:
    """Yields name, trial, sentences and cells of GPU and host use, for the reference and a trial of each row."""
    roof = roof_of(reading.study, reading.fingerprint)
    by_number = {trial.number: trial for trial in reading.trials}
    anchor = evidence.reference(reading.trials, reading.study.spec.baseline)
    named = {} if anchor is None else {anchor.kind.value: anchor}
    for row in _rows(reading):
        measured = next((by_number[n] for n in row.trials if n in by_number and by_number[n].speed_cycles()), None)
        if measured is not None and measured not in named.values():
            named[row.title] = measured
    for name, trial in named.items():
        use = trial_use(trial)
        cells = by_phase(use)
        if cells is not None:
            yield name, trial, [speed_sentence(trial, roof), energy_words(use)], cells


def _failing_values(trials: Sequence[Trial]) -> list[list[str]]:
    records = [r for r in feasibility(trials) if r.failures]
    order = {name: place for place, name in enumerate(in_order({r.knob for r in records}))}
    return [
        [
            code(r.knob),
            code(knob_value(r.value, r.knob)),
            f"{r.feasible} of {r.tried}",
            code(", ".join(f"{n} {cause}" for cause, n in r.failures.items())),
        ]
        for r in sorted(records, key=lambda r: order[r.knob])
    ]


def _workload(reading: StudyReading) -> str:
    spec, load, lengths = reading.study.spec, reading.study.spec.workload, reading.study.lengths
    mean = statistics.fmean(lengths) if lengths else 0.0
    spread = f"{len(lengths)} rows, mean {mean:.1f}, {min(lengths)} to {max(lengths)} tokens" if lengths else ""
    return facts(
        [
            ("model", f"{code(load.model)} (digest {code(load.model_sha256[:16])})"),
            ("framework", code(spec.framework)),
            ("prompts", f"{code(load.prompts)} (SHA-256 {code(load.prompts_sha256[:16])})"),
            ("reward", code(", ".join(f"{reward.kind} {reward.name}".strip() for reward in load.rewards))),
            ("completions per update", str(load.rows_per_update)),
            ("longest prompt and completion", f"{load.max_prompt_length} and {load.max_completion_length} tokens"),
            ("completion lengths replayed", spread or "none recorded"),
            *((f"passed through: {code(key)}", code(_json(value))) for key, value in sorted(load.passthrough.items())),
        ]
    )


def _json(value: object) -> str:
    return json.dumps(plain(value), ensure_ascii=False, sort_keys=True)


def _machine(reading: StudyReading) -> str:
    spec, seen = reading.study.spec, reading.fingerprint
    limit = "none" if spec.memory_limit is None else format_size(spec.memory_limit)
    rows = [("training interpreter", code(spec.python)), ("memory limit of a trial's process tree", limit)]
    if seen is None:
        return facts([*rows, ("hardware and versions", "not recorded")])
    for name, value in sorted(encode(seen.hardware).items()):
        if name == "memory" and isinstance(value, int):
            rows.append((code(name), format_size(value)))
        elif value not in (None, []):
            rows.append((code(name), code(value if isinstance(value, str) else _json(value))))
    software = [(code(k), code(v)) for k, v in sorted(seen.software.items())]
    return facts([*rows, *software, ("fingerprint", code(seen.digest[:16]))])


def _commands(reading: StudyReading) -> list[str]:
    name = shlex.quote(clean(reading.study.spec.name))
    if not (rows := _rows(reading)):
        return [f"autotune best {name}"]
    return [
        f"autotune best {name}",
        f"autotune export {name}     # the files, and the command that trains with them",
        f"autotune verify {name}     # runs that command and compares its tokens/hour",
        f"autotune verify {name} --updates 500     # longer, with the lengths that the policy comes to",
        f"autotune retry {rows[0].trials[-1]} {name}",
    ]


@dataclass(frozen=True)
class Startups:
    """Start-up seconds, summed over the last attempts of some trials."""

    trials: int
    wall: float
    """Wall seconds of these trials, start-up included."""
    parts: Mapping[str, float]
    """Start-up seconds by ``StartupPart`` value, in the order of the start-up."""

    @property
    def share(self) -> float:
        """Start-up time as a share of ``wall``."""
        return sum(self.parts.values()) / self.wall if self.wall > 0 else 0.0


def startups(trials: Sequence[Trial]) -> Startups | None:
    """Sums the start-up times of ``trials``; ``None`` if no trial recorded one."""
    started = [trial for trial in trials if trial.startup and trial.seconds]
    if not started:
        return None
    names = dict.fromkeys([p.value for p in StartupPart] + sorted({n for t in started for n in t.startup}))
    sums = {name: sum(t.startup.get(name, 0.0) for t in started) for name in names}
    whole = sum(t.seconds or 0.0 for t in started)
    return Startups(len(started), whole, {n: s for n, s in sums.items() if any(n in t.startup for t in started)})

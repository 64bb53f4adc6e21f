"""View of a study: every figure in the words of the command line's end screen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace

from api.dashboard import links
from api.dashboard.answer_view import answer_view, first_shares
from api.dashboard.budget_view import budget_view, go_on_command
from api.dashboard.filters import TrialFilter
from api.dashboard.timeline import timeline_chart
from api.dashboard.trials_view import name_of, trial_table
from autotune.charts.chart import Chart
from autotune.charts.history import history
from autotune.documents.study import timestamp
from autotune.insights.standings import failure_groups
from autotune.insights.why import shares_lines
from autotune.recommendation.annotations import Annotation
from autotune.recommendation.current import Lives
from autotune.recommendation.reading import StudyReading
from autotune.wording.numbers import format_size
from autotune.wording.sentences import gain_figure, model_name
from autotune.wording.text import clean, in_order, knob_value

SHOWN_FAILURES = 20


def study_charts(reading: StudyReading, places: Mapping[int, str]) -> tuple[Chart, Chart]:
    """Draws history and timeline of the study. ``places``: trial number -> name of its slot."""
    href = links.trials_of(reading.study.id)
    return history(reading.trials, reading.study.spec, href), timeline_chart(reading.trials, places, href)


def study_view(
    reading: StudyReading,
    lives: Lives,
    selection: TrialFilter | None = None,
    charts: Sequence[Chart] = (),
    notes: Mapping[int | None, Annotation] | None = None,
    command: str = "",
) -> SimpleNamespace:
    """Returns the content of a study's page.

    Args:
        selection: filter of the table; by default the best trials.
        charts: existing ``study_charts`` of the study.
        command: command that began the study's last run.
    """
    study, spec = reading.study, reading.study.spec
    name, row, places = name_of(reading), reading.first_row, {place.trial: place for place in reading.places[::-1]}
    charts = charts or study_charts(reading, {})
    gain = "" if row is None or row.gain is None else gain_figure(row.gain)
    return SimpleNamespace(
        found=reading,
        title=f"{gain} · {name}" if gain else name,
        subtitle=f"{model_name(spec.workload.model)} · {clean(spec.framework)} · {reading.machine}",
        begun=timestamp(study.created_at) or "",
        budget=budget_view(reading),
        running=tuple((t, places.get(t.number), lives.get(t.number)) for t in reading.running),
        answer=None if reading.recommendation is None else answer_view(reading),
        knobs=tuple(map(clean, shares_lines(first_shares(reading)))),
        history=charts[0],
        timeline=charts[1],
        trials=trial_table(reading, selection, notes=notes),
        failures=failure_groups(reading.trials)[:SHOWN_FAILURES],
        command=go_on_command(reading, command),
        setup=_setup(reading),
        baseline=tuple((clean(n), knob_value(spec.baseline[n], n)) for n in in_order(spec.baseline)),
    )


def _setup(reading: StudyReading) -> tuple[tuple[str, str], ...]:
    spec = reading.study.spec
    protocol = spec.protocol
    facts = [
        ("model", clean(spec.workload.model)),
        ("rewards", ", ".join(clean(f"{reward.kind} {reward.name}") for reward in spec.workload.rewards)),
        ("rows per update", str(spec.workload.rows_per_update)),
        ("longest prompt", f"{spec.workload.max_prompt_length} tokens"),
        ("longest completion", f"{spec.workload.max_completion_length} tokens"),
        ("memory limit", format_size(spec.memory_limit) if spec.memory_limit else "none"),
        ("measured", f"{protocol.recorded} whole cycles of recorded lengths after {protocol.warmup} of warm-up"),
        ("sampler", f"{clean(spec.sampler)}, seed {spec.seed}"),
        ("interpreter", clean(spec.python) or "-"),
    ]
    if reading.fingerprint is not None:
        software = reading.fingerprint.software
        facts.append(("software", ", ".join(clean(f"{n} {software[n]}") for n in sorted(software))))
        facts.append(("fingerprint", reading.fingerprint.digest[:16]))
    return tuple(facts)

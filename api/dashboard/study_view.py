"""View of a study: every figure in the words of the command line's end screen."""

from __future__ import annotations

from dataclasses import dataclass

from api.dashboard import links
from api.dashboard.answer_view import AnswerView, answer_view, first_shares
from api.dashboard.budget_view import BudgetView, budget_view
from api.dashboard.filters import TrialFilter
from api.dashboard.studies_view import name_of
from api.dashboard.trials_view import TrialTable, failures, trial_table
from autotune.charts.chart import Chart
from autotune.charts.history import history
from autotune.documents.study import timestamp
from autotune.domain import Trial
from autotune.insights.why import shares_lines
from autotune.recommendation.current import Life, Lives
from autotune.recommendation.places import PlaceNow
from autotune.recommendation.reading import StudyReading
from autotune.wording.numbers import format_size
from autotune.wording.sentences import gain_figure, model_name
from autotune.wording.text import clean, in_order, knob_value


@dataclass(frozen=True)
class StudyView:
    """Content of a study's page."""

    found: StudyReading
    title: str
    subtitle: str
    begun: str
    budget: BudgetView
    running: tuple[tuple[Trial, PlaceNow | None, Life | None], ...]
    """Running trials; with its place if there are several, and its last phase unless it is still starting."""
    answer: AnswerView | None
    knobs: tuple[str, ...]
    history: Chart
    trials: TrialTable
    failures: tuple[Trial, ...]
    setup: tuple[tuple[str, str], ...]
    baseline: tuple[tuple[str, str], ...]


def history_chart(found: StudyReading) -> Chart:
    """Draws every trial of the study; equal as long as ``found.progress`` is."""
    return history(found.trials, found.study.spec, links.trials_of(found.study.id))


def study_view(
    found: StudyReading, lives: Lives, wanted: TrialFilter | None = None, drawn: Chart | None = None
) -> StudyView:
    """Returns the content of a study's page.

    Args:
        wanted: filter of the table; by default the best trials.
        drawn: an existing ``history_chart`` of the study.
    """
    study, spec = found.study, found.study.spec
    name, row, places = name_of(found), found.first_row, {place.trial: place for place in found.places[::-1]}
    gain = "" if row is None or row.gain is None else gain_figure(row.gain)
    return StudyView(
        found=found,
        title=f"{gain} · {name}" if gain else name,
        subtitle=f"{model_name(spec.workload.model)} · {clean(spec.framework)} · {found.machine}",
        begun=timestamp(study.created_at) or "",
        budget=budget_view(found),
        running=tuple((t, places.get(t.number), lives.get(t.number)) for t in found.running),
        answer=None if found.recommendation is None else answer_view(found),
        knobs=tuple(map(clean, shares_lines(first_shares(found)))),
        history=drawn or history_chart(found),
        trials=trial_table(found, wanted),
        failures=failures(found),
        setup=_setup(found),
        baseline=tuple((clean(n), knob_value(spec.baseline[n], n)) for n in in_order(spec.baseline)),
    )


def _setup(found: StudyReading) -> tuple[tuple[str, str], ...]:
    spec = found.study.spec
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
    if found.fingerprint is not None:
        software = found.fingerprint.software
        facts.append(("software", ", ".join(clean(f"{n} {software[n]}") for n in sorted(software))))
        facts.append(("fingerprint", found.fingerprint.digest[:16]))
    return tuple(facts)

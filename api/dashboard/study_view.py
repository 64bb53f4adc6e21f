"""A study as the page draws it: every figure in the words of the end screen."""

from __future__ import annotations

from dataclasses import dataclass

from api.dashboard import links
from api.dashboard.answer_view import AnswerView, answer_view
from api.dashboard.budget_view import BudgetView, budget_view
from api.dashboard.filters import TrialFilter
from api.dashboard.studies_view import machine_and_device, name_of, status_word
from api.dashboard.trials_view import TrialTable, changed_words, failures, trial_table
from autotune.charts.chart import Chart
from autotune.charts.history import history
from autotune.documents.study import timestamp
from autotune.domain import Configuration, Trial
from autotune.insights.standings import count
from autotune.recommendation.current import Life, Lives
from autotune.recommendation.places import busy_words, idle_words, running_trials
from autotune.recommendation.reading import StudyReading
from autotune.wording.numbers import format_size, signed_percent
from autotune.wording.sentences import model_name, phase_words
from autotune.wording.text import clean, in_order, knob_value

SHOWN_NEIGHBOURS = 8


@dataclass(frozen=True)
class RunningView:
    """A trial that is being run."""

    number: int
    href: str
    kind: str
    place: str
    """Empty where there is only one."""
    where: str
    busy: str
    """Share of its last cycle in which its GPUs computed; empty if they were not sampled."""
    marked: str
    """Time of the last sign of life; empty before the first."""
    changed: str


@dataclass(frozen=True)
class StudyView:
    """The whole page."""

    id: int
    name: str
    status: str
    title: str
    subtitle: str
    begun: str
    budget: BudgetView
    counts: str
    gpus: tuple[str, ...]
    """Faults of GPUs that trials are kept off."""
    running: tuple[RunningView, ...]
    idle: tuple[str, ...]
    """Places without a trial, of several."""
    answer: AnswerView | None
    neighbours: tuple[str, ...]
    history: Chart
    trials: TrialTable
    failures: tuple[Trial, ...]
    before: Configuration
    setup: tuple[tuple[str, str], ...]
    baseline: tuple[tuple[str, str], ...]


def history_chart(found: StudyReading) -> Chart:
    """Every trial of the study; the same as long as ``found.progress`` is."""
    return history(found.trials, found.study.spec, links.trials_of(found.study.id))


def study_view(
    found: StudyReading, lives: Lives, wanted: TrialFilter | None = None, drawn: Chart | None = None
) -> StudyView:
    """Everything the page of a study shows.

    Args:
        wanted: which trials the table lists; the best unless told.
        drawn: its ``history_chart``, where that is there already.
    """
    study, spec = found.study, found.study.spec
    name, row = name_of(found), found.first_row
    gain = "" if row is None or row.gain is None else signed_percent(row.gain.value)
    beside = f" · {found.limits.at_once} trials at once" if found.limits.at_once > 1 else ""
    return StudyView(
        id=study.id,
        name=name,
        status=status_word(found),
        title=f"{gain} · {name}" if gain else name,
        subtitle=f"{model_name(spec.workload.model)} · {clean(spec.framework)} · {machine_and_device(found)}{beside}",
        begun=timestamp(study.created_at) or "",
        budget=budget_view(found),
        counts=count(found.trials).sentence(),
        gpus=tuple(clean(sentence) for sentence in found.avoided_gpus),
        running=tuple(_running(found, t, lives.get(t.number)) for t in running_trials(found.trials)),
        idle=idle_words(found.places),
        answer=None if found.recommendation is None else answer_view(found),
        neighbours=tuple(clean(n.sentence()) for n in found.neighbours[:SHOWN_NEIGHBOURS]),
        history=drawn or history_chart(found),
        trials=trial_table(found, wanted),
        failures=failures(found),
        before=spec.baseline,
        setup=_setup(found),
        baseline=tuple((clean(n), knob_value(spec.baseline[n])) for n in in_order(spec.baseline)),
    )


def _running(found: StudyReading, trial: Trial, life: Life | None) -> RunningView:
    here = next((place for place in found.places if place.trial == trial.number), None)
    return RunningView(
        number=trial.number,
        href=links.trial_page(trial.study_id, trial.number),
        kind=trial.kind.value.replace("_", " "),
        place="" if here is None else clean(here.at.short),
        where="starting" if life is None else phase_words(life[0]),
        busy="" if here is None else busy_words(here),
        marked="" if life is None else timestamp(life[1]) or "",
        changed=changed_words(trial, found),
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

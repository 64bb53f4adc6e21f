"""Screen of a running study: the shown state, its updates by events, and an 80-column table; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.cli.console import WIDTH
from autotune.cli.screens.tables import STANDINGS_WIDTH, KnobColumns, knob_columns, standings_table
from autotune.cli.screens.text import bar, clock_time, fit
from autotune.domain import Budget, Event, Study, Trial, TrialState
from autotune.domain.places import TrialPlace
from autotune.insights.standings import Standing, count, failure_groups, standings
from autotune.wording.numbers import counted, format_duration
from autotune.wording.sentences import PERMITTED_NOTE, model_name, phase_words
from autotune.wording.text import brief
from trainer.child.contract import CurrentPhase

BEST_ROWS = 5
FAILURE_ROWS = 3
BAR_WIDTH = 20


@dataclass(frozen=True)
class LiveState:
    """State that the table shows. Durations are wall seconds; ``now`` and ``since`` are UTC."""

    study: Study
    budget: Budget
    now: float
    trials: tuple[Trial, ...] = ()
    """Trials, ordered by trial number."""
    standings: tuple[Standing, ...] = ()
    phases: Mapping[int, tuple[CurrentPhase | None, float]] = field(default_factory=dict)
    """Trial number -> (last reported phase, UTC seconds when it began), for running trials."""
    places: Mapping[int, str] = field(default_factory=dict)
    """Trial number -> name of its slot, if there are several slots."""
    spent_s: float = 0.0
    remaining_s: float | None = None
    legal: int | None = None
    """Number of legal combinations of the space."""
    ruled_out: int | None = None
    """Number of combinations that the failures so far rule out."""
    message: str = ""
    """Message of the last event that no trial's line shows."""


def begin(study: Study, trials: Iterable[Trial], budget: Budget, now: float, legal: int | None = None) -> LiveState:
    """Returns the state before the first event of this run; ``trials`` are those of earlier runs."""
    ordered = tuple(sorted(trials, key=lambda t: t.number))
    ranked = standings(ordered, study.spec.baseline, study.spec.framework)
    return LiveState(study=study, budget=budget, now=now, trials=ordered, standings=ranked, legal=legal)


def shown_by_trials(event: Event) -> bool:
    """Tells whether the trials' lines already show ``event``."""
    return event.kind in ("trial_started", "trial_finished")


def with_event(state: LiveState, event: Event, now: float) -> LiveState:
    """Returns the state after an event, whose ``data["ruled_out"]`` replaces ``ruled_out``, if present."""
    ruled_out = event.data.get("ruled_out")
    if isinstance(ruled_out, int) and not isinstance(ruled_out, bool):
        state = replace(state, ruled_out=ruled_out)
    place = event.data.get("place")
    if event.kind == "trial_started" and event.trial is not None and isinstance(place, str):
        at = TrialPlace(place, node=str(event.data.get("node") or "")).short
        state = replace(state, places={**state.places, event.trial: at})
    if event.kind == "budget_extended":
        state = replace(state, budget=Budget(**event.data))
    if event.kind == "trial_repeated":
        state = replace(state, phases={n: seen for n, seen in state.phases.items() if n != event.trial})
    if shown_by_trials(event):
        return replace(state, now=now)
    return replace(state, now=now, message=event.message)


def with_trial(state: LiveState, trial: Trial, now: float) -> LiveState:
    """Returns the state after a trial was added, completed a cycle or ended."""
    trials = {t.number: t for t in state.trials} | {trial.number: trial}
    ordered = tuple(trials[number] for number in sorted(trials))
    changed = replace(state, now=now, trials=ordered)
    if trial.state.is_finished:
        changed = replace(changed, standings=standings(ordered, state.study.spec.baseline, state.study.spec.framework))
        return replace(changed, phases={n: seen for n, seen in state.phases.items() if n != trial.number})
    if trial.state is TrialState.RUNNING and trial.number not in state.phases:
        changed = replace(changed, phases={**state.phases, trial.number: (None, now)})
    return changed


def with_phase(state: LiveState, trial: Trial, phase: CurrentPhase, now: float) -> LiveState:
    """Returns the state after a running trial entered a phase."""
    if trial.number not in state.phases:
        state = with_trial(state, trial, now)
    seen = state.phases.get(trial.number)
    since = seen[1] if seen is not None and seen[0] == phase else now
    return replace(state, now=now, phases={**state.phases, trial.number: (phase, since)})


def with_tick(state: LiveState, spent_s: float, remaining_s: float | None, now: float) -> LiveState:
    """Returns the state after time passed; ``remaining_s`` are seconds until the predicted end."""
    return replace(state, now=now, spent_s=spent_s, remaining_s=remaining_s)


def live_table(state: LiveState, width: int = WIDTH) -> RenderableType:
    """Draws the best trials, the running trial, the last failures, counts and budget, in at most ``width`` columns."""
    configurations = [state.study.spec.baseline, *(t.configuration for t in state.trials)]
    columns = knob_columns(configurations, width - STANDINGS_WIDTH)
    lines: list[RenderableType] = [_line(_title(state), width, "bold")]
    lines.extend(_best(state, columns, width))
    lines.extend(_line(text, width, "cyan") for text in _running(state))
    lines.extend(_line(text, width, "red") for text in failure_lines(state.trials, state.study))
    lines.append(_line(_counts(state), width))
    lines.append(_line(budget_line(state), width))
    if state.message:
        lines.append(_line(state.message, width, "yellow"))
    if columns.legend():
        lines.append(Text(columns.legend(), "dim", overflow="fold"))
    return Group(*lines)


def _line(text: str, width: int, style: str = "") -> Text:
    return Text(fit(text, width), style, no_wrap=True, overflow="ellipsis")


def _title(state: LiveState) -> str:
    spec = state.study.spec
    return f"autotune · {fit(spec.name, 26)} · {fit(model_name(spec.workload.model), 30)} · {spec.framework}"


def _best(state: LiveState, columns: KnobColumns, width: int) -> list[RenderableType]:
    if not state.standings:
        return [_line("best     nothing measured yet", width)]
    shown = list(state.standings[:BEST_ROWS])
    shown += [row for row in state.standings[BEST_ROWS:] if row.ratio is None]
    found: list[RenderableType] = [standings_table(shown, columns, state.study.spec.baseline)]
    if len(state.standings) > len(shown):
        found.append(_line(f"{len(state.standings) - len(shown)} more not shown", width, "dim"))
    if any(not row.same_learning for row in shown):
        found.append(_line(PERMITTED_NOTE, width, "dim"))
    return found


def _running(state: LiveState) -> list[str]:
    running = [t for t in state.trials if t.number in state.phases]
    return [_present(state, trial, *state.phases[trial.number]) for trial in running] or ["running  nothing"]


def _present(state: LiveState, trial: Trial, phase: CurrentPhase | None, since: float) -> str:
    at = f", {state.places[trial.number]}" if trial.number in state.places else ""
    where = "starting" if phase is None else phase_words(phase)
    lasted = format_duration(max(0.0, state.now - since))
    what = "" if trial.number == 0 else f": {brief(trial.configuration, state.study.spec.baseline)}"
    return f"running  #{trial.number} {trial.kind.value}{at}, {where} for {lasted}{what}"


def failure_lines(trials: Sequence[Trial], study: Study) -> Iterator[str]:
    """Yields a line for each recent cause of failures: number of trials, and the last trial's changed knobs."""
    for trial, *earlier in failure_groups(trials)[:FAILURE_ROWS]:
        sentence = "failed" if trial.outcome is None else trial.outcome.sentence()
        alike = f" and {len(earlier)} earlier" if earlier else ""
        changed = "" if trial.number == 0 else f" [{brief(trial.configuration, study.spec.baseline)}]"
        yield f"failed   #{trial.number}{alike} {fit(sentence, 52)}{changed}"


def _counts(state: LiveState) -> str:
    parts = ["trials   " + count(state.trials).sentence()]
    if state.ruled_out is not None:
        of = f" of {state.legal:,}" if state.legal is not None else ""
        parts.append(f"{state.ruled_out:,}{of} ruled out")
    elif state.legal is not None:
        parts.append(f"{state.legal:,} legal combinations")
    return " · ".join(parts)


def budget_line(state: LiveState) -> str:
    """Shows how much of the budget is used, and when the study will end."""
    budget = state.budget
    parts = []
    if budget.wall_s is not None:
        used = bar(state.spent_s / budget.wall_s if budget.wall_s > 0 else 1.0, BAR_WIDTH)
        parts.append(f"{used} {format_duration(state.spent_s)} of {format_duration(budget.wall_s)}")
    else:
        parts.append(f"{format_duration(state.spent_s)} used")
    if state.remaining_s is not None:
        at = clock_time(state.now + state.remaining_s, today=state.now)
        parts.append(f"ends {at}")
    if budget.max_trials is not None:
        parts.append(f"at most {counted(budget.max_trials, 'trial')}")
    if budget.gpu_hours is not None:
        parts.append(f"{budget.gpu_hours:g} GPU-hours")
    return "budget   " + " · ".join(parts)

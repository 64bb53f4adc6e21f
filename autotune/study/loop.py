"""The loop of a study: decides, runs and records until a limit. No other module waits or writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.domain import (
    Budget,
    Event,
    FailureReason,
    Outcome,
    Recommendation,
    Study,
    StudyStatus,
    Trial,
    TrialDraft,
    TrialState,
)
from autotune.domain.places import PLACE
from autotune.errors import MachineError
from autotune.machine.clock import ForwardClock
from autotune.ports import (
    Assignment,
    Clock,
    Crew,
    Observer,
    Proposer,
    Requests,
    RunReport,
    StopToken,
    Store,
    TrialRunner,
)
from autotune.recommendation.recommend import recommend, unconfirmed
from autotune.study import neighbours, schedule
from autotune.study.budget import Ledger, Spent, extended, remaining_s
from autotune.study.control import Action
from autotune.study.crews import Alone, MachineFaults
from autotune.study.judging import judge_of
from autotune.study.neighbours import Slot
from autotune.study.protocols import baseline_draft, retry_draft
from autotune.study.recorder import History, Recorder, store_record
from search_spaces.knobs import moving_lengths
from trainer.child.contract import NoteRecord

if TYPE_CHECKING:
    from autotune.specification.prepare import Prepared
    from autotune.specification.workload_size import Plan


@dataclass(frozen=True)
class StudyResult:
    """Result of a run of the tuner."""

    study: Study
    recommendation: Recommendation | None
    ended_by: str
    trials: tuple[Trial, ...]
    stopped: bool
    """True if the user or the machine stopped the run before its end."""
    halted: bool = False
    """True if the machine stopped the run: no trial could be run."""
    successor: Prepared | None = None
    """The study with another plan, as which it continues because no trial has ended; ``None`` otherwise."""


LOST = "the tuner died"  # cause of a repeat, as its event has it; others are a FailureReason
LOOK_S = 1.0
"""Seconds between two checks for requests, with several slots."""
LAST_EVENTS = 20
"""Number of an earlier run's last events that are read; all times of this run are later than theirs."""


class _PlanChangedError(Exception):
    """Ends the baseline's attempt, because its first cycle requires another plan. Arguments: plan and reason."""


@dataclass(frozen=True)
class _Attempt:
    trial: Trial
    bound: schedule.Deadline
    recorder: Recorder


@dataclass(kw_only=True, eq=False)
class StudyLoop:
    """Runs one study until its budget ends or the user stops it."""

    study: Study
    budget: Budget
    store: Store
    proposer: Proposer
    runner: InitVar[TrialRunner | None] = None
    """Runner of one trial after the other, instead of ``crew``."""
    crew: InitVar[Crew | None] = None
    """Runner of parallel trials, in the slots that ``budget`` counts (``Budget.at_once``)."""
    clock: InitVar[Clock]
    observer: Observer
    stop: StopToken
    directory_of: Callable[[Trial], Path]
    fingerprint: str = ""
    requests: Requests | None = None
    prepared: Prepared | None = None
    """The study as it was prepared, with its plan; ``None``: its workload is fixed."""
    command: str = ""
    """Command that began this run, for pages that show how to continue; empty without one."""

    def __post_init__(self, runner: TrialRunner | None, crew: Crew | None, clock: Clock) -> None:
        if (runner is None) is (crew is None):
            raise ValueError("a loop has a runner or a crew")
        self._history = History(self.store, self.study.id)
        self._crew: Crew = crew if runner is None else Alone(runner, self.stop)  # type: ignore[assignment]
        self._running: dict[int, _Attempt] = {}
        self._ran: dict[int, list[int]] = {place: [] for place in range(len(self._crew.places))}
        self._left: set[int] = set()
        self._settled = False
        self._clock = ForwardClock(clock)
        self._shown = self.store.last_event_id(self.study.id)
        for event in self.store.events(self.study.id, max(0, self._shown - LAST_EVENTS)):
            self._clock.not_before(event.at)
        self._faults = MachineFaults(len(self._crew.places))
        self._plan = None if self.prepared is None else self.prepared.plan

    def run(self) -> StudyResult:
        """Resumes the study, then runs trials until the end and stores the recommendation. Raises ``StudyBusyError`` if
        another tuner runs it, ``StoreError`` if the database failed; everything acknowledged before is kept."""
        with self.store.lock(self.study.id):
            ledger = Ledger(self.store, self._clock, self.study.id, self._gpu_count)
            try:
                self._say_budget()
                self._recover()
                ended_by = self._run_trials(ledger)
            except _PlanChangedError as change:
                return self._begin_anew(*change.args)
            finally:
                self._crew.close()
                ledger.persist(force=True)
            return self._conclude(ended_by)

    def _check_plan(self, trial: Trial, began: float, ledger: Ledger) -> None:
        """Raises ``_PlanChangedError`` if the first cycle of the baseline requires another plan."""
        left = remaining_s(self.budget, ledger.spent(), self.study.spec.resources.total_gpus)
        before = self._plan
        if trial.number or before is None or left is None:
            return
        plan = before.after(trial, self._clock.monotonic() - began, left)
        if plan is None:
            return
        self._plan, words = plan, plan.correction_words(before)
        if plan.differs(before):
            raise _PlanChangedError(plan, words)
        if words:
            self._say("forecast_corrected", words, trial)

    def _begin_anew(self, plan: Plan, why: str) -> StudyResult:
        """Stores the study with another plan, which repeats its baseline. Keeps user requests made meanwhile."""
        assert self.prepared is not None and self.prepared.by_plan is not None  # noqa: S101, PT018  (narrowing)
        successor = self.prepared.by_plan(plan)
        spec = replace(successor.spec, name=self.study.spec.name, sampler=self.study.spec.sampler)
        event, draft = self._event("plan_changed", why, None), baseline_draft(replace(self.study, spec=spec))
        self.study = self.store.begin_anew(self.study.id, spec, draft, event)
        self._show(event)
        stopped, trials = self.stop.level >= 1, self._history.trials()
        ended_by = "stopped by the user" if stopped else ""
        return StudyResult(self.study, None, ended_by, trials, stopped, successor=None if stopped else successor)

    def retry(self, draft: TrialDraft) -> Trial:
        """Runs one configuration again outside the search; returns the trial, WAITING if interrupted.

        Continues a retry of it that an earlier run left waiting. If the study had ended, updates its recommendation.
        Raises as ``run`` does, or ``MachineError`` if no trial can run.
        """
        with self.store.lock(self.study.id):
            ledger = Ledger(self.store, self._clock, self.study.id, self._gpu_count)
            try:
                self._recover()
                trial = self._waiting(draft) or self.store.add_trial(self.study.id, draft, self._clock.now())
                while trial.state is TrialState.WAITING and self.stop.level == 0:
                    if self._faults.halted is not None:
                        raise MachineError(self._faults.halted)
                    self._begin(0, trial, self._history.trials(), ledger)
                    while self._running:
                        self._await(ledger)
                    trial = self.store.trial(self.study.id, trial.number)
            finally:
                self._crew.close()
                ledger.persist(force=True)
            self._renew()
            return trial

    @property
    def _gpu_count(self) -> int:
        """Number of GPUs over all slots."""
        return self.study.spec.resources.total_gpus * len(self._crew.places)

    def _waiting(self, draft: TrialDraft) -> Trial | None:
        wanted = TrialState.WAITING, draft.source, draft.configuration
        return next((t for t in self._history.trials() if (t.state, t.source, t.configuration) == wanted), None)

    def _renew(self) -> None:
        """Updates the recommendation of a study that had ended, with the later trials."""
        before = self.store.recommendation(self.study.id)
        if before is None or self.store.study(self.study.id).status is not StudyStatus.DONE:
            return
        self._recommend(self._history.trials(), before.ended_by)

    def _say_budget(self) -> None:
        """Stores the limits, for `status` in another terminal, and the command that continues the study."""
        where = {"places": list(self._crew.places), "nodes": list(self._crew.nodes)}
        self._say("session_started", "the tuner started", None, **vars(self.budget), **where, command=self.command)

    def _run_trials(self, ledger: Ledger) -> str:
        while True:
            because = self._fill(ledger)
            if not self._running:
                return because
            self._await(ledger)

    def _fill(self, ledger: Ledger) -> str:
        """Starts trials in free slots; returns the reason why the study would end if nothing ran."""
        if self._held_back(ledger):
            return ""
        if self.stop.level >= 1:
            return "stopped by the user"
        if self._faults.halted is not None:
            return self._faults.halted
        self._settled = True
        for place in [p for p in self._ran if p not in self._running and p not in self._left]:
            trials, spent = self._history.trials(), ledger.spent()
            step = self._next(place, trials, spent)
            if isinstance(step, schedule.StudyEnd):
                return step.because
            if isinstance(step, schedule.Wait):
                if step.elsewhere and len(set(self._crew.nodes)) > 1:
                    continue
                break
            self._begin(place, step, trials, ledger)
        return ""

    def _held_back(self, ledger: Ledger) -> bool:
        """Takes up requests; returns whether nothing may start now: during a pause, or until something has changed."""
        if self.requests is None:
            return self._settled and bool(self._running)
        if not self._running:
            ledger.leave_out(self.requests.hold())
            self._take_up(self.requests.todo())
            return False
        if self.requests.paused:
            self._settled = False
            return True
        return not self._take_up(self.requests.todo()) and self._settled

    def _take_up(self, todo: Sequence[Event]) -> bool:
        """Queues the requested retries and extends the budget; returns whether there were any."""
        for event in todo:
            if event.kind == Action.EXTEND.event_kind:
                self.budget = extended(self.budget, event.data.get("more", {}))
                self._say("budget_extended", "the budget was extended, as requested", None, **vars(self.budget))
            else:
                again = self.store.trial(self.study.id, event.trial or 0).configuration
                draft = retry_draft(self.study, self._history.trials(), again)
                self.store.add_trial(self.study.id, draft, self._clock.now())
        return bool(todo)

    def _next(self, place: int, trials: tuple[Trial, ...], spent: Spent) -> Trial | schedule.StudyEnd | schedule.Wait:
        """Returns the trial to start in a free slot: a waiting one, or a new one."""
        nodes = self._crew.nodes
        live = tuple(nodes[each] for each in self._ran if each not in self._left)
        slot = Slot(self._here(place, trials), nodes[place], live)
        waiting = schedule.interrupted(self.study, trials, self.budget, spent, slot)
        if waiting is not None:
            return waiting
        step = schedule.next_step(self.study, trials, self.budget, spent, self.proposer, slot)
        if not isinstance(step, schedule.NextTrial):
            return step
        return self.store.add_trial(self.study.id, step.draft, self._clock.now())

    def _here(self, place: int, trials: tuple[Trial, ...]) -> tuple[Trial, ...] | None:
        """Returns the finished trials of a slot, in their order; ``None`` if there is one slot."""
        return tuple(trials[number] for number in self._ran[place]) if len(self._ran) > 1 else None

    def _begin(self, place: int, waiting: Trial, trials: tuple[Trial, ...], ledger: Ledger) -> None:
        here = self._here(place, trials)
        bound = schedule.deadline(self.study, waiting, trials, self.budget, ledger.spent(), here)
        trial = self._history.levels.one(self._started(waiting, self._crew.places[place], self._crew.nodes[place]))
        self.observer.trial(trial)
        began = self._clock.monotonic()
        judge = judge_of(self.study.spec, trial, trials, lambda: began + bound.seconds - self._clock.monotonic())
        check = partial(self._check_plan, began=began, ledger=ledger)
        recorder = Recorder(self.store, self.observer, ledger, self.study, self.budget, trial, judge, check)
        assignment = Assignment(self.study, trial, self.directory_of(trial), bound.seconds)
        self._running[place] = _Attempt(trial, bound, recorder)
        self._crew.start(place, assignment, recorder)

    def _started(self, waiting: Trial, place: str, node: str) -> Trial:
        """Stores and shows the trial at the start of its attempt, with its slot if there are several."""
        on_node = {"node": node} if node else {}
        where = {"place": place, **on_node} if place else {}
        on = f" on {place}" if place else ""
        event = self._event("trial_started", f"trial {waiting.number} ({waiting.kind}) started{on}", waiting, **where)
        trial = self.store.start_attempt(self.study.id, waiting.number, self._clock.now(), event)
        self._show(event)
        if place:
            note = NoteRecord(PLACE, {"where": place, **on_node})
            self.store.add_note(self.study.id, trial.number, trial.attempt, note)
        return trial.with_(node=node)

    def _await(self, ledger: Ledger) -> None:
        """Waits until an attempt has ended, or the next look at requests is due."""
        for place, report in self._crew.wait(LOOK_S):
            ledger.persist(force=True)
            attempt = self._running.pop(place)
            self._settled = False
            self._finish(attempt.trial, report, attempt.bound, attempt.recorder)
            self._ran[place].append(attempt.trial.number)
            self._leave(place, report)
            self._say_neighbours(attempt.trial)

    def _leave(self, place: int, report: RunReport) -> None:
        """Excludes a faulty slot from further trials, if there is another."""
        if (report.gpu_faults or report.place_lost) and len(self._ran) - len(self._left) > 1:
            self._left.add(place)
            name, why = self._crew.places[place], "; ".join(report.gpu_faults) or report.place_lost
            message = f"{name} gets no more trials" + (f": {report.place_lost}" if report.place_lost else "")
            self._say("place_left", message, None, place=name, node=self._crew.nodes[place], why=why)

    def _say_neighbours(self, trial: Trial) -> None:
        """Shows the result of the copies of the baseline, after the last of them."""
        if trial.source == neighbours.source(self.budget.at_once) and (
            check := neighbours.checked(self._history.trials(), self.budget.at_once)
        ):
            self._say("neighbours", check.sentence(), None, at_once=check.at_once, slower=check.slower)

    def _finish(self, trial: Trial, report: RunReport, bound: schedule.Deadline, recorder: Recorder) -> None:
        self._faults.see(report)
        measured, lengths = self.store.trial(self.study.id, trial.number), recorder.lengths
        outcome = recorder.concluded(schedule.judged(report.outcome, measured, bound))
        if report.bad_lines:
            message = f"trial {trial.number}: {report.bad_lines} unreadable lines in its metrics were skipped"
            self._say("bad_lines", message, trial)
        for pid in report.quarantined:
            self._say("quarantined", f"process {pid} of trial {trial.number} could not be ended", trial)
        for fault in report.gpu_faults:
            self._say("gpu_quarantined", f"trials avoid {fault}", trial)
        if cause := self._cause_to_repeat(trial, outcome, report):
            kept = " (a compiler ran, and what it made is kept)" if outcome.reason is FailureReason.OOM else ""
            self._requeue(trial, report.seconds, f"will be repeated{kept}: {outcome.sentence()}", cause)
            return
        as_the_baseline = moving_lengths(trial.configuration) == moving_lengths(self.study.spec.baseline)
        if outcome.ok and lengths and not self.study.lengths and as_the_baseline:
            self.store.set_lengths(self.study.id, lengths)
            self.study = replace(self.study, lengths=lengths)
        ended_well = TrialState.COMPLETE if outcome.ceiling is None else TrialState.PRUNED
        state = ended_well if outcome.ok else TrialState.FAIL
        finished = self._close(trial, state, outcome, report.seconds, report.host_peak)
        if outcome.reason is FailureReason.OOM:
            self._say_ruled_out(finished)

    def _say_ruled_out(self, trial: Trial) -> None:
        if count := self.proposer.count_ruled_out(self._history.trials()):
            message = f"{count} configurations need at least as much memory as one that ran out, and will not be tried"
            self._say("ruled_out", message, trial, ruled_out=count)

    def _cause_to_repeat(self, trial: Trial, outcome: Outcome, report: RunReport) -> str:
        """Returns why a trial is repeated; empty if it is not. A trial interrupted by a stop continues when the study
        resumes, whatever error it reported while its processes ended."""
        if report.absent or (not outcome.ok and self.stop.level >= 2):
            return "stopped"
        cause = outcome.reason.value if outcome.reason else ""
        return cause if schedule.again(outcome, self._repeats(trial, cause), compiled=report.compiled) else ""

    def _repeats(self, trial: Trial, cause: str) -> int:
        """Counts the repeats of a trial for ``cause``; a death of the tuner is a cause of its own."""
        told = self.store.events(self.study.id, limit=10_000, kind="trial_repeated")
        return sum(event.trial == trial.number and event.data.get("cause") == cause for event in told)

    def _recover(self) -> None:
        """Restores the study of a dead tuner to a state in which no trial is RUNNING; ends processes of dead tuners of
        any open study, which may hold a GPU."""
        others = [s.id for s in self.store.studies() if s.status is StudyStatus.OPEN and s.id != self.study.id]
        dead = [self.study.id, *(other for other in others if not self.store.is_locked(other))]
        for pid in dict.fromkeys(pid for study in dead for pid in self._crew.sweep(study)):
            self._say("swept", f"ended process {pid}, left by an earlier run", None)
        for trial in self._history.trials():
            if trial.state is TrialState.RUNNING:
                self._recover_trial(trial)

    def _recover_trial(self, trial: Trial) -> None:
        records, _ = self._crew.recover(self.directory_of(trial))
        for record in records:
            store_record(self.store, self.study.id, trial, record)
        outcome = schedule.lost(trial, 1 + self._repeats(trial, LOST))
        if outcome is None:
            self._requeue(trial, 0.0, "was interrupted and will be repeated", LOST)
        else:
            self._close(trial, TrialState.FAIL, outcome, 0.0, None)

    def _close(self, trial: Trial, state: TrialState, outcome: Outcome, seconds: float, host_peak: int | None) -> Trial:
        """Stores and shows the finished trial."""
        event = self._event("trial_finished", f"trial {trial.number}: {outcome.sentence()}", trial)
        ended = state, outcome, self._clock.now(), seconds, host_peak
        finished = self.store.finish_trial(self.study.id, trial.number, *ended, event)
        self._show(event)
        self.observer.trial(finished)
        return finished

    def _requeue(self, trial: Trial, seconds: float, why: str, cause: str) -> None:
        event = self._event("trial_repeated", f"trial {trial.number} {why}", trial, cause=cause)
        self.store.requeue(self.study.id, trial.number, seconds, event)
        self._show(event)

    def _conclude(self, ended_by: str) -> StudyResult:
        trials = self._history.trials()
        halted = self._faults.halted is not None and ended_by == self._faults.halted
        stopped = self.stop.level >= 1 or halted
        found = self._recommend(trials, ended_by)
        if not stopped:
            self.store.set_status(self.study.id, StudyStatus.DONE)
        self._say("study_ended", f"the study ended: {ended_by}", None)
        return StudyResult(self.study, found, ended_by, trials, stopped, halted)

    def _recommend(self, trials: tuple[Trial, ...], ended_by: str) -> Recommendation | None:
        found = recommend(self.study.spec, trials, ended_by, fingerprint=self.fingerprint, now=self._clock.now())
        if found is None:
            return None
        found = unconfirmed(found)
        self.store.save_recommendation(self.study.id, found)
        return found

    def _say(self, kind: str, message: str, trial: Trial | None, **data: Any) -> None:
        event = self._event(kind, message, trial, **data)
        self.observer.event(self.store.add_event(self.study.id, event))

    def _event(self, kind: str, message: str, trial: Trial | None, **data: Any) -> Event:
        number = None if trial is None else trial.number
        return Event(kind=kind, message=message, data=data, trial=number, at=self._clock.now())

    def _show(self, event: Event) -> None:
        """Shows an event that was stored with its change, under its stored number."""
        stored = self.store.events(self.study.id, self._shown, kind=event.kind)[-1]
        self._shown = stored.id
        self.observer.event(stored)

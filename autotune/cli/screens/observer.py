"""Shows a running study: as a live table on a terminal, one line per event elsewhere, or NDJSON."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum

from rich.live import Live

from autotune.cli import console
from autotune.cli.screens.live import (
    LiveState,
    live_table,
    shown_by_trials,
    with_event,
    with_phase,
    with_tick,
    with_trial,
)
from autotune.documents.study import cycle_json, cycle_rate, event_json, plain, trial_json
from autotune.domain import CycleRecord, Event, Trial, TrialState
from autotune.ports import Observer
from autotune.wording.numbers import format_duration, rate, signed_percent
from autotune.wording.text import CYCLE_WORDS, brief, clean
from trainer.child.contract import CurrentPhase

PROGRESS_EVERY_S = 10.0
"""Seconds between two NDJSON progress records."""

Now = Callable[[], float]


class Mode(StrEnum):
    """How a running study is shown."""

    LIVE = "live"
    PLAIN = "plain"
    JSON = "json"
    QUIET = "quiet"


def choose_mode(*, json: bool, live: bool, quiet: bool, terminal: bool | None = None) -> Mode:
    """Chooses the display of a run: NDJSON by option, nothing if quiet, the table on a terminal, else lines."""
    terminal = console.talk().is_terminal if terminal is None else terminal
    if json:
        return Mode.JSON
    if quiet:
        return Mode.QUIET
    return Mode.LIVE if live and terminal else Mode.PLAIN


@contextmanager
def observing(mode: Mode, state: LiveState, now: Now = time.time) -> Iterator[Observer]:
    """Yields an observer of one run, whose errors cannot end the study. Text goes to stderr, NDJSON to stdout."""
    if mode is Mode.LIVE:
        screen = console.talk(None)
        with Live(console=screen, auto_refresh=False, vertical_overflow="crop") as live:
            draw = lambda state: live.update(live_table(state, screen.width), refresh=True)  # noqa: E731
            yield Unfailing(LiveObserver(state, now, draw))
    elif mode is Mode.PLAIN:
        yield Unfailing(PlainObserver(state, console.say, now))
    elif mode is Mode.JSON:
        yield Unfailing(JsonObserver(state, now))
    else:
        yield Unfailing(None)


class Unfailing(Observer):
    """Forwards calls until one fails (a closed pipe, a full disk); ignores all later ones."""

    def __init__(self, inner: Observer | None) -> None:
        self._inner = inner

    def event(self, event: Event) -> None:
        self._try(lambda inner: inner.event(event))

    def trial(self, trial: Trial) -> None:
        self._try(lambda inner: inner.trial(trial))

    def phase(self, trial: Trial, phase: CurrentPhase) -> None:
        self._try(lambda inner: inner.phase(trial, phase))

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None:
        self._try(lambda inner: inner.tick(spent_wall_s, predicted_end_s))

    def _try(self, show: Callable[[Observer], None]) -> None:
        try:
            if self._inner is not None:
                show(self._inner)
        except Exception as error:
            self._inner = None
            with suppress(OSError, ValueError):  # stderr may be gone too
                console.say(f"the display stopped ({clean(error) or type(error).__name__}); the study goes on")


class LiveObserver:
    """Keeps a ``LiveState`` and draws it at every change."""

    def __init__(self, state: LiveState, now: Now, draw: Callable[[LiveState], None] = lambda _: None) -> None:
        self._state = state
        self._now = now
        self._draw = draw

    def event(self, event: Event) -> None:
        self._become(with_event(self._state, event, self._now()))

    def trial(self, trial: Trial) -> None:
        self._become(with_trial(self._state, trial, self._now()))

    def phase(self, trial: Trial, phase: CurrentPhase) -> None:
        self._become(with_phase(self._state, trial, phase, self._now()))

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None:
        self._become(with_tick(self._state, spent_wall_s, predicted_end_s, self._now()))

    def _become(self, state: LiveState) -> None:
        self._state = state
        self._draw(state)


class News:
    """Finds the changes of a trial since the previous call."""

    def __init__(self, trials: tuple[Trial, ...]) -> None:
        self._seen = {t.number: (t.attempt, len(t.cycles), t.state.is_finished) for t in trials}

    def of(self, trial: Trial) -> tuple[bool, tuple[CycleRecord, ...], bool]:
        """Returns whether the trial started, its new cycles, and whether it ended."""
        attempt, cycles, ended = self._seen.get(trial.number, (0, 0, False))
        if ended or trial.state is TrialState.WAITING:
            return False, (), False
        started = trial.attempt > attempt
        fresh = trial.cycles if started else trial.cycles[cycles:]
        finished = trial.state.is_finished
        self._seen[trial.number] = (trial.attempt, len(trial.cycles), finished)
        return started, tuple(fresh), finished


class PlainObserver(LiveObserver):
    """Prints one line per event, without escapes: a trial started, a cycle, a trial ended, and others."""

    def __init__(self, state: LiveState, write: Callable[[str], None], now: Now) -> None:
        super().__init__(state, now)
        self._write = write
        self._news = News(state.trials)

    def event(self, event: Event) -> None:
        super().event(event)
        if not shown_by_trials(event):
            self._line(event.message)

    def trial(self, trial: Trial) -> None:
        super().trial(trial)
        started, cycles, ended = self._news.of(trial)
        if started:
            again = f" again (attempt {trial.attempt})" if trial.attempt > 1 else ""
            what = "" if trial.number == 0 else f": {brief(trial.configuration, self._state.study.spec.baseline)}"
            on = f" on {self._state.places[trial.number]}" if trial.number in self._state.places else ""
            self._line(f"#{trial.number} {trial.kind.value} started{on}{again}{what}")
        for cycle in cycles:
            if cycle.rank == 0:
                self._line(f"#{trial.number} {cycle_words(cycle)}")
        if ended:
            self._line(f"#{trial.number} {self._end_words(trial)}")

    def phase(self, trial: Trial, phase: CurrentPhase) -> None:
        super().phase(trial, phase)
        self.trial(trial)

    def _end_words(self, trial: Trial) -> str:
        lasted = "" if trial.seconds is None else f", took {format_duration(trial.seconds)}"
        outcome = trial.outcome
        if outcome is not None and not outcome.ok:
            hint = f"; {outcome.suggestion}" if outcome.suggestion else ""
            return f"{outcome.sentence()}{hint}{lasted}"
        if outcome is not None and outcome.ceiling is not None:
            return f"{outcome.sentence()}{lasted}"
        ratios = [s.ratio for s in self._state.standings if s.configuration == trial.configuration]
        gain = f" ({signed_percent(ratios[0])})" if ratios and ratios[0] is not None else ""
        return f"ok: {rate(trial.tokens_per_hour)} tokens/hour{gain}{lasted}"

    def _line(self, text: str) -> None:
        stamp = time.strftime("%H:%M:%S", time.localtime(self._now()))
        self._write(f"{stamp} {clean(text)}")


def cycle_words(cycle: CycleRecord) -> str:
    """Describes a cycle, ``cycle 2 replayed: 12 s, 331.2k tokens/hour``, with the clock guard's verdict."""
    mark = "" if cycle.accepted else ", discarded by the clock guard"
    noisy = ", disturbed" if cycle.noisy else ""
    speed = f"{format_duration(cycle.seconds)}, {rate(cycle_rate(cycle))} tokens/hour"
    return f"cycle {cycle.index} {CYCLE_WORDS[cycle.cycle_kind]}: {speed}{mark}{noisy}"


class JsonObserver:
    """Prints NDJSON on stdout: ``event``, ``trial`` (at its start and end), ``cycle``, ``phase`` and ``progress``."""

    def __init__(self, state: LiveState, now: Now) -> None:
        self._baseline = state.study.spec.baseline
        self._now = now
        self._news = News(state.trials)
        self._phases: dict[int, CurrentPhase] = {}
        self._progress: float | None = None

    def event(self, event: Event) -> None:
        console.record({"type": "event", **event_json(event)})

    def trial(self, trial: Trial) -> None:
        started, cycles, ended = self._news.of(trial)
        if started and not ended:
            self._trial(trial)
        for cycle in cycles:
            place = {"trial": trial.number, "attempt": trial.attempt}
            console.record({"type": "cycle", **place, **cycle_json(cycle)})
        if ended:
            self._trial(trial)

    def _trial(self, trial: Trial) -> None:
        console.record({"type": "trial", **trial_json(trial, self._baseline)})

    def phase(self, trial: Trial, phase: CurrentPhase) -> None:
        self.trial(trial)
        if self._phases.get(trial.number) != phase:
            self._phases[trial.number] = phase
            place = {"phase": phase.phase, "cycle": phase.cycle, "cycle_kind": phase.cycle_kind}
            console.record({"type": "phase", "trial": trial.number, **plain(place)})

    def tick(self, spent_wall_s: float, predicted_end_s: float | None) -> None:
        now = self._now()
        if self._progress is None or not 0 <= now - self._progress < PROGRESS_EVERY_S:
            self._progress = now
            spent = {"spent_wall_seconds": spent_wall_s, "remaining_wall_seconds": predicted_end_s}
            console.record({"type": "progress", **plain(spent)})

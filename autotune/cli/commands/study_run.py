"""The study of ``start`` in the store, and how its run is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from autotune.cli import console
from autotune.cli.commands.start_options import StudyOptions
from autotune.cli.screens.live import begin
from autotune.cli.screens.observer import choose_mode, observing
from autotune.cli.stopping import Notice, SignalStop, stopping
from autotune.domain import Budget, Study
from autotune.ports import Observer, Store
from autotune.settings import Settings

if TYPE_CHECKING:
    from autotune.specification.prepare import Prepared


@dataclass(frozen=True)
class OpenedStudy:
    """A study whose trials can be run here."""

    study: Study
    store: Store
    stop: SignalStop
    existed: bool


@contextmanager
def opened(
    settings: Settings, prepared: Prepared, notice: Notice, *, fork: bool = False, any_sampler: bool = False
) -> Iterator[OpenedStudy]:
    """Opens the prepared study, or creates it; ``fork`` and ``any_sampler`` as of ``find_or_create``."""
    from autotune.wiring import check_machine, end_processes, find_or_create, open_store_for

    with stopping(console.say, notice) as stop, closing(open_store_for(settings, stop)) as store:
        study, existed = find_or_create(store, prepared.spec, time.time(), fork=fork, any_sampler=any_sampler)
        stop.abandon = partial(end_processes, settings, study.id)
        check_machine(store, study, prepared.fingerprint)
        store.save_fingerprint(study.id, prepared.fingerprint, time.time())
        yield OpenedStudy(study, store, stop, existed)


def say_busy() -> None:
    """Tells the user which other programs keep the machine busy, if any."""
    from autotune.cli.doctor.machine_checks import busy_note
    from autotune.machine import other_load

    busy = busy_note(other_load.sample_load(time.sleep))
    if busy is not None:
        console.say(busy)


@contextmanager
def shown(options: StudyOptions, study: Study, store: Store, limits: Budget, legal: int | None) -> Iterator[Observer]:
    """Yields the observer that shows the run: live table, lines, JSON records or nothing, by the options."""
    mode = choose_mode(json=options.as_json, live=not options.no_live, quiet=options.quiet)
    with observing(mode, begin(study, store.trials(study.id), limits, time.time(), legal=legal)) as observer:
        yield observer

"""Made-up trials in a real store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from autotune.documents import codec
from autotune.domain import Study, Trial, TrialState
from autotune.ports import Store
from autotune.store import open_store
from tests.support import factories
from tests.support.shared import made_once
from trainer.child.contract import StartupPart

DATABASE, STUDY = "autotune.sqlite", "study.json"


def copied_study(name: str, database: str, make: Callable[[Store], Study]) -> Study:
    """The study that ``make`` records, in a new file ``database``.

    It is recorded once in a run of the tests, as ``name``, and copied after that: recording takes a third of a second,
    and hundreds of tests begin with it.
    """

    def fill(folder: Path) -> None:
        store = open_store(str(folder / DATABASE))
        study = make(store)
        store.close()
        (folder / STUDY).write_text(codec.dump(study))

    folder = made_once(name, fill)
    assert not Path(database).exists()
    shutil.copyfile(folder / DATABASE, database)
    return codec.load(Study, (folder / STUDY).read_text())


def record(store: Store, study: Study, trial: Trial) -> None:
    """A made-up trial, stored the way the loop does."""
    draft = factories.draft(trial.kind, configuration=trial.configuration, source=trial.source, pair=trial.pair)
    number = store.add_trial(study.id, draft, trial.created_at).number
    assert number == trial.number
    if trial.state is TrialState.WAITING:
        return
    store.start_attempt(study.id, number, trial.started_at or factories.NOW)
    for part, seconds in trial.startup.items():
        store.add_startup(study.id, number, 1, factories.startup(StartupPart(part), seconds))
    if trial.worst_case_passed:
        store.add_worst_case(study.id, number, 1, factories.worst_case())
    for cycle in trial.cycles:
        store.add_cycle(study.id, number, 1, cycle)
    if trial.state.is_finished and trial.outcome is not None:
        ended, seconds = trial.finished_at or factories.NOW, trial.seconds or 0.0
        store.finish_trial(study.id, number, trial.state, trial.outcome, ended, seconds, trial.watchdog_peak)

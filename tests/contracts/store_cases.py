"""What the store's tests have in common: every change and every read by name, and a study to begin with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.domain import Outcome, PriorKnowledge, StudyStatus, Trial, TrialKind, TrialState
from autotune.ports import Store
from tests.support import factories as make
from trainer.child.contract import StartupPart

HOSTILE = "nul \0, lone \ud800, \u202eright to left, 'quote\", 100 %, {brace}, \n, \U0001f980"

Action = Callable[[Store, int], object]

TRIAL_CHANGES: dict[str, Action] = {
    "start_attempt": lambda s, n: s.start_attempt(1, n, 9.0),
    "requeue": lambda s, n: s.requeue(1, n, 9.0),
    "add_cycle": lambda s, n: s.add_cycle(1, n, 1, make.cycle(7)),
    "add_cycle again": lambda s, n: s.add_cycle(1, n, 1, make.cycle(0)),
    "add_startup": lambda s, n: s.add_startup(1, n, 1, make.startup(StartupPart.ENGINE)),
    "add_worst_case": lambda s, n: s.add_worst_case(1, n, 1, make.worst_case()),
    "add_note": lambda s, n: s.add_note(1, n, 1, make.note()),
    "finish_trial": lambda s, n: s.finish_trial(1, n, TrialState.FAIL, make.oom(), 9.0, 9.0, None),
}

STUDY_CHANGES: dict[str, Callable[[Store, int], object]] = {
    "set_lengths": lambda s, i: s.set_lengths(i, (1, 2)),
    "set_beforehand": lambda s, i: s.set_beforehand(i, PriorKnowledge()),
    "set_status": lambda s, i: s.set_status(i, StudyStatus.DONE),
    "add_trial": lambda s, i: s.add_trial(i, make.draft(), 1.0),
    "add_event": lambda s, i: s.add_event(i, make.event()),
    "open_session": lambda s, i: s.open_session(i, 1.0),
    "save_fingerprint": lambda s, i: s.save_fingerprint(i, make.fingerprint(), 1.0),
    "save_recommendation": lambda s, i: s.save_recommendation(i, make.recommendation()),
}

STUDY_READS: dict[str, Callable[[Store, int], object]] = {
    "study": lambda s, i: s.study(i),
    "trials": lambda s, i: s.trials(i),
    "last_event_id": lambda s, i: s.last_event_id(i),
    "fingerprints": lambda s, i: s.fingerprints(i),
    "trial": lambda s, i: s.trial(i, 0),
    "notes": lambda s, i: s.notes(i, 0),
    "events": lambda s, i: s.events(i),
    "spent": lambda s, i: s.spent(i),
    "fingerprint": lambda s, i: s.fingerprint(i),
    "recommendation": lambda s, i: s.recommendation(i),
    "lock": lambda s, i: s.lock(i),
    "is_locked": lambda s, i: s.is_locked(i),
}


def begin(store: Store, **spec: Any) -> int:
    """A study with one RUNNING trial (number 0) that has one cycle; its id."""
    study = store.create_study(make.study_spec(**spec), make.NOW)
    store.add_trial(study.id, make.draft(TrialKind.BASELINE), make.NOW)
    store.start_attempt(study.id, 0, make.NOW)
    store.add_cycle(study.id, 0, 1, make.cycle(0))
    return study.id


def finish(store: Store, study_id: int, number: int = 0, **changes: Any) -> Trial:
    given = {"state": TrialState.COMPLETE, "outcome": Outcome(), "now": 9.0, "seconds": 4.0, "host_peak": 5, **changes}
    return store.finish_trial(study_id, number, **given)

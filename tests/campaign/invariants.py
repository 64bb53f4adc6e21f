"""What must hold after every run of the tuner, and at the end of a study; what does not, as sentences."""

from __future__ import annotations

import os
import socket
from collections import Counter
from collections.abc import Iterator, Sequence

from autotune.domain import FailureReason, Trial, TrialKind, TrialState
from autotune.errors import NoDatabaseError, StoreError
from tests.campaign.faults import Fault
from tests.campaign.study import Run, Study, cells
from tests.e2e.commands import written_cycles
from tests.support.node import Node
from trainer.child.contract import RunPaths

LOST = frozenset({StoreError.exit_code})
"""Exit code of a tuner that cannot write to its database any more, because it is full or another's."""
OVER = frozenset({0})
"""Exit code of a study that has ended."""
SLACK_S = 5.0
"""The machine is busy, and a process needs time to end."""

CYCLES = """
    SELECT trials.number, attempts.number, cycles.rank, cycles.position FROM cycles
    JOIN attempts ON attempts.id = cycles.attempt_id JOIN trials ON trials.id = attempts.trial_id
"""


def after(study: Study, run: Run, faults: Sequence[Fault]) -> Iterator[str]:
    """What does not hold after one run that met these faults."""
    yield from run.wrong
    met = [fault for fault in faults if fault.name in run.met or fault.before]
    killed = run.code == -9
    if run.hung:
        yield f"it had not ended after {run.seconds:.0f} s"
    if run.code not in OVER.union(*(fault.codes for fault in met)):
        yield f"the exit code is {run.code}: {' '.join(run.screen[-300:].split())}"
    noticed = met and 75 in met[-1].codes
    if noticed and run.ended_s is not None and run.ended_s > study.plan.grace_s + SLACK_S:
        yield f"it ended {run.ended_s:.1f} s after the notice, and had {study.plan.grace_s} s"
    if "Traceback" in run.screen:
        yield f"a traceback on screen: {run.screen[-600:]}"
    yield from (f"a crash file: {path.read_text()[-600:]}" for path in study.home.glob("crashes/*"))
    if not killed:
        yield from left(study)
    if not any(fault.before for fault in met):
        yield from stored(study, killed=killed or run.code in LOST)


def left(study: Study) -> Iterator[str]:
    """What the tuner, its trials and their servers left behind."""
    yield from (f"process {pid} is left: {words}" for pid, words in study.processes())
    yield from (f"/dev/shm/{name} is left" for name in os.listdir("/dev/shm") if name.startswith(study.mark))
    yield from (f"{path} is left" for path in study.temporary.iterdir())
    for home in study.home.glob("runs/*/*/*"):
        sockets = RunPaths(home.resolve()).sockets
        if sockets.exists():
            yield f"{sockets} is left"
    yield from (f"port {port} still answers" for port in ports(study) if answers(port))


def ports(study: Node) -> set[int]:
    """Of all rollout servers there were."""
    if not (study.folder / "launches.jsonl").exists():
        return set()
    words = [launch["argv"] for launch in study.launches()]
    return {int(argv[argv.index("--port") + 1]) for argv in words if "--port" in argv}


def answers(port: int) -> bool:
    with socket.socket() as asking:
        asking.settimeout(0.5)
        return asking.connect_ex(("127.0.0.1", port)) == 0


def stored(study: Study, *, killed: bool) -> Iterator[str]:
    """Everything anybody was told of is in the database, and what is there fits together.

    ``killed``: the tuner could not write what became of its trials; the next one does.
    """
    try:
        store = study.store()
    except NoDatabaseError:
        yield from ["the database is not there"] if study.seen else []
        return
    try:
        count = len(store.studies())
        if count != 1:
            yield from [f"{count} studies are there"] if study.seen else []
            return
        events = store.events(1, limit=100_000)
        trials = store.trials(1)
    finally:
        store.close()
    there: set[tuple[object, ...]] = {("event", event.id, event.kind) for event in events}
    cycles = list(cells(study, CYCLES))
    there |= {("cycle", *row) for row in cycles}
    lost = [seen for seen in tuple(study.seen) if seen not in there]
    if lost:
        yield f"{len(lost)} acknowledged records are not stored, the first: {lost[0]}"
    if [event.id for event in events] != list(range(1, len(events) + 1)):
        yield "the events have gaps"
    if not study.database and list(cells(study, "PRAGMA integrity_check")) != [("ok",)]:
        yield "the database is damaged"
    for trial in trials:
        kinds = Counter(event.kind for event in events if event.trial == trial.number)
        if kinds["trial_started"] != trial.attempt:
            yield f"trial {trial.number} has {trial.attempt} attempts, and {kinds['trial_started']} were told"
        if kinds["trial_finished"] != int(trial.state.is_finished):
            yield f"trial {trial.number} is {trial.state}, and {kinds['trial_finished']} ends were told"
        if trial.state is TrialState.RUNNING and not killed:
            yield f"trial {trial.number} is RUNNING, and nobody runs it"
        kept = sum(row[:2] == (trial.number, trial.attempt) for row in cycles)
        if trial.state is TrialState.COMPLETE and kept < written_cycles(study.home, trial.number, trial.attempt):
            yield f"trial {trial.number} has cycles that are not stored"


def at_the_end(study: Study, whole: tuple[Trial, ...]) -> Iterator[str]:
    """``whole`` are the trials of the same study where nothing happened; none where there is none to compare with."""
    store = study.store()
    try:
        trials, found = store.trials(1), store.recommendation(1)
    finally:
        store.close()
    if found is None:
        yield "it ended without an answer"
        return
    if not found.rows and any(trial.outcome is not None and trial.outcome.ok for trial in trials):
        yield "trials went well, and nothing is recommended"
    decided = [trial for trial in trials if trial.outcome is None or trial.outcome.reason is not FailureReason.INFRA]
    searched = [trial.configuration.key for trial in decided if trial.kind in (TrialKind.BASELINE, TrialKind.SEARCH)]
    if len(searched) != len(set(searched)):
        yield "a configuration was searched twice"
    for trial, other in zip(trials, whole, strict=False):
        if (trial.kind, trial.configuration) != (other.kind, other.configuration):
            yield f"trial {trial.number} is not that of an undisturbed study: {trial.configuration.key}"
            return
        if taught(trial) != taught(other):  # what follows may differ
            return
    if whole and len(trials) != len(whole):
        yield f"it has {len(trials)} trials, and an undisturbed one {len(whole)}"


def taught(trial: Trial) -> object:
    """What a trial can tell a sampler, as far as the machine's speed has no part in it."""
    return trial.state, trial.outcome and trial.outcome.reason, len(trial.cycles)

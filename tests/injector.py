"""Every write of a study's life fails once, and what must hold then.

    python -m tests.injector [--kinds] [--every 1] [--errors ENOSPC]

A scripted study is run from its beginning to its exported answer, in a process that names each of its writes
(``tests/support/faulty_files.py``). Then it is run once for each of them, which fails; the same commands are given
again, and nothing fails. What was acknowledged must be stored, the sentence must name the file, the exit code must be
one of the documented, nothing may be left running, and the answer must be the undisturbed study's. Exit code 1: it was
not so.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import random
import re
import shutil
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.cli.app import build_app
from autotune.cli.failures import exit_code_of
from autotune.domain import StudySpec
from autotune.errors import MachineError, StoreError, UsageError
from autotune.store import open_store
from autotune.store.repository import SqlStore
from tests.e2e import tuner
from tests.e2e.commands import tagged
from tests.e2e.studies import fastest
from tests.support import faulty_files
from tests.support.scripted_framework import ScriptedFramework
from trainer.child.contract import SIGNS
from trainer.frameworks.common import failures

PLAN: dict[str, Any] = {"max_trials": 2, "script": {}, "baseline": fastest(precision="fp32")}
ERRORS = ("ENOSPC", "EDQUOT", "EROFS", "EIO")
REFUSED = frozenset(error.exit_code for error in (UsageError, MachineError, StoreError))
"""Exit codes of what the user or the machine has to mend."""
OUT = "out"
HELD_S = 300
"""A run that takes longer hangs."""


@dataclass
class Ran:
    """One life of a study, as far as it came."""

    code: int
    said: str
    acknowledged: list[list[Any]]
    met: list[str] = field(default_factory=list)


def commands(home: Path) -> tuple[Callable[[], object], ...]:
    """What a user does: the study, its report, its answer's files."""
    out = home / OUT

    def cli(*words: str) -> Callable[[], object]:
        return lambda: build_app()([*words, "--force"], prog_name="autotune")

    return (
        lambda: sys.exit(tuner.main(str(home), PLAN)),
        cli("report", "-o", str(out / "report.md")),
        cli("export", "-o", str(out / "answer")),
        cli("export", "--optuna", str(out / "optuna.db")),
    )


def live(home: Path, fail: str | None, error: str, most: int = 4) -> Ran:
    """The first commands in a process of their own, up to one that fails; ``fail`` is the write that does."""
    beside = home.parent
    log, said, acknowledged = (beside / name for name in ("writes", "said", "acknowledged"))
    for path in (log, said, acknowledged):
        path.unlink(missing_ok=True)
    wanted = {"root": str(home), "log": str(log), "fail": fail, "error": error}
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = _lived(commands(home)[:most], home, said, acknowledged, json.dumps(wanted))
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        os._exit(code)
    _, status = os.waitpid(child, 0)
    words = [json.loads(line) for line in faulty_files.known(acknowledged)]
    return Ran(os.waitstatus_to_exitcode(status), said.read_text(), words, faulty_files.known(log))


def _lived(words: Sequence[Callable[[], object]], home: Path, said: Path, acknowledged: Path, wanted: str) -> int:
    """In the new process: the exit code of the first command that fails."""
    signal.alarm(HELD_S)
    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    os.environ |= {"AUTOTUNE_HOME": str(home), faulty_files.VARIABLE: wanted}
    _tell(os.open(acknowledged, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), os.write)
    plain = ScriptedFramework.diagnose
    ScriptedFramework.diagnose = lambda self, text: plain(self, text) or failures.diagnose(text, SIGNS, {})  # type: ignore[method-assign, assignment, return-value]
    prompts = home.parent / "prompts.jsonl"
    prompts.write_text('{"prompt": "1 + 1"}\n')
    made = tuner.specification
    tuner.specification = lambda *given: _with_prompts(made(*given), str(prompts))
    faulty_files.begin("tuner")
    for command in words:
        code = exit_code_of(command)  # type: ignore[arg-type]
        sys.stdout.flush()
        sys.stderr.flush()
        if code:
            return code
    if json.loads(wanted)["fail"] is None:
        (home.parent / "modules").write_text("\n".join(sys.modules))
    return 0


def _with_prompts(spec: StudySpec, prompts: str) -> StudySpec:
    return replace(spec, workload=replace(spec.workload, prompts=prompts))


def _tell(file: int, write: Callable[[int, bytes], int]) -> None:
    """What the store acknowledges goes to ``file``."""
    calls: dict[str, Callable[[tuple[Any, ...], Any], list[Any]]] = {
        "add_trial": lambda _, made: ["trial", made.number],
        "add_cycle": lambda given, _: ["cycle", given[1], given[2], given[3].index],
        "finish_trial": lambda given, _: ["end", given[1], str(given[2]), given[3].sentence()],
        "add_event": lambda _, made: ["event", made.id, made.kind],
        "save_recommendation": lambda given, _: ["answer", given[1].ended_by],
        "set_status": lambda given, _: ["status", str(given[1])],
    }
    for name, words in calls.items():
        setattr(SqlStore, name, _telling(getattr(SqlStore, name), words, file, write))


def _telling(real: Any, words: Any, file: int, write: Callable[[int, bytes], int]) -> Any:
    def method(store: SqlStore, *given: Any, **more: Any) -> Any:
        made = real(store, *given, **more)
        write(file, (json.dumps(words(given, made)) + "\n").encode())
        return made

    return method


CYCLES = """
    SELECT trials.number, attempts.number, cycles.position FROM cycles
    JOIN attempts ON attempts.id = cycles.attempt_id JOIN trials ON trials.id = attempts.trial_id
"""


def stored(home: Path) -> list[list[Any]]:
    """All that the database holds, in the words of what is acknowledged."""
    path = home / "autotune.sqlite"
    if not path.is_file() or not path.stat().st_size:
        return []
    with closing(sqlite3.connect(path)) as connection:
        [(whole,)] = connection.execute("PRAGMA integrity_check").fetchall()
        found: list[list[Any]] = [["integrity", whole]]
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'cycles'").fetchall():
            return found  # its tables are still to be made
        found += [["cycle", *row] for row in connection.execute(CYCLES)]
    store = open_store(path)
    for study in store.studies():
        trials = store.trials(study.id)
        found += [["trial", t.number] for t in trials]
        found += [["end", t.number, str(t.state), t.outcome.sentence()] for t in trials if t.outcome is not None]
        found += [["event", e.id, e.kind] for e in store.events(study.id, limit=100_000)]
        answer = store.recommendation(study.id)
        found += [] if answer is None else [["answer", answer.ended_by]]
        found += [["status", str(study.status)]]
    store.close()
    return found


def answer(home: Path) -> list[object]:
    """What an undisturbed study and one that went on must have in common, trial by trial."""
    store = open_store(home / "autotune.sqlite")
    trials, found, study = store.trials(1), store.recommendation(1), store.study(1)
    store.close()
    order: list[object] = [(t.number, str(t.kind), str(t.state), t.configuration.key) for t in trials]
    rows = [] if found is None else [(row.configuration.key, row.confirmed, row.tokens_per_hour) for row in found.rows]
    return [*order, *rows, str(study.status)]


def files(home: Path) -> list[object]:
    """What was exported."""
    return sorted(str(path.relative_to(home)) for path in (home / OUT).rglob("*") if path.is_file())


def wrong_after(home: Path, ran: Ran, failed: str = "") -> list[str]:
    """What does not hold after a write has failed, as sentences."""
    wrong = []
    has = stored(home)
    wrong += [f"acknowledged and not stored: {each}" for each in ran.acknowledged if each not in has]
    wrong += [f"the database is damaged: {each}" for each in has if each[0] == "integrity" and each[1] != "ok"]
    wrong += [f"process {pid} is left" for pid in tagged(home)]
    wrong += [f"a traceback is in {path.name}" for path in home.glob("crashes/*")]
    if " remove " not in failed:
        wrong += [f"{path.relative_to(home)} is left" for path in home.rglob(".*") if path.is_file()]
    if "Traceback" in ran.said:
        wrong.append("a traceback is on the screen")
    if ran.code == 0:
        return wrong
    said = ran.said.strip().splitlines() or [""]
    if ran.code not in REFUSED:
        wrong.append(f"the exit code is {ran.code}")
    if not said[-1].startswith("autotune: ") or str(home) not in said[-1]:
        wrong.append(f"no file is named: {said[-1]!r}")
    return wrong


def fail_once(failed: str, error: str, finished: Path, whole: Sequence[object]) -> tuple[str, list[str]]:
    """(how it ended, what did not hold) where one write fails."""
    exports = f" {OUT}" in failed
    with tempfile.TemporaryDirectory(prefix="injector-") as folder:
        home = Path(folder).resolve() / "home"
        if exports:  # what was before is not run again
            shutil.copytree(finished, home)
        first = live(home, failed, error, 4 if exports else 1)
        if not any(line.startswith("FAILED ") for line in first.met):
            return "not met", []
        wrong = wrong_after(home, first, failed)
        again = live(home, None, error, 4 if exports else 1) if first.code else first
        if again.code:
            wrong.append(f"the same command does not go on: {again.code}, {again.said.strip()[-400:]!r}")
        else:
            after = [*answer(home), *(files(home) if exports else ())]
            wrong += [f"not as undisturbed: {each}" for each in after if each not in whole]
            wrong += [f"lacks {each}" for each in (whole if exports else answer(finished)) if each not in after]
        return ("nobody noticed" if first.code == 0 else f"exit code {first.code}"), wrong


def clean(home: Path) -> tuple[list[str], list[object]]:
    """The writes of a life in which none fails, and all that came of it; the home is left with the study alone."""
    ran = live(home, None, "EIO")
    assert ran.code == 0, ran.said
    for name in (home.parent / "modules").read_text().split():  # so that no later run has to
        with suppress(ImportError):
            importlib.import_module(name)
    found = [*answer(home), *files(home)]
    shutil.rmtree(home / OUT)
    return ran.met, found


def one_of_each(writes: Sequence[str], rng: random.Random) -> list[str]:
    """A write of each kind: of one process, one operation, one file, whichever trial's it is."""
    kinds: dict[str, list[str]] = {}
    for write in writes:
        kinds.setdefault(re.sub(r"\d+", "N", write), []).append(write)
    return [rng.choice(alike) for alike in kinds.values()]


def inject(every: int, errors: Sequence[str], only: str, seed: int, *, kinds: bool) -> int:
    """The exit code."""
    ends, violated, rng = Counter[tuple[str, str]](), 0, random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="injector-") as folder:
        finished = Path(folder).resolve() / "home"
        writes, whole = clean(finished)
        chosen = [write for write in (one_of_each(writes, rng) if kinds else writes) if only in write]
        chosen = chosen[rng.randrange(every) :: every]
        print(f"{len(writes)} writes from the beginning to the exported answer; {len(chosen)} fail once", flush=True)
        for write in chosen:
            error = rng.choice(errors)
            end, wrong = fail_once(write, error, finished, whole)
            ends[(write.split()[1], end)] += 1
            violated += bool(wrong)
            print(f"{error} {write}: {'; '.join([end, *wrong])}", flush=True)
    for (what, end), count in sorted(ends.items()):
        print(f"{count:5} {what:16} {end}")
    print(f"{len(chosen)} of {len(writes)} writes failed once, {violated} with something that did not hold")
    return int(violated > 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kinds", action="store_true", help="one of each kind: an operation on a file")
    parser.add_argument("--every", type=int, default=1, help="one of so many")
    parser.add_argument("--only", default="", help="only writes whose name holds this")
    parser.add_argument("--errors", nargs="+", default=ERRORS)
    parser.add_argument("--seed", type=int, default=1, help="of the choice and of the errors")
    given = parser.parse_args()
    sys.exit(inject(given.every, given.errors, given.only, given.seed, kinds=given.kinds))

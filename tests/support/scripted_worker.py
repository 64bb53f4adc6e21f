"""The scripted child as a warm worker: the same mailbox, and misbehaviour between trials.

The script of a trial may hold ``worker``, what the worker does once that trial is over:

    floor, left   of its answer, instead of what a good worker would say
    end           "answered": exits right after its answer; "called": exits when the next letter comes
    slow          seconds between the result and the answer
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.scripted_acts import Ended
from tests.support.scripted_child import ScriptedTrial
from trainer.child.contract import (
    Letter,
    Mailbox,
    NoteRecord,
    Result,
    RunPaths,
    WorkerReply,
    dumps,
    read_spec,
    write_atomic,
)

FLOOR = 500 << 20


def serve(directory: str) -> int:
    mailbox, number, starter = Mailbox(Path(directory)), 1, os.getppid()
    script: Mapping[str, Any] = {}
    while True:
        letter = wait(mailbox, number, starter)
        if letter is None or script.get("end") == "called":
            return 0
        paths = RunPaths(Path(letter.directory))
        trial = ScriptedTrial(read_spec(paths.config), paths, before=number - 1)
        trial.record(NoteRecord("worker", {"worker": letter.worker, "number": number, "pid": os.getpid()}))
        print(f"trial {number} of worker {letter.worker}", file=sys.stderr, flush=True)
        if not run(trial).ok:
            return 1
        script = trial.script.get("worker", {})
        time.sleep(float(script.get("slow", 0.0)))
        mailbox.reply(number, WorkerReply(script.get("floor", FLOOR), str(script.get("left", ""))))
        if script.get("end") == "answered":
            return 0
        number += 1


def wait(mailbox: Mailbox, number: int, starter: int) -> Letter | None:
    began, said = time.monotonic(), number == 1
    while os.getppid() == starter:
        letter = mailbox.read_letter(number)
        if letter is not None:
            return letter
        if not said and time.monotonic() - began > 0.5:  # by then nothing is the last trial's any more
            print("resting", file=sys.stderr, flush=True)
            said = True
        time.sleep(0.005)
    return None


def run(trial: ScriptedTrial) -> Result:
    try:
        trial.run()
        result = Result(True)
    except Ended as end:
        result = end.result
    write_atomic(trial.paths.result, dumps(result))
    trial.act("exit")
    return result

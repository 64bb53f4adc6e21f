"""Which process ran a trial, in words; pure."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.wording.numbers import format_size
from autotune.wording.text import clean
from trainer.child.contract import NoteRecord

STARTED = {"process": "its first", "none": "nothing started anew"}


def process_words(notes: Sequence[NoteRecord]) -> str:
    """``trial 3 of worker 2: nothing started anew, 1.2 GiB held before; ended after it: ...``; empty without one."""
    found = {note.name: note.data for note in notes if note.name.startswith("worker")}
    parts = []
    if ran := found.get("worker"):
        number, started = ran.get("number"), STARTED.get(str(ran.get("restarted")), "")
        words = f"trial {number} of worker {clean(str(ran.get('worker')))}"
        held = ran.get("floor")
        before = f", {format_size(held)} held before" if isinstance(held, int) and number != 1 else ""
        parts.append(f"{words}{': ' if started else ''}{started}{before}")
    if lost := found.get("worker_lost"):
        parts.append(f"worker {clean(str(lost.get('worker')))} had ended before it began with it")
    if replaced := found.get("worker_replaced"):
        parts.append(f"ended after it: {clean(str(replaced.get('why')))}")
    return "; ".join(parts)

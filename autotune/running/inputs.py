"""Waits for a trial's model, prompts and rewards if their disk is temporarily unavailable."""

from __future__ import annotations

import os
import threading

from autotune.ports import Clock, StopToken, Watcher
from trainer.child.contract import TrialSpec, inputs_of

PATIENCE_S = 60.0
"""Most seconds to wait; a remounted disk is back within seconds."""
PAUSE_S = 0.5
ANSWER_S = 5.0
"""Seconds without an answer after which a disk counts as unavailable."""


class Inputs:
    """Input files of a study's trials. Only a file that existed before counts as missing: the child reports others."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def missing(self, spec: TrialSpec) -> str | None:
        """Returns a sentence that names a file that existed and is gone; ``None`` without one."""
        found: dict[str, bool] = {}

        def look() -> None:
            for _, path in inputs_of(spec):
                found[path] = os.path.exists(path)

        # A disk that hangs holds the thread that asks it, and this one has processes to watch.
        thread = threading.Thread(target=look, daemon=True, name="autotune-inputs")
        thread.start()
        thread.join(ANSWER_S)
        self._seen.update(path for path, there in tuple(found.items()) if there)
        for what, path in inputs_of(spec):
            if path in self._seen and not found.get(path, False):
                return f"the {what} {path} {'is not there' if path in found else 'does not answer'}"
        return None

    def wait(self, spec: TrialSpec, clock: Clock, watcher: Watcher, stop: StopToken, most_s: float) -> str | None:
        """Waits until no file is missing, the user stops, or ``PATIENCE_S`` or ``most_s`` have passed; returns
        ``missing``."""
        until = clock.monotonic() + min(PATIENCE_S, most_s)
        while True:
            missing = self.missing(spec)
            if missing is None or stop.level > 0 or clock.monotonic() >= until:
                return missing
            watcher.tick()
            clock.sleep(PAUSE_S)

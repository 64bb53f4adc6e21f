"""Waits for a trial's model, prompts and rewards while the disk they lie on is away."""

from __future__ import annotations

import os
import threading

from autotune.ports import Clock, StopToken, Watcher
from trainer.child.contract import TrialSpec, inputs_of

PATIENCE_S = 60.0
"""A mount that is made anew is back within seconds."""
PAUSE_S = 0.5
ANSWER_S = 5.0
"""A disk that does not answer for so long is away."""


class Inputs:
    """Files that the trials of a study read. Only what was there once counts as missing: the child judges all else."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def missing(self, spec: TrialSpec) -> str | None:
        """A sentence that names what was there and is not now; ``None``: nothing."""
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
        """``missing``, as soon as it is ``None``, the user stops, or ``PATIENCE_S`` or ``most_s`` are over."""
        until = clock.monotonic() + min(PATIENCE_S, most_s)
        while True:
            missing = self.missing(spec)
            if missing is None or stop.level > 0 or clock.monotonic() >= until:
                return missing
            watcher.tick()
            clock.sleep(PAUSE_S)

"""``math-verify`` as a reward, in a process of its own: the package can hang, and a hang must end one completion only.

One helper serves the whole trial. A completion without an answer in time scores 0 and is counted; the helper is then
killed and restarted. It inherits the trial's tag, so that a sweep finds it.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from .failures import RewardFailedError

COLUMNS = ("solution", "answer")
"""The prompts' column with the correct answer: the first of these that is there."""
COMPLETION_S = 5.0
START_S = 120.0
VERIFIER = Path(__file__).resolve().parent / "math_verifier.py"


class VerifierLostError(Exception):
    """The helper did not answer in time, or died."""


class Verifier:
    """A helper process that answers one JSON line with another."""

    def __init__(self, script: Path) -> None:
        self._script = script
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._rest = b""
        atexit.register(self.kill)

    @property
    def pid(self) -> Optional[int]:
        """Process id of the running helper."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Starts the helper. Raises ``RewardFailedError`` if the helper does not become ready."""
        command = [sys.executable, str(self._script)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self._rest = b""
        try:
            said = self._line(START_S)
        except VerifierLostError:
            self.kill()
            raise RewardFailedError("math-verify could not be started; its last words are in the log") from None
        if not said.get("ready"):
            self.kill()
            raise RewardFailedError("math-verify cannot be used: %s" % said.get("error", "no reason given"))

    def ask(self, question: Dict[str, Any], seconds: float) -> Dict[str, Any]:
        """Returns the helper's answer. Raises ``VerifierLostError`` if the helper is gone."""
        if self._process is None:
            self.start()
        process = self._process
        assert process is not None and process.stdin is not None  # noqa: S101, PT018  (narrowing)
        try:
            process.stdin.write(json.dumps(question).encode("ascii") + b"\n")
            return self._line(seconds)
        except (OSError, VerifierLostError) as error:
            self.kill()
            raise VerifierLostError(str(error)) from None

    def kill(self) -> None:
        """Kills the helper."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(OSError):
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=10)
        for pipe in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()

    def close(self) -> None:
        """Kills the helper for good."""
        self.kill()
        atexit.unregister(self.kill)

    def _line(self, seconds: float) -> Dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None  # noqa: S101, PT018  (narrowing)
        handle, deadline = process.stdout.fileno(), time.monotonic() + seconds
        while b"\n" not in self._rest:
            ready, _, _ = select.select([handle], [], [], max(0.0, deadline - time.monotonic()))
            chunk = os.read(handle, 65536) if ready else b""
            if not chunk:
                raise VerifierLostError("no answer in %g s" % seconds if not ready else "it died")
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        answer = json.loads(line)
        return answer if isinstance(answer, dict) else {}


class MathReward:
    """Scores 1 for a completion with the prompt's answer, 0 for another, ``None`` for an unreadable answer."""

    __name__ = "math_verify"

    def __init__(self, text_of: Callable[[Any], str], seconds: float = COMPLETION_S, script: Path = VERIFIER) -> None:
        self._text_of = text_of
        self._seconds = seconds
        self._verifier = Verifier(script)
        self._verifier.start()
        self.facts: Dict[str, int] = {"math_verify_lost": 0}
        """Completions the verifier gave no answer for in time."""

    def close(self) -> None:
        """Ends the helper."""
        self._verifier.close()

    def __call__(self, completions: Sequence[Any], **columns: Any) -> List[Optional[float]]:
        name = next((column for column in COLUMNS if column in columns), None)
        if name is None:
            raise RewardFailedError("the prompts have no column solution or answer, which math-verify scores by")
        return [self._score(completion, gold) for completion, gold in zip(completions, columns[name], strict=True)]

    def _score(self, completion: Any, gold: Any) -> Optional[float]:
        try:
            answer = self._verifier.ask({"gold": str(gold), "text": self._text_of(completion)}, self._seconds)
        except VerifierLostError:
            self.facts["math_verify_lost"] += 1
            return 0.0
        score = answer.get("score")
        return None if score is None else float(score)

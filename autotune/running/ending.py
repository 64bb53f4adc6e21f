"""How an attempt ended, decided from what is left when its processes are gone. Pure.

The order of belief: the child's own report, then why the tuner stopped it, then its exit code and
the kernel's counters, then the framework's known strings in the log.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.domain import FailureReason, Outcome, Pool
from autotune.ports import Diagnosis, Framework
from trainer.child.contract import CurrentPhase, Result

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)


class Stop(StrEnum):
    """Why the tuner ended the processes itself."""

    DEADLINE = "deadline"
    MEMORY = "memory"
    HANG = "hang"
    CANCELLED = "cancelled"
    STRANGER = "stranger"
    LINGERED = "lingered"
    NOT_STARTED = "not started"


REASONS = {
    Stop.DEADLINE: FailureReason.TIMEOUT,
    Stop.MEMORY: FailureReason.OOM,
    Stop.HANG: FailureReason.HANG,
    Stop.CANCELLED: FailureReason.CANCELLED,
    Stop.STRANGER: FailureReason.INFRA,
    Stop.NOT_STARTED: FailureReason.INFRA,
}


@dataclass(frozen=True)
class Ending:
    """All that is known of an attempt whose process tree is gone (or quarantined)."""

    exit_code: int | None
    """``None`` if the child was never started or could not be killed."""
    seconds: float
    stop: Stop | None = None
    """``None``: it ended by itself."""
    why: str = ""
    """Sentence for ``stop``."""
    result: Result | None = None
    """The child's own report, if it was written before the tuner stopped it for another reason."""
    result_error: str = ""
    """Why the report that is there cannot be read."""
    phase: CurrentPhase | None = None
    """Where it was last."""
    oom_kills: int = 0
    """Processes the kernel's out-of-memory killer ended on this machine meanwhile."""
    host_peak: int | None = None
    bad_lines: int = 0
    quarantined: tuple[int, ...] = ()
    log_tail: str = ""


def outcome_of(ending: Ending, framework: Framework, log_path: str) -> Outcome:
    """The outcome, with one suggestion where there is one."""
    if ending.result is not None:
        outcome = _reported(ending, ending.result, framework)
    elif ending.stop is not None and ending.stop in REASONS:
        pool = Pool.HOST if ending.stop is Stop.MEMORY else None
        outcome = Outcome(REASONS[ending.stop], _phase(ending), pool, ending.why)
    else:
        outcome = _by_exit(ending, framework)
    outcome = replace(outcome, log_path=log_path)
    if not outcome.ok and not outcome.suggestion:
        outcome = replace(outcome, suggestion=framework.suggest(outcome))
    return outcome


def _reported(ending: Ending, result: Result, framework: Framework) -> Outcome:
    if result.ok:
        return Outcome(message=ending.why if ending.stop is Stop.LINGERED else "")
    phase = result.phase.value if result.phase else _phase(ending)
    outcome = Outcome(result.reason or FailureReason.CRASH, phase, result.pool, result.message)
    if outcome.reason is not FailureReason.CRASH:
        return outcome
    # the child saw an exception it does not know; the framework's strings may know it
    diagnosis = framework.diagnose(f"{ending.log_tail}\n{result.detail}\n{result.message}")
    return _diagnosed(diagnosis, outcome) if diagnosis else outcome


def _by_exit(ending: Ending, framework: Framework) -> Outcome:
    plain = Outcome(FailureReason.CRASH, _phase(ending), None, exit_sentence(ending))
    if ending.exit_code in KILLED and ending.oom_kills > 0:
        return replace(plain, reason=FailureReason.OOM, pool=Pool.HOST)
    diagnosis = framework.diagnose(ending.log_tail)
    return _diagnosed(diagnosis, plain) if diagnosis else plain


def _diagnosed(diagnosis: Diagnosis, plain: Outcome) -> Outcome:
    return replace(
        plain,
        reason=diagnosis.reason,
        pool=diagnosis.pool,
        phase=diagnosis.phase or plain.phase,
        message=diagnosis.message or plain.message,
        suggestion=diagnosis.suggestion,
    )


def exit_sentence(ending: Ending) -> str:
    """What the exit code says, for an attempt without a readable report."""
    code, report = ending.exit_code, ending.result_error or "no result was written"
    if ending.stop is Stop.LINGERED:
        return f"{ending.why}; {report}"
    if code is None:
        return f"the process could not be ended; {report}"
    if code in KILLED:
        if ending.oom_kills > 0:
            return "killed by the kernel's out-of-memory killer"
        return f"killed from outside by SIGKILL, and not by the kernel's out-of-memory killer; {report}"
    if code < 0:
        return f"ended by {_signal_name(-code)}; {report}"
    return f"ended with exit code {code}; {report}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _phase(ending: Ending) -> str | None:
    return ending.phase.phase if ending.phase else None

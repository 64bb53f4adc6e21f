"""Decides the outcome of an attempt from the evidence after its processes have ended. Pure.

Evidence counts in this order: the child's own report, the tuner's reason for stopping it, the exit code with the
kernel's counters, the error in the log. The log is read only if the child's own error points at another process, or
there is none.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, replace
from enum import StrEnum

from autotune.domain import FailureReason, Outcome, Phase, Pool
from autotune.domain.outcomes import NOT_RETURNED
from autotune.machine.gpu_faults import GpuFault
from autotune.ports import Diagnosis, Framework
from autotune.wording.numbers import format_duration
from trainer.child.contract import SIGNS, CurrentPhase, Nearness, Result, StartupPart, last_error

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_FROM_OUTSIDE = frozenset({*KILLED, *(-one for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))})
"""Exit codes of a process that something else ended: no configuration does."""
_OF_THE_MODEL = (
    "nothing has been trained yet: look for NaN in the model's weights, or generate in bf16 or fp32 if it is fp16"
)
_BY_WHOM = "look for what ends processes here: an out-of-memory daemon (give --memory-limit), a scheduler, a person"
_CYCLE_PHASES = frozenset(phase.value for phase in Phase)
_RANK_KILLED = re.compile(
    r"Signal 9 \(SIGKILL\)|exitcode\s*: -9\b|died with <Signals\.SIGKILL|killed by signal: Killed"
)
"""Messages of torchrun, accelerate and a data loader on a killed process."""


class Stop(StrEnum):
    """Reason why the tuner ended the processes."""

    DEADLINE = "deadline"
    MEMORY = "memory"
    HANG = "hang"
    CANCELLED = "cancelled"
    STRANGER = "stranger"
    GPU_FAULT = "gpu fault"
    """One of the trial's GPUs failed."""
    LINGERED = "lingered"
    NOT_STARTED = "not started"
    SERVER = "server"
    """The trial's rollout server has ended."""
    NOT_READY = "not ready"
    """The rollout server was not ready in time."""
    DISPLACED = "displaced"
    """Another process listens at the rollout server's port."""


REASONS = {
    Stop.DEADLINE: FailureReason.TIMEOUT,
    Stop.MEMORY: FailureReason.OOM,
    Stop.HANG: FailureReason.HANG,
    Stop.CANCELLED: FailureReason.CANCELLED,
    Stop.STRANGER: FailureReason.INFRA,
    Stop.GPU_FAULT: FailureReason.INFRA,
    Stop.NOT_STARTED: FailureReason.INFRA,
    Stop.SERVER: FailureReason.CRASH,
    Stop.NOT_READY: FailureReason.TIMEOUT,
    Stop.DISPLACED: FailureReason.INFRA,
}
OF_SERVER = (Stop.SERVER, Stop.NOT_READY, Stop.DISPLACED)
STUCK_S = 60.0
"""Seconds without progress after which a weight sync counts as stuck at the trial's deadline; a reward after half."""
MARKING = 0
"""The rank that writes its phase; no other rank does."""
READ_ITS_LOG = "read the rollout server's log, server.txt beside the trial's"
PORT_TAKEN = re.compile(r"address already in use|EADDRINUSE", re.IGNORECASE)


@dataclass(frozen=True)
class Ending:
    """Evidence on an attempt whose processes have all ended or cannot be killed."""

    exit_code: int | None
    """Exit code of the child; ``None`` if it never started or could not be killed."""
    seconds: float
    stop: Stop | None = None
    """Reason why the tuner ended the attempt; ``None`` if it ended by itself."""
    why: str = ""
    """Sentence that explains ``stop``."""
    result: Result | None = None
    """The child's own report, if it was written before the tuner stopped the child for another reason."""
    result_error: str = ""
    """Reason why the existing report cannot be read."""
    phase: CurrentPhase | None = None
    """Last phase of the child."""
    oom_kills: int = 0
    """Number of processes that the kernel's out-of-memory killer ended on this machine during the attempt."""
    host_peak: int | None = None
    bad_lines: int = 0
    quarantined: tuple[int, ...] = ()
    gpu_faults: tuple[GpuFault, ...] = ()
    """Faults seen on the trial's GPUs during the attempt."""
    log_tail: str = ""
    server_log: str = ""
    """End of the rollout server's log, if the trial has a server."""
    server_exit: int | None = None
    """Exit code of the rollout server, if it ended before the tuner ended it."""
    served: bool = False
    """True if the rollout server was ready at some time."""
    before: int = 0
    """Number of earlier trials of the process."""
    compiled: bool = False
    """True if a compiler ran during the attempt."""
    silent_s: float = 0.0
    """Seconds since the last sign of progress."""

    @property
    def log_is_servers(self) -> bool:
        """True if the cause is in the rollout server's log."""
        return self.stop in OF_SERVER or (bool(self.server_log) and not self.served)

    @property
    def port_taken(self) -> bool:
        """True if the rollout server could not start because another process had taken its port."""
        if self.stop is Stop.DISPLACED:
            return True
        return self.stop is Stop.SERVER and not self.served and PORT_TAKEN.search(self.server_log) is not None


def outcome_of(ending: Ending, framework: Framework, log_path: str) -> Outcome:
    """Returns the attempt's outcome, with a suggestion if the framework has one."""
    if ending.stop in OF_SERVER:
        outcome = _by_server(ending, framework)
    elif ending.result is not None and not _drowned(ending.stop, ending.result):
        outcome = _reported(ending, ending.result, framework)
    elif ending.stop is not None and ending.stop in REASONS:
        outcome = _wedged(ending, framework, _stopped(ending, REASONS[ending.stop]))
    else:
        outcome = _by_exit(ending, framework)
    outcome = replace(outcome, log_path=log_path)
    begun = (StartupPart.FIRST_BATCH.value, Phase.GENERATE.value)
    untrained = ending.phase is not None and ending.phase.cycle <= 0 and outcome.phase in begun
    if outcome.reason is FailureReason.NAN and untrained:
        outcome = replace(outcome, suggestion=_OF_THE_MODEL)
    if not outcome.ok and not outcome.suggestion:
        outcome = replace(outcome, suggestion=framework.suggest(outcome))
    return outcome


def _stopped(ending: Ending, reason: FailureReason) -> Outcome:
    """Returns the outcome of an attempt that the tuner ended; a sync stuck at the trial's deadline is a hang."""
    pool = Pool.HOST if ending.stop is Stop.MEMORY else None
    late = ending.stop is Stop.DEADLINE and ending.silent_s >= STUCK_S
    if ending.stop is Stop.DEADLINE and ending.silent_s >= STUCK_S / 2 and _phase(ending) == Phase.REWARD.value:
        return Outcome(reason, Phase.REWARD.value, None, f"{NOT_RETURNED} {format_duration(ending.silent_s)}")
    if (late or ending.stop is Stop.HANG) and _phase(ending) == Phase.SYNC.value:
        return Outcome(FailureReason.HANG, Phase.SYNC.value, None, f"weight sync: rank {MARKING} waits; {ending.why}")
    return Outcome(reason, _phase(ending), pool, ending.why)


def _by_server(ending: Ending, framework: Framework) -> Outcome:
    """Returns the outcome of a failed rollout server: by the kernel's counter, else its log, else its end alone."""
    if ending.result is not None and ending.result.reason is not FailureReason.CRASH:
        return _reported(ending, ending.result, framework)
    reason = REASONS[ending.stop] if ending.stop is not None else FailureReason.CRASH
    plain = Outcome(reason, _phase(ending), None, ending.why, READ_ITS_LOG)
    if ending.server_exit in KILLED and ending.oom_kills > 0:
        return replace(plain, reason=FailureReason.OOM, pool=Pool.HOST, suggestion="")
    if ending.server_exit in _FROM_OUTSIDE:
        return replace(plain, reason=FailureReason.INFRA, suggestion=_BY_WHOM)
    found = framework.diagnose(ending.server_log)
    if found is None or found.reason is FailureReason.CRASH or _killed(found):
        return plain
    outcome = replace(_diagnosed(found, plain), message=f"{ending.why}: {found.message}")
    # Whatever the trial was at, it was the server's memory.
    there = replace(outcome, phase=StartupPart.SERVER.value)
    return replace(outcome, suggestion=found.suggestion or framework.suggest(there))


def _drowned(stop: Stop | None, result: Result) -> bool:
    """Tells whether the report only describes the killing of its ranks for the memory limit."""
    return stop is Stop.MEMORY and result.reason in (FailureReason.CRASH, FailureReason.CANCELLED)


def _reported(ending: Ending, result: Result, framework: Framework) -> Outcome:
    if result.ok:
        return Outcome(message=ending.why if ending.stop is Stop.LINGERED else "")
    phase = result.phase.value if result.phase else _phase(ending)
    outcome = Outcome(result.reason or FailureReason.CRASH, phase, result.pool, _by_rank(result))
    own = framework.diagnose(result.detail) or framework.diagnose(result.message)
    if outcome.reason is FailureReason.CANCELLED and ending.stop is None:
        # Nobody here asked for that: a launcher ends all ranks when one has failed, and a scheduler all it knows.
        found = _by_log(ending, framework, outcome, own)
        outside = found.reason is FailureReason.CANCELLED
        return (
            replace(found, reason=FailureReason.INFRA, message=f"{found.message}, from outside") if outside else found
        )
    if outcome.reason is not FailureReason.CRASH:
        return _advised(outcome, own)
    if own is not None and own.nearness is Nearness.CAUSE:
        return _diagnosed(own, outcome)
    if own is None and (last_error(result.detail, SIGNS) or last_error(result.message, SIGNS)):
        return outcome  # an error of unknown text; those of a lost connection are not the cause
    # Its exception only tells of another process, whose words may be in the log.
    return _by_log(ending, framework, outcome, own)


def _by_rank(result: Result) -> str:
    """Returns the report's message; if a rank of several ran out of memory, with the number of that rank."""
    rank = result.data.get("rank") if result.reason is FailureReason.OOM else None
    return result.message if rank is None else f"rank {rank}: {result.message}"


def _by_exit(ending: Ending, framework: Framework) -> Outcome:
    plain = Outcome(FailureReason.CRASH, _phase(ending), None, exit_sentence(ending))
    if ending.exit_code in KILLED and ending.oom_kills > 0:
        return replace(plain, reason=FailureReason.OOM, pool=Pool.HOST)
    if ending.exit_code in _FROM_OUTSIDE and ending.stop is None:
        plain = replace(plain, reason=FailureReason.INFRA, suggestion=_BY_WHOM)
    if ended_by_reward(ending) and not last_error(ending.log_tail, SIGNS):
        message = f"the reward ended the process that called it: {plain.message}"
        return replace(plain, reason=FailureReason.REWARD_ERROR, message=message)
    return _by_log(ending, framework, plain, None)


def ended_by_reward(ending: Ending) -> bool:
    """Tells whether the child exited without a report while the user's reward ran, as ``os._exit`` does."""
    code = ending.exit_code
    left = ending.stop is None and ending.result is None and code is not None and 0 <= code < 128
    return left and _phase(ending) == Phase.REWARD.value


def _by_log(ending: Ending, framework: Framework, plain: Outcome, own: Diagnosis | None) -> Outcome:
    """Returns the outcome by the log, or ``plain`` without a better one; ``own`` diagnoses the child's error."""
    logged = framework.diagnose(ending.log_tail)
    found = _nearer(own, logged)
    if _RANK_KILLED.search(ending.log_tail) and ending.oom_kills > 0:
        said = logged.message if logged is not None and _killed(logged) else ""
        sentence = "a rank was killed by the kernel's out-of-memory killer"
        return replace(plain, reason=FailureReason.OOM, pool=Pool.HOST, message=f"{sentence}: {said}".rstrip(": "))
    if found is None or found.reason is FailureReason.CRASH:
        # What the child met may be what its rollout server had met before.
        served = framework.diagnose(ending.server_log)
        found = served if served is not None and served.reason is not FailureReason.CRASH else found
    if found is None or found.nearness is Nearness.ECHO:
        return _by_line(ending, plain, found)
    if _killed(found):
        sentence = "a rank was killed from outside by SIGKILL, and not by the kernel's out-of-memory killer"
        message = f"{sentence}: {found.message}"
        return replace(plain, reason=FailureReason.INFRA, pool=None, message=message, suggestion=_BY_WHOM)
    return _diagnosed(found, plain)


def _nearer(own: Diagnosis | None, logged: Diagnosis | None) -> Diagnosis | None:
    """Returns whichever diagnosis is nearer to the cause: the child's or the log's."""
    if own is None or logged is None:
        return own or logged
    return logged if logged.nearness > own.nearness else own


def _by_line(ending: Ending, plain: Outcome, echo: Diagnosis | None) -> Outcome:
    """Adds the log's last error line to ``plain``; without one, returns the diagnosis ``echo``, if any."""
    own = "" if ending.result is None else last_error(ending.result.detail, SIGNS)
    said = own or last_error(ending.log_tail, SIGNS)
    if not said:
        return plain if echo is None else _diagnosed(echo, plain)
    if echo is not None:
        return replace(plain, message=said[:400])
    return replace(plain, message=f"{plain.message}; the log says: {said[:400]}")


def _wedged(ending: Ending, framework: Framework, outcome: Outcome) -> Outcome:
    """Returns a hang's or deadline's outcome with the log's cause: one rank may lack memory while others wait."""
    if ending.stop not in (Stop.HANG, Stop.DEADLINE):
        return outcome
    found = framework.diagnose(ending.log_tail)
    if found is None or found.reason is not FailureReason.OOM or _killed(found):
        return _by_line(ending, outcome, None)
    cause = Outcome(FailureReason.OOM, found.phase or outcome.phase, found.pool)
    message = f"{outcome.message}; the log says: {found.message}"
    return replace(outcome, message=message, suggestion=found.suggestion or framework.suggest(cause))


def _killed(diagnosis: Diagnosis) -> bool:
    """Tells whether the diagnosis is a SIGKILL. Only the kernel's counter shows whether memory was the reason."""
    return _RANK_KILLED.search(diagnosis.message) is not None


def _advised(outcome: Outcome, own: Diagnosis | None) -> Outcome:
    """Returns the outcome with the diagnosis's suggestion and start-up part, if both agree on the reason."""
    if own is None or (own.reason, own.pool) != (outcome.reason, outcome.pool):
        return outcome
    return replace(outcome, phase=_place(own, outcome), suggestion=own.suggestion)


def _diagnosed(diagnosis: Diagnosis, plain: Outcome) -> Outcome:
    return replace(
        plain,
        reason=diagnosis.reason,
        pool=diagnosis.pool,
        phase=_place(diagnosis, plain),
        message=diagnosis.message or plain.message,
        suggestion=diagnosis.suggestion,
    )


def _place(diagnosis: Diagnosis, outcome: Outcome) -> str | None:
    """Returns the phase of a failure: the outcome's own within a cycle, else the diagnosis's if it has one."""
    if outcome.phase in _CYCLE_PHASES:
        return outcome.phase
    return diagnosis.phase or outcome.phase


def exit_sentence(ending: Ending) -> str:
    """Returns a sentence on the exit code, for an attempt whose report is missing or unreadable."""
    code, report = ending.exit_code, ending.result_error or "no result was written"
    if ending.stop is Stop.LINGERED:
        return f"{ending.why}; {report}"
    if code is None:
        return f"the process could not be ended; {report}"
    if code in KILLED:
        if ending.oom_kills > 0:
            return "killed by the kernel's out-of-memory killer"
        return f"killed from outside by SIGKILL, and not by the kernel's out-of-memory killer; {report}"
    return f"{ended_by(code)}; {report}"


def ended_by(code: int) -> str:
    """Returns a phrase on the end of a process with this exit code; a negative code is a signal."""
    return f"ended by {_signal_name(-code)}" if code < 0 else f"ended with exit code {code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _phase(ending: Ending) -> str | None:
    return ending.phase.phase if ending.phase else None

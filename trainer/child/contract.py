"""What crosses the process wall: file names, record shapes, and the words both sides share.

The parent writes ``config.json``; the child appends ``metrics.jsonl``, keeps ``phase`` current and
writes ``result.json``. Nothing else passes between them, and nothing is read from stdout.

Standard library only and Python 3.10 syntax: the child runs under the user's own interpreter.
All times are seconds, all memory is bytes, all token counts are tokens.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
import math
import os
import tempfile
import typing
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Iterator, Mapping, Optional, Tuple, Union

CONTRACT_VERSION = 1

TAG_VARIABLE = "AUTOTUNE_TAG"
"""Environment variable every process of a trial inherits; the sweep looks for it."""


class Phase(str, Enum):
    """Where a rank's time goes. Phases do not overlap on one rank."""

    GENERATE = "generate"
    REWARD = "reward"
    LOGPROB = "logprob"
    UPDATE = "update"
    SYNC = "sync"
    WAIT = "wait"
    IDLE = "idle"


class StartupPart(str, Enum):
    """Time before the first cycle, recorded apart from the phases."""

    IMPORT = "import"
    LOAD = "load"
    ENGINE = "engine"
    CAPTURE = "capture"
    FIRST_BATCH = "first_batch"


class Pool(str, Enum):
    """The memory an allocation failed in."""

    DEVICE = "device"
    HOST = "host"
    ROLLOUT_CACHE = "rollout_cache"


class FailureReason(str, Enum):
    """Why a trial did not end OK."""

    OOM = "OOM"
    TIMEOUT = "TIMEOUT"
    HANG = "HANG"
    NAN = "NAN"
    QUALITY = "QUALITY"
    REWARD_ERROR = "REWARD_ERROR"
    ILLEGAL = "ILLEGAL"
    CRASH = "CRASH"
    CANCELLED = "CANCELLED"
    INFRA = "INFRA"


class CycleKind(str, Enum):
    """What lengths the completions of a cycle had."""

    WARMUP = "warmup"
    """Not timed; holds a micro-batch at maximum prompt + completion length."""
    NATURAL = "natural"
    """The model stopped where it wanted to. The only cycles rewards may be read from."""
    RECORDED = "recorded"
    """Lengths replayed from the study's recorded list. The only cycles speed is ranked on."""
    MAXIMUM = "maximum"
    """Every row at ``max_completion_length``."""


class ContractError(ValueError):
    """A file or line does not have the shape the contract gives it."""


@dataclass(frozen=True)
class RunPaths:
    """Every file name of one attempt at a trial, in one place."""

    root: Path

    @property
    def config(self) -> Path:
        return self.root / "config.json"

    @property
    def metrics(self) -> Path:
        return self.root / "metrics.jsonl"

    @property
    def result(self) -> Path:
        return self.root / "result.json"

    @property
    def phase(self) -> Path:
        """Overwritten in place by the child at each phase change: ``<phase> <cycle> <kind>``."""
        return self.root / "phase"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def scratch(self) -> Path:
        """The child's working directory; may be deleted when the trial has ended."""
        return self.root / "scratch"


@dataclass(frozen=True)
class Protocol:
    """How a trial measures: which cycles, how many, and what makes one not count.

    ``lengths`` are completion lengths in tokens, one for each row of an update, replayed in every
    RECORDED cycle; empty means "take them from this trial's own NATURAL cycles".
    Order of cycles: ``warmup``, ``natural``, then ``recorded`` (with ``maximum`` cycles alternating
    after them, R M R M ...).
    """

    warmup: int = 1
    natural: int = 0
    recorded: int = 3
    maximum: int = 0
    lengths: Tuple[int, ...] = ()
    drift_limit: float = 0.03
    """Share by which the reference kernel may differ before and after a cycle."""
    outside_cpu_limit: float = 0.05
    """Share of the machine's CPU time that processes outside the trial may use in a cycle."""
    max_repeats: int = 3
    """Cycles that may be discarded and repeated over the whole trial; then they are kept, marked."""


@dataclass(frozen=True)
class RewardSpec:
    """Which reward the child computes.

    ``kind`` is ``reasoning_gym`` (``name`` is the dataset, ``options`` its arguments) or ``file``
    (``path`` is a Python file, ``name`` the function in it, TRL's signature).
    """

    kind: str
    name: str
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialSpec:
    """``config.json``: all a child needs to run one trial."""

    trial: str
    """``<study id>/<trial number>``, for messages."""
    framework: str
    model: str
    prompts: str
    """JSONL file; each line ``{"prompt": str | list[message], ...columns the reward reads}``."""
    reward: RewardSpec
    settings: Mapping[str, Any]
    """The framework's own arguments, rendered by the parent side (``GRPOConfig`` keys for TRL)."""
    model_settings: Mapping[str, Any]
    """Arguments for loading the model (dtype, attention implementation)."""
    seams: Mapping[str, Any]
    """Knobs the framework has no setting for, reached from outside, by knob name."""
    rows_per_update: int
    max_prompt_length: int
    max_completion_length: int
    protocol: Protocol
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    world_size: int = 1
    seed: int = 0
    memory_limit: Optional[int] = None
    """Bytes for the whole process tree; the child sets ``RLIMIT_DATA`` from it as a backstop."""
    meter: bool = True
    """False runs the same trial with only the cycle's outer clock, to measure the meter itself."""
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    """Workload keys of the user's own configuration, given to the framework unchanged."""
    version: int = CONTRACT_VERSION


@dataclass(frozen=True)
class Peaks:
    """Highest memory of one phase or cycle; ``None`` where the machine has no such figure."""

    device_allocated: Optional[int] = None
    device_reserved: Optional[int] = None
    device_used: Optional[int] = None
    """By the driver (NVML), so it includes what the allocator cannot see."""
    host: Optional[int] = None
    """PSS summed over the trial's process tree, as seen by the child; the parent's watchdog adds its own."""


@dataclass(frozen=True)
class StartupRecord:
    """One part of the start-up, in seconds."""

    part: StartupPart
    seconds: float
    kind: str = "startup"


@dataclass(frozen=True)
class CycleRecord:
    """One whole generate -> ... -> sync round, as one rank saw it."""

    index: int
    cycle_kind: CycleKind
    seconds: float
    phases: Mapping[str, float]
    """Exclusive seconds by ``Phase`` value; with ``idle`` (the unattributed rest) they sum to ``seconds``."""
    completion_tokens: int
    """Distinct completion tokens of all ranks, each once."""
    prompt_tokens: int
    rows: int
    updates: int
    """Optimizer updates in the cycle."""
    computed_tokens: int
    """Tokens the update's forward passes worked on, padding included."""
    lengths: Tuple[int, ...] = ()
    """Completion length of every row, in tokens."""
    peaks: Mapping[str, Peaks] = field(default_factory=dict)
    """By ``Phase`` value; the key ``cycle`` is the whole cycle."""
    cpu_seconds: float = 0.0
    drift: Optional[float] = None
    outside_cpu: Optional[float] = None
    accepted: bool = True
    """False: the clock guard discarded it; it is kept for the record and never ranked on."""
    noisy: bool = False
    """Accepted although the guard objected, because no repeats were left."""
    clipped_share: Optional[float] = None
    groups: int = 0
    zero_std_groups: int = 0
    """Groups whose rewards were all the same (TRL's ``frac_reward_zero_std`` x groups)."""
    reward_mean: Optional[float] = None
    loss: Optional[float] = None
    grad_norm: Optional[float] = None
    logp_mismatch: Optional[float] = None
    rank: int = 0
    started: float = 0.0
    """``time.time()`` at the cycle's start."""
    kind: str = "cycle"

    @property
    def useful_share(self) -> Optional[float]:
        """Useful / computed tokens of the update's forward passes; ``None`` if nothing was computed."""
        if self.computed_tokens <= 0:
            return None
        return (self.completion_tokens + self.prompt_tokens) / self.computed_tokens


@dataclass(frozen=True)
class WorstCaseRecord:
    """The maximum-length micro-batch of the warm-up went through."""

    rows: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    peaks: Peaks = field(default_factory=Peaks)
    kind: str = "worst_case"


@dataclass(frozen=True)
class NoteRecord:
    """Anything worth keeping that is not a measurement: a setting changed, a version, a warning."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "note"


Record = Union[StartupRecord, CycleRecord, WorstCaseRecord, NoteRecord]


@dataclass(frozen=True)
class Result:
    """``result.json``: how the child itself says it ended. Exit codes only confirm it."""

    ok: bool
    reason: Optional[FailureReason] = None
    phase: Optional[Phase] = None
    pool: Optional[Pool] = None
    message: str = ""
    detail: str = ""
    """Last lines of the traceback."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """What a probe or a preparation returns."""
    version: int = CONTRACT_VERSION


def encode(value: Any) -> Any:
    """Dataclass, enum, path or container -> plain JSON values; NaN and infinities become strings."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [encode(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, Path):
        return str(value)
    return value


def dumps(value: Any) -> str:
    """One line of JSON, without NaN or infinity."""
    return json.dumps(encode(value), allow_nan=False, separators=(",", ":"), ensure_ascii=False)


def write_atomic(path: Path, text: str) -> None:
    """Write ``text`` so that a reader sees the old file or the whole new one (temp, fsync, replace)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=str(path.parent), prefix="." + path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, path)
    except BaseException:
        if os.path.exists(name):
            os.unlink(name)
        raise


def decode(shape: Any, value: Any, where: str = "value") -> Any:
    """Plain JSON -> the annotated ``shape``; unknown keys are ignored, so an older reader survives.

    Raises:
        ContractError: naming the place and what was expected there.
    """
    if shape is Any:
        return value
    origin = typing.get_origin(shape)
    arguments = typing.get_args(shape)
    if origin is Union:
        if value is None and type(None) in arguments:
            return None
        return decode(next(a for a in arguments if a is not type(None)), value, where)
    if origin is tuple:
        if not isinstance(value, list):
            raise ContractError("%s: expected a list, got %r" % (where, value))
        return tuple(decode(arguments[0], v, "%s[%d]" % (where, i)) for i, v in enumerate(value))
    if origin is collections.abc.Mapping:
        if not isinstance(value, dict):
            raise ContractError("%s: expected an object, got %r" % (where, value))
        return {str(k): decode(arguments[1], v, "%s.%s" % (where, k)) for k, v in value.items()}
    if isinstance(shape, type) and issubclass(shape, Enum):
        try:
            return shape(value)
        except ValueError:
            allowed = ", ".join(str(m.value) for m in shape)
            raise ContractError("%s: %r is none of %s" % (where, value, allowed)) from None
    if dataclasses.is_dataclass(shape):
        return _decode_dataclass(shape, value, where)
    return _decode_scalar(shape, value, where)


def _decode_dataclass(shape: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise ContractError("%s: expected an object, got %r" % (where, value))
    hints = typing.get_type_hints(shape)
    given = {}
    for f in dataclasses.fields(shape):
        if f.name in value:
            given[f.name] = decode(hints[f.name], value[f.name], "%s.%s" % (where, f.name))
        elif f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING:
            raise ContractError("%s.%s: missing" % (where, f.name))
    return shape(**given)


def _decode_scalar(shape: Any, value: Any, where: str) -> Any:
    if shape is float:
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise ContractError("%s: expected a number, got %r" % (where, value))
        if isinstance(value, str) and value not in ("nan", "inf", "-inf"):
            raise ContractError("%s: expected a number, got %r" % (where, value))
        try:
            return float(value)
        except OverflowError:
            raise ContractError("%s: too large a number" % where) from None
    if shape is int and isinstance(value, bool):
        raise ContractError("%s: expected a whole number, got %r" % (where, value))
    if not isinstance(value, shape):
        raise ContractError("%s: expected %s, got %r" % (where, shape.__name__, value))
    return value


RECORD_SHAPES: Mapping[str, Any] = {
    "startup": StartupRecord,
    "cycle": CycleRecord,
    "worst_case": WorstCaseRecord,
    "note": NoteRecord,
}


def parse_record(line: Union[str, bytes]) -> Record:
    """One line of ``metrics.jsonl``.

    Raises:
        ContractError: the line is not a record (torn, binary, another schema, not finite where a
            measurement must be).
    """
    try:
        text = line.decode("utf-8") if isinstance(line, bytes) else line
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ContractError("not a JSON line: %s" % error) from None
    if not isinstance(value, dict):
        raise ContractError("expected an object, got %s" % type(value).__name__)
    kind = value.get("kind")
    shape = RECORD_SHAPES.get(kind) if isinstance(kind, str) else None
    if shape is None:
        raise ContractError("unknown record kind %r" % (kind,))
    record = decode(shape, value, str(kind))
    _check_figures(record, str(kind))
    if isinstance(record, CycleRecord) and record.seconds <= 0:
        raise ContractError("cycle.seconds: expected a positive number, got %r" % record.seconds)
    return record  # type: ignore[no-any-return]


MAY_BE_NAN = ("loss", "grad_norm", "reward_mean", "logp_mismatch")
"""What training itself can make NaN. Any other figure that is not finite was never measured."""


def _check_figures(value: Any, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ContractError("%s: expected a finite number, got %r" % (where, value))
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise ContractError("%s: more than 64 bits" % where)
    if dataclasses.is_dataclass(value):
        for f in dataclasses.fields(value):
            if f.name not in MAY_BE_NAN:
                _check_figures(getattr(value, f.name), "%s.%s" % (where, f.name))
    elif isinstance(value, Mapping):
        for key, item in value.items():
            _check_figures(item, "%s.%s" % (where, key))
    elif isinstance(value, (list, tuple)):
        for item in value:
            _check_figures(item, where)


def read_spec(path: Path) -> TrialSpec:
    """Raises ``ContractError`` if the file is not a spec of this version."""
    return _read(TrialSpec, path)  # type: ignore[no-any-return]


def read_result(path: Path) -> Result:
    """Raises ``ContractError`` if the file is not a result; ``FileNotFoundError`` if there is none."""
    return _read(Result, path)  # type: ignore[no-any-return]


def _read(shape: Any, path: Path) -> Any:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise ContractError("%s: not JSON: %s" % (path, error)) from None
    decoded = decode(shape, value, path.name)
    if decoded.version != CONTRACT_VERSION:
        raise ContractError("%s: contract version %s, expected %s" % (path, decoded.version, CONTRACT_VERSION))
    return decoded


class PhaseMark:
    """The child's current phase in a small file, rewritten in place; its mtime is the heartbeat.

    One ``pwrite`` of a fixed 64 bytes, so that a phase change costs microseconds and a reader never
    sees a torn mark.
    """

    WIDTH = 64

    def __init__(self, path: Path) -> None:
        self._fd = os.open(str(path), os.O_RDWR | os.O_CREAT, 0o644)

    def set(self, phase: str, cycle: int = -1, cycle_kind: str = "") -> None:
        text = "%s %d %s" % (phase, cycle, cycle_kind)
        os.pwrite(self._fd, text.ljust(self.WIDTH - 1).encode("ascii")[: self.WIDTH - 1] + b"\n", 0)

    def close(self) -> None:
        os.close(self._fd)


@dataclass(frozen=True)
class CurrentPhase:
    """What ``phase`` says: a ``Phase`` or ``StartupPart`` value, the cycle (-1 in start-up), its kind."""

    phase: str
    cycle: int
    cycle_kind: str


def read_phase(path: Path) -> Optional[CurrentPhase]:
    """The child's last mark, or ``None`` if it has not made one."""
    try:
        words = path.read_bytes()[: PhaseMark.WIDTH].decode("ascii", "replace").split()
    except FileNotFoundError:
        return None
    if len(words) < 2 or not words[1].lstrip("-").isdigit():
        return None
    return CurrentPhase(words[0], int(words[1]), words[2] if len(words) > 2 else "")


def iter_complete_lines(data: bytes) -> Iterator[bytes]:
    """The whole lines of ``data``; a last line without its newline is still being written."""
    end = data.rfind(b"\n")
    if end >= 0:
        for line in data[:end].split(b"\n"):
            if line.strip():
                yield line

"""Enums shared by parent and child (phases, pools, failure reasons), and every file name."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

CONTRACT_VERSION = 1

TAG_VARIABLE = "AUTOTUNE_TAG"
"""Environment variable that every process of a trial inherits; the sweep for leftovers searches for it."""

LONGEST_PLACE = 14
"""Longest path, in characters, of a temporary folder in which Ray's socket paths stay within 107, a socket's limit."""

SERVER_VARIABLE = "AUTOTUNE_SERVER_PID"
"""Environment variable with the process id of the trial's rollout server, which is not a foreign process."""


class Phase(str, Enum):
    """Phase of a cycle, to which a rank's time is attributed; phases of one rank do not overlap."""

    GENERATE = "generate"
    REWARD = "reward"
    LOGPROB = "logprob"
    UPDATE = "update"
    SYNC = "sync"
    WAIT = "wait"
    IDLE = "idle"


class StartupPart(str, Enum):
    """Part of the time before the first cycle, recorded separately from the phases."""

    SERVER = "server"
    """Waiting for the rollout server; reported by the parent."""
    SPAWN = "spawn"
    """Time from the request of the process to its first import, including the start of its fork server."""
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

    @property
    def blames_configuration(self) -> bool:
        """True if the configuration is at fault: false for INFRA, REWARD_ERROR and CANCELLED."""
        return self not in (FailureReason.CANCELLED, FailureReason.INFRA, FailureReason.REWARD_ERROR)


class CycleKind(str, Enum):
    """Source of the completion lengths of a cycle."""

    WARMUP = "warmup"
    """Untimed cycle with a micro-batch at maximum prompt and completion length."""
    NATURAL = "natural"
    """Completions end where the model ends them; only these cycles give rewards."""
    RECORDED = "recorded"
    """Lengths replayed from the study's recorded list. The only cycles speed is ranked on."""
    DOUBLE = "double"
    """Twice the recorded lengths, up to ``max_completion_length``."""
    MAXIMUM = "maximum"
    """Every row at ``max_completion_length``."""


class ContractError(ValueError):
    """A file or line whose shape differs from the contract."""


@dataclass(frozen=True)
class RunPaths:
    """All file names of one attempt at a trial."""

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
        """Phase that the child overwrites in place at each change: ``<phase> <cycle> <kind>``."""
        return self.root / "phase"

    @property
    def enough(self) -> Path:
        """The parent's decision after a recorded cycle (``Protocol.looks``): ``<cycle index> go`` or ``... end``."""
        return self.root / "enough"

    @property
    def memory(self) -> Path:
        """Memory of the attempt over time, which the parent writes (``autotune.documents.memory_timeline``)."""
        return self.root / "memory.json"

    @property
    def log(self) -> Path:
        return self.root / "log.txt"

    @property
    def server_log(self) -> Path:
        """Log of the trial's rollout server, if it has one."""
        return self.root / "server.txt"

    @property
    def scratch(self) -> Path:
        """The child's working directory; may be deleted when the trial has ended."""
        return self.root / "scratch"

    @property
    def sockets(self) -> Path:
        """Folder outside ``root`` with a short path, for a framework's sockets.

        The child creates it if needed; the parent removes it after the process tree has ended.
        """
        place = tempfile.gettempdir()
        name = hashlib.sha256(str(self.root).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return Path(place if len(place) <= LONGEST_PLACE else "/tmp") / ("autotune-" + name)  # noqa: S108

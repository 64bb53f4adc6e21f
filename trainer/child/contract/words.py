"""Enums shared by parent and child (phases, pools, failure reasons), and every file name."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

CONTRACT_VERSION = 1

TAG_VARIABLE = "AUTOTUNE_TAG"
"""Environment variable every process of a trial inherits; the sweep looks for it."""

LONGEST_PLACE = 14
"""Characters a folder for temporary files may have for what Ray makes in it to fit into 107, a socket's most."""

SERVER_VARIABLE = "AUTOTUNE_SERVER_PID"
"""Environment variable of a trial beside a rollout server: the server's process, which is no stranger to it."""


class Phase(str, Enum):
    """Phases of a cycle, in which a rank's time is counted. They do not overlap on one rank."""

    GENERATE = "generate"
    REWARD = "reward"
    LOGPROB = "logprob"
    UPDATE = "update"
    SYNC = "sync"
    WAIT = "wait"
    IDLE = "idle"


class StartupPart(str, Enum):
    """Time before the first cycle, recorded apart from the phases."""

    SERVER = "server"
    """The rollout server, which the trial waits for; told by the parent."""
    SPAWN = "spawn"
    """From asking for the process until it begins to import; with it, what it was forked from may be started."""
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
        """Whether the configuration is at fault. INFRA is the machine's fault, CANCELLED is nobody's."""
        return self not in (FailureReason.CANCELLED, FailureReason.INFRA)


class CycleKind(str, Enum):
    """Source of the completion lengths of a cycle."""

    WARMUP = "warmup"
    """Not timed; holds a micro-batch at maximum prompt + completion length."""
    NATURAL = "natural"
    """The model stopped where it wanted to. The only cycles rewards may be read from."""
    RECORDED = "recorded"
    """Lengths replayed from the study's recorded list. The only cycles speed is ranked on."""
    DOUBLE = "double"
    """Twice the recorded lengths, none longer than ``max_completion_length``."""
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
    def enough(self) -> Path:
        """The parent's answer to a recorded cycle of a trial with looks: ``<cycle index> go`` or ``... end``."""
        return self.root / "enough"

    @property
    def memory(self) -> Path:
        """The attempt's memory over its time; the parent's, for people (``autotune.documents.memory_timeline``)."""
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
        """A folder outside ``root`` with a short path, for what a framework has sockets in.

        The child that needs it makes it; the parent removes it when the process tree is gone.
        """
        place = tempfile.gettempdir()
        name = hashlib.sha256(str(self.root).encode("utf-8", "surrogateescape")).hexdigest()[:12]
        return Path(place if len(place) <= LONGEST_PLACE else "/tmp") / ("autotune-" + name)  # noqa: S108

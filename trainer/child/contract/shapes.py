"""Dataclasses exchanged between parent and child. Times are seconds, memory is bytes, counts are tokens."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, List, Mapping, Optional, Tuple, Union

from .words import CONTRACT_VERSION, CycleKind, FailureReason, Phase, Pool, StartupPart


@dataclass(frozen=True)
class ProcessUse:
    """Resource use of one rank's process in one cycle, from its own counters; a missing counter is ``None`` or empty.
    With verl, of all processes, from the second step on."""

    main_thread: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of the thread that drives the training, by ``Phase`` value. A backward pass on a GPU is driven by a
    thread of autograd's."""
    all_threads: Mapping[str, float] = field(default_factory=dict)
    """CPU seconds of every thread of the process, by ``Phase`` value."""
    system_seconds: Optional[float] = None
    """CPU seconds of all threads in the kernel: page faults and calls of the driver."""
    minor_faults: Optional[int] = None
    """Page faults without a disk: fresh memory, and pages a forked process copies."""
    preempted: Optional[int] = None
    """Times the kernel took a CPU from a thread that still had work."""
    gc_seconds: Optional[float] = None
    """Seconds of Python's garbage collector."""
    new_shapes: Optional[int] = None
    """New (rows, tokens) shapes of forward passes in this cycle; a decode step's tokens are those in the KV cache."""
    device_allocations: Optional[int] = None
    """Times CUDA's caching allocator requested memory from the driver."""
    device_frees: Optional[int] = None
    """Times the allocator returned memory to the driver."""
    device_ooms: Optional[int] = None
    """Times neither the allocator's cache nor the driver had memory."""
    new_segments: Optional[int] = None
    """Segments of the allocator at the cycle's end, minus those at its start."""
    reserved_growth: Optional[int] = None
    """Reserved bytes at the cycle's end, minus those at its start."""
    split_bytes: Optional[int] = None
    """Free bytes at the cycle's end in segments that are partly in use, so that they cannot be returned."""
    gradient_sync_seconds: Optional[float] = None
    """Seconds from the first gradient bucket to be summed over ranks to the last one summed, in the cycle's last
    update, waiting for slower ranks included. DistributedDataParallel only."""
    gradient_sync_hidden: Optional[float] = None
    """Share of these seconds, 0 to 1, during which the backward pass still computed."""


@dataclass(frozen=True)
class GpuUse:
    """NVML's readings of the trial's GPUs in a phase or cycle, read from outside several times a second.

    Shares, clocks and temperatures are means over samples and GPUs; joules and bytes are sums over GPUs. ``None`` for a
    figure that NVML does not report for the GPU.
    """

    samples: int = 0
    """Number of readings; NVML's figures are means of up to a second, so few readings describe a short phase badly."""
    busy: Optional[float] = None
    """Share of the time in which a kernel ran, 0 to 1."""
    memory_busy: Optional[float] = None
    """Share of the time in which device memory was read or written, 0 to 1."""
    sm_mhz: Optional[float] = None
    sm_mhz_max: Optional[float] = None
    """Highest possible clock of the multiprocessors, in MHz."""
    joules: Optional[float] = None
    pcie_sent: Optional[float] = None
    """Bytes from the GPUs to the host."""
    pcie_received: Optional[float] = None
    """Bytes from the host to the GPUs."""
    nvlink_sent: Optional[float] = None
    nvlink_received: Optional[float] = None
    power_capped: Optional[float] = None
    """Share of the samples in which the driver lowered the clock for power, 0 to 1."""
    hot: Optional[float] = None
    """Share of the samples in which the driver lowered the clock for heat, 0 to 1."""
    celsius: Optional[float] = None
    """Highest temperature of a GPU, in degrees Celsius."""


@dataclass(frozen=True)
class Protocol:
    """Measurement protocol of a trial: the kinds and numbers of its cycles, and the limits of a disturbed cycle.

    ``lengths`` are completion lengths in tokens, one for each row of an update, replayed in every RECORDED cycle; empty
    means "take them from this trial's own NATURAL cycles", which then come before the RECORDED ones. Order of cycles:
    ``warmup``, ``recorded``, ``natural``, ``maximum``, ``double``.
    """

    warmup: int = 1
    natural: int = 0
    recorded: int = 3
    maximum: int = 0
    lengths: Tuple[int, ...] = ()
    outside_cpu_limit: float = 0.05
    """Share of the machine's CPU time that may be taken from the trial in a cycle (``CycleRecord.outside_cpu``)."""
    max_repeats: int = 3
    """Disturbed cycles of the whole trial that are discarded and repeated; further ones are kept and marked."""
    looks: Tuple[int, ...] = ()
    """Numbers of recorded cycles after which the parent may end the trial; ``recorded`` is then the most. After every
    recorded cycle the child waits for ``RunPaths.enough``. Empty: the child does not wait."""
    double: int = 0
    """Cycles at twice ``lengths``, up to the longest completion."""

    def objects(self, outside_cpu: Optional[float]) -> bool:
        """Tells whether a cycle with this share of CPU use by others counts as disturbed; False if unmeasured."""
        return outside_cpu is not None and outside_cpu > self.outside_cpu_limit


@dataclass(frozen=True)
class RewardSpec:
    """A reward that the child computes; each has TRL's signature.

    ``kind`` is
    ``reasoning_gym``: ``name`` is the dataset, ``options`` its arguments;
    ``file``: ``path`` is a Python file, ``name`` the function in it;
    ``import``: ``name`` is a dotted path, resolved from the folder ``path`` first;
    ``trl``: ``name`` is a reward of TRL's own script;
    ``ms_swift``: ``name`` is a reward of ms-swift or of the user's plugins, whose paths are relative to ``path``;
    ``open_r1``: ``name`` is a reward in the registry of Open-R1, whose checkout is ``folder``;
    ``math_verify``: the package ``math-verify`` in a process that can be killed.
    """

    kind: str
    name: str
    path: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    sha256: str = ""
    """SHA-256 of the user's file, so that a changed reward is detected; empty without a file."""
    folder: str = ""
    """Working directory for loading and calling the reward, as in the user's own run; empty: the process's own."""


@dataclass(frozen=True)
class TrialSpec:
    """``config.json``: all a child needs to run one trial."""

    trial: str
    """``<study id>/<trial number>``, for messages."""
    framework: str
    model: str
    prompts: str
    """JSONL file; each line ``{"prompt": str | list[message], ...columns the reward reads}``."""
    rewards: Tuple[RewardSpec, ...]
    settings: Mapping[str, Any]
    """The framework's own arguments, rendered by the parent side (``GRPOConfig`` keys for TRL)."""
    model_settings: Mapping[str, Any]
    """Arguments for loading the model (dtype, attention implementation)."""
    seams: Mapping[str, Any]
    """Knob -> value, for knobs that the framework has no setting for and that patches set."""
    rows_per_update: int
    max_prompt_length: int
    max_completion_length: int
    protocol: Protocol
    device: str = "cpu"
    """``cpu`` or ``cuda``."""
    world_size: int = 1
    seed: int = 0
    memory_limit: Optional[int] = None
    """Limit of the whole process tree, in bytes; the child derives ``RLIMIT_DATA`` from it as a backstop."""
    meter: bool = True
    """False runs the same trial with only the cycle's outer clock, to measure the meter itself."""
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    """Workload keys of the user's own configuration, given to the framework unchanged."""
    revision: str = ""
    """Commit of a model from the hub; empty for a folder."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the parent sets for the trial's processes before they start."""
    child: str = ""
    """Folder of the module that runs the trial, for a framework of another package; empty for this package's."""
    version: int = CONTRACT_VERSION


@dataclass(frozen=True)
class Peaks:
    """Highest memory of one phase or cycle, in bytes; ``None`` for a figure that the machine does not have."""

    device_allocated: Optional[int] = None
    device_reserved: Optional[int] = None
    device_used: Optional[int] = None
    """Device memory in use, from the driver: memory outside the allocator and of other processes included."""
    host: Optional[int] = None
    """Peak resident size of the process, corrected once a cycle to its process tree's PSS (``memory.HostPeak``)."""


@dataclass(frozen=True)
class StartupRecord:
    """A part of the start-up, in seconds."""

    part: StartupPart
    seconds: float
    kind: str = "startup"


@dataclass(frozen=True)
class CycleRecord:
    """One complete cycle from generation to weight sync, as measured by one rank."""

    index: int
    cycle_kind: CycleKind
    seconds: float
    phases: Mapping[str, float]
    """Exclusive seconds by ``Phase`` value; with ``idle`` (the unattributed rest) the sum is ``seconds``."""
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
    """Memory peaks by ``Phase`` value; the key ``cycle`` is the whole cycle."""
    cpu_seconds: float = 0.0
    drift: Optional[float] = None
    """Relative difference of the reference kernel's times before and after the cycle; never a reason to discard it."""
    outside_cpu: Optional[float] = None
    """Share of the machine's CPU time that was taken from the trial: used by other programs while its own threads
    waited for a CPU, or stolen by the hypervisor."""
    reference_seconds: Optional[float] = None
    """Seconds of one product of the reference kernel, the mean of before and after the cycle: the machine's speed."""
    accepted: bool = True
    """False if the clock guard discarded the cycle, or it was still warm-up; such a cycle is never ranked on."""
    noisy: bool = False
    """Disturbed and not repeated (natural, no repeats left, or repeats in vain): its time is an upper bound."""
    clipped_share: Optional[float] = None
    groups: int = 0
    zero_std_groups: int = 0
    """Groups whose rewards are all equal (TRL's ``frac_reward_zero_std`` x groups)."""
    stale_rows: int = 0
    """Completions, besides ``rows``, dropped because their weights were too old; their tokens do not count."""
    reward_mean: Optional[float] = None
    loss: Optional[float] = None
    grad_norm: Optional[float] = None
    logp_mismatch: Optional[float] = None
    """Mean over tokens of exp(|log-prob of the trainer - log-prob of the rollout engine|); 1 for equal log-probs."""
    preemptions: Optional[int] = None
    """Sequences that the rollout engine restarted because its KV cache was full."""
    cache_usage: Optional[float] = None
    """Highest share of the rollout engine's KV cache in use, 0 to 1."""
    engine_bytes: Optional[int] = None
    """Memory that building the rollout engine took, in bytes: device memory, or on a CPU resident memory."""
    alloc_retries: Optional[int] = None
    """Times the CUDA allocator freed its cache and retried."""
    process: Optional[ProcessUse] = None
    gpu: Mapping[str, GpuUse] = field(default_factory=dict)
    """Use of all GPUs of the trial, in rank 0's record; by ``Phase`` value, ``cycle`` is the whole cycle. The parent
    adds the figures when it reads the record."""
    rank: int = 0
    started: float = 0.0
    """``time.time()`` at the cycle's start."""
    kind: str = "cycle"

    @property
    def useful_share(self) -> Optional[float]:
        """Useful divided by computed tokens of the update's forward passes; ``None`` without computed tokens."""
        if self.computed_tokens <= 0:
            return None
        return (self.completion_tokens + self.prompt_tokens) / self.computed_tokens


@dataclass(frozen=True)
class WorstCaseRecord:
    """The maximum-length micro-batch of the warm-up succeeded."""

    rows: int
    prompt_tokens: int
    completion_tokens: int
    seconds: float
    peaks: Peaks = field(default_factory=Peaks)
    kind: str = "worst_case"


@dataclass(frozen=True)
class NoteRecord:
    """A note that is not a measurement: a changed setting, a version, a warning."""

    name: str
    data: Mapping[str, Any] = field(default_factory=dict)
    kind: str = "note"


Record = Union[StartupRecord, CycleRecord, WorstCaseRecord, NoteRecord]


@dataclass(frozen=True)
class Result:
    """``result.json``: the child's own report of its end; exit codes only confirm the report."""

    ok: bool
    reason: Optional[FailureReason] = None
    phase: Optional[Phase] = None
    pool: Optional[Pool] = None
    message: str = ""
    detail: str = ""
    """Last lines of the traceback."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Facts that a probe or a preparation returns."""
    version: int = CONTRACT_VERSION


def inputs_of(spec: TrialSpec) -> List[Tuple[str, str]]:
    """Returns (kind, path) of every input that has an absolute path."""
    named = [("model folder", spec.model), ("prompts file", spec.prompts)]
    kinds = {"file": "reward file", "import": "folder of the reward"}
    named += [(kinds[reward.kind], reward.path) for reward in spec.rewards if reward.kind in kinds]
    return [(what, path) for what, path in named if os.path.isabs(path)]


def missing_input(spec: TrialSpec) -> Optional[str]:
    """Returns a sentence on the first missing input; ``None`` if all exist."""
    for what, path in inputs_of(spec):
        if not os.path.exists(path):
            return "the %s %s is not there" % (what, path)
    return None

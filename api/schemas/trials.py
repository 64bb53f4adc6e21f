"""Shapes of trials and their cycles."""

from __future__ import annotations

from pydantic import Field

from api.schemas.base import Bytes, Knob, Rate, Seconds, Shape, Share, Time
from autotune.domain import CycleKind, FailureReason, Pool, TrialKind, TrialState
from autotune.insights.blame import Resource


class Change(Shape):
    """A knob that differs from the baseline."""

    baseline: Knob | None
    here: Knob | None


class Ceiling(Shape):
    """Speed bounds by which a trial was ended early, because it cannot win."""

    at_most_tokens_per_hour: Rate | None = Field(description="Upper bound of the trial.")
    best_at_least_tokens_per_hour: Rate | None = Field(description="Lower bound of the best competing trial.")
    best_trial: int
    cycles: int = Field(description="Number of recorded cycles behind the bounds.")
    by_phases: bool = Field(description="True if the bound is from phase times, not from the noise of several cycles.")


class Outcome(Shape):
    """Outcome of a trial."""

    ok: bool
    reason: FailureReason | None = Field(strict=False, description="`null` if and only if `ok`.")
    phase: str | None = Field(description="Phase, or part of the start-up, in which the trial failed.")
    pool: Pool | None = Field(strict=False, description="Memory pool that ran out.")
    message: str
    suggestion: str
    sentence: str
    log_path: str | None
    fresh_worker: bool
    ceiling: Ceiling | None = Field(description="Speed bounds of a PRUNED trial.")


class Trial(Shape):
    """One execution of one configuration."""

    number: int = Field(description="Number of the trial; 0 is the baseline.")
    kind: TrialKind = Field(strict=False)
    state: TrialState = Field(strict=False)
    source: str = Field(description="Name of the part that proposed the trial.")
    attempt: int = Field(description="Attempts started so far.")
    pair: int | None = Field(description="Number of the confirmation's A/B round.")
    configuration: dict[str, Knob]
    changes: dict[str, Change] = Field(description="Knobs that differ from the baseline.")
    rows_per_update: int
    tokens_per_hour: Rate | None
    gpus: int = Field(description="GPUs of the trial, including those of a rollout server; 0 on a CPU.")
    tokens_per_hour_per_gpu: Rate | None
    at_most_tokens_per_hour: Rate | None = Field(description="Upper bound of a PRUNED trial, which cannot win.")
    speed_cycles: int = Field(description="Number of timed cycles behind the speed.")
    feasible: bool = Field(description="True if the trial ended OK and its worst case fitted.")
    emulated: bool = Field(description="True if FP8 was emulated: the speed is not the hardware's; never recommended.")
    worst_case_passed: bool
    outcome: Outcome | None
    startup_seconds: dict[str, float]
    host_peak_bytes: Bytes | None = Field(description="Highest summed PSS of the process tree.")
    device_peak_bytes: Bytes | None
    created_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    wall_seconds: Seconds | None = Field(description="Seconds of all attempts, including start-up.")


class Trials(Shape):
    """A page of a study's trials."""

    study: str
    trials: list[Trial]
    total: int = Field(description="Number of trials on all pages.")
    next_cursor: str | None = Field(description="`cursor` of the next page; `null` on the last page.")


class Protocol(Shape):
    """Measurement protocol of a trial."""

    warmup_cycles: int
    natural_cycles: int
    recorded_cycles: int
    maximum_cycles: int
    double_cycles: int
    recorded_lengths_tokens: list[int]
    outside_cpu_limit_share: Share | None
    max_repeats: int
    looks_cycles: list[int] = Field(description="Numbers of recorded cycles after which the trial may end early.")


class PeakBytes(Shape):
    """Highest memory of a phase; `null` where the machine has no such figure."""

    device_allocated_bytes: Bytes | None
    device_reserved_bytes: Bytes | None
    device_used_bytes: Bytes | None
    host_bytes: Bytes | None


class ProcessUse(Shape):
    """Resource use of a rank's process in a cycle, by its own counters; `null` or empty without such a counter."""

    main_thread_cpu_seconds: dict[str, float | None] = Field(description="CPU seconds of the main thread, by phase.")
    all_threads_cpu_seconds: dict[str, float | None] = Field(description="CPU seconds of all threads, by phase.")
    system_cpu_seconds: Seconds | None = Field(description="CPU seconds of all threads in kernel mode.")
    minor_faults: int | None = Field(description="Page faults that needed no disk read.")
    preempted: int | None = Field(description="Involuntary context switches.")
    gc_seconds: Seconds | None = Field(description="Seconds of Python's garbage collector.")
    new_shapes: int | None = Field(description="Forward-pass shapes (rows, tokens) that no earlier cycle had.")
    device_allocations: int | None = Field(description="Requests of CUDA's allocator to the driver for memory.")
    device_frees: int | None = Field(description="Times CUDA's allocator returned memory to the driver.")
    device_ooms: int | None = Field(description="Out-of-memory errors of CUDA's allocator.")
    new_segments: int | None = Field(description="Growth of the allocator's segments over the cycle.")
    reserved_growth_bytes: int | None = Field(description="Growth of the allocator's reserved bytes over the cycle.")
    split_bytes: Bytes | None = Field(description="Free bytes at the end, in segments that are partly in use.")
    gradient_sync_seconds: Seconds | None = Field(description="Seconds of gradient reduction in the last update.")
    gradient_sync_hidden_share: Share | None = Field(description="Share that overlaps the backward pass.")


class GpuUse(Shape):
    """Utilization of the GPUs in a phase, by NVML: means over samples and GPUs; joules and bytes are sums over GPUs."""

    samples: int = Field(description="Number of NVML samples; few make a short phase's figures unreliable.")
    busy_share: Share | None = Field(description="Share of time in which a kernel ran.")
    memory_busy_share: Share | None = Field(description="Share of time in which device memory was read or written.")
    sm_mhz: float | None
    sm_mhz_max: float | None = Field(description="Highest SM clock of the GPU, in MHz.")
    joules: float | None
    pcie_sent_bytes: float | None = Field(description="Bytes sent to the host.")
    pcie_received_bytes: float | None = Field(description="Bytes received from the host.")
    nvlink_sent_bytes: float | None
    nvlink_received_bytes: float | None
    power_capped_share: Share | None = Field(description="Share of samples in which the power limit reduced the clock.")
    hot_share: Share | None = Field(description="Share of samples in which heat reduced the clock.")
    celsius: float | None = Field(description="Highest temperature, in degrees Celsius.")


class Cycle(Shape):
    """One cycle from generation to weight sync, as measured by one rank."""

    index: int
    rank: int
    kind: CycleKind = Field(strict=False)
    started_at: Time | None
    seconds: Seconds | None
    phase_seconds: dict[str, float | None]
    completion_tokens: int
    prompt_tokens: int
    computed_tokens: int
    tokens_per_hour: Rate | None
    useful_share: Share | None = Field(description="Useful tokens / computed tokens.")
    rows: int
    updates: int
    lengths_tokens: list[int]
    clipped_share: Share | None
    peaks: dict[str, PeakBytes]
    cpu_seconds: Seconds | None
    drift_share: Share | None
    outside_cpu_share: Share | None
    reference_seconds: Seconds | None = Field(description="Seconds of the reference kernel around the cycle.")
    accepted: bool = Field(description="False: the clock guard discarded the cycle.")
    noisy: bool
    groups: int | None
    zero_std_groups: int | None
    stale_rows: int | None = Field(description="Completions dropped because older weights generated them.")
    reward_mean: float | None
    loss: float | None
    grad_norm: float | None
    logp_mismatch: float | None = Field(description="Mean of exp(|log-prob of the trainer - of the engine|).")
    preemptions: int | None = Field(description="Sequences that the rollout engine preempted and recomputed.")
    cache_usage_share: Share | None = Field(description="Highest share of the KV cache in use.")
    engine_bytes: int | None = Field(description="Bytes that the rollout engine took when it was built.")
    alloc_retries: int | None = Field(description="Retries of the CUDA allocator.")
    process: ProcessUse | None = Field(description="For verl, all processes together, without phases.")
    gpu: dict[str, GpuUse] = Field(description="By phase, and `cycle`: use of all GPUs in cycles of rank 0, by NVML.")


class PhaseOfUse(Shape):
    """Mean time and resource use of one phase, over the timed cycles."""

    seconds: Seconds | None
    main_thread_share: float | None = Field(description="Share of a core used by the thread that drives the training.")
    cores: float | None = Field(description="Mean number of cores used by all threads of the process.")
    watts: float | None = Field(description="Mean power of all GPUs together, in watts.")
    gpu: GpuUse


class Blame(Shape):
    """The bottleneck: the resource that limits the speed."""

    resource: Resource = Field(strict=False)
    phase: str = Field(description="Phase of the bottleneck; `cycle` for the whole cycle.")
    sentence: str


class Usage(Shape):
    """Mean resource use over a trial's timed cycles, the bottleneck, and the share of the roofline reached."""

    cycles: int
    phases: dict[str, PhaseOfUse] = Field(description="By phase; `cycle` is the whole cycle.")
    joules_per_token: float | None = Field(description="Energy of all GPUs for one completion token.")
    device_allocations_per_cycle: float | None = Field(description="Requests to the driver for memory.")
    alloc_retries_per_cycle: float | None
    gradient_sync_exposed_seconds: Seconds | None = Field(description="Seconds per cycle that only reduce gradients.")
    blame: Blame | None = Field(description="`null` if too little was recorded.")
    roofline_share: float | None = Field(description="Share of the GPU's roofline speed; `null` if unknown.")


class Gpu(Shape):
    """A GPU of a trial."""

    index: int = Field(description="Number in `nvidia-smi` on the GPU's machine.")
    uuid: str


class Place(Shape):
    """Slot of a trial: its node and GPUs."""

    name: str | None = Field(description="`null` if the slot is a whole machine without GPUs.")
    node: str | None = Field(description="Name of the node; `null` if there is only one.")
    gpus: list[Gpu] = Field(description="GPUs of the slot; empty on a CPU.")


class TrialWithCycles(Trial):
    """A trial with its protocol and every cycle."""

    protocol: Protocol
    cycles: list[Cycle]
    place: Place
    usage: Usage | None = Field(description="`null` if not recorded.")


class OneTrial(Shape):
    """A trial in full."""

    study: str
    trial: TrialWithCycles


class Cycles(Shape):
    """A page of a trial's cycles."""

    study: str
    trial: int
    cycles: list[Cycle]
    total: int = Field(description="Number of cycles on all pages.")
    next_cursor: str | None = Field(description="`cursor` of the next page; `null` on the last page.")


class Moment(Shape):
    """A moment of an attempt."""

    seconds: Seconds = Field(description="Seconds since the attempt began.")
    phase: str | None = Field(description="Phase or part of the start-up; `null` before the first.")
    cycle: int | None = Field(description="Number of the cycle; `null` in the start-up.")


class HostMemory(Moment):
    """Memory of the process tree at one moment."""

    host_bytes: Bytes = Field(description="Summed PSS of the process tree, in bytes.")


class DeviceMemory(Moment):
    """Memory of the GPUs at one moment."""

    device_used_bytes: Bytes = Field(description="Memory in use of the fullest GPU, by the driver, in bytes.")


class MemoryTimeline(Shape):
    """Memory of an attempt at a trial over time; each series has at most 300 points, ascending in time."""

    study: str
    trial: int
    attempt: int
    memory_limit_bytes: Bytes | None = Field(description="Limit of the process tree, in bytes; `null`: none.")
    began_at: Time | None
    host: list[HostMemory] = Field(description="Sampled ten times per second; each point is its interval's highest.")
    device: list[DeviceMemory] = Field(description="Sampled every five seconds; empty without a GPU.")

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

    at_most_tokens_per_hour: Rate | None = Field(description="What the trial can reach at most.")
    best_at_least_tokens_per_hour: Rate | None = Field(description="What the best it competes with has at least.")
    best_trial: int
    cycles: int = Field(description="Recorded cycles this rests on.")
    by_phases: bool = Field(description="By the phases of its first cycles, not by the noise of several.")


class Outcome(Shape):
    """Outcome of a trial."""

    ok: bool
    reason: FailureReason | None = Field(strict=False, description="`null` exactly when `ok`.")
    phase: str | None = Field(description="Phase or part of the start-up.")
    pool: Pool | None = Field(strict=False, description="Memory that ran out.")
    message: str
    suggestion: str
    sentence: str
    log_path: str | None
    fresh_worker: bool
    ceiling: Ceiling | None = Field(description="Of a PRUNED trial.")


class Trial(Shape):
    """One execution of one configuration."""

    number: int = Field(description="0 is the baseline.")
    kind: TrialKind = Field(strict=False)
    state: TrialState = Field(strict=False)
    source: str = Field(description="Who proposed it.")
    attempt: int = Field(description="Attempts started so far.")
    pair: int | None = Field(description="A/B round of a confirmation, whose members ran in turns.")
    configuration: dict[str, Knob]
    changes: dict[str, Change] = Field(description="Knobs that differ from the baseline.")
    rows_per_update: int
    tokens_per_hour: Rate | None
    gpus: int = Field(description="Held, a rollout server's included; 0 on a CPU.")
    tokens_per_hour_per_gpu: Rate | None
    at_most_tokens_per_hour: Rate | None = Field(description="Bound of a PRUNED trial, which cannot win.")
    speed_cycles: int = Field(description="Whole cycles the speed rests on.")
    feasible: bool = Field(description="Finished, and through the longest completions.")
    emulated: bool = Field(description="It ran FP8 in emulation: its speed is nobody's, and it is never recommended.")
    worst_case_passed: bool
    outcome: Outcome | None
    startup_seconds: dict[str, float]
    host_peak_bytes: Bytes | None = Field(description="Highest summed PSS of the process tree.")
    device_peak_bytes: Bytes | None
    created_at: Time | None
    started_at: Time | None
    finished_at: Time | None
    wall_seconds: Seconds | None = Field(description="Of all attempts, start-up included.")


class Trials(Shape):
    """A page of a study's trials."""

    study: str
    trials: list[Trial]
    total: int = Field(description="Number of trials on all pages.")
    next_cursor: str | None = Field(description="For `cursor` of the next page; `null` at the end.")


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

    main_thread_cpu_seconds: dict[str, float | None] = Field(description="By phase, of the training's own thread.")
    all_threads_cpu_seconds: dict[str, float | None] = Field(description="By phase, of every thread.")
    system_cpu_seconds: Seconds | None = Field(description="Of all threads' CPU seconds, those in the kernel.")
    minor_faults: int | None = Field(description="Page faults without a disk.")
    preempted: int | None = Field(description="Times a CPU was taken from a thread that still had work.")
    gc_seconds: Seconds | None = Field(description="Of Python's garbage collector.")
    new_shapes: int | None = Field(description="(rows, tokens) shapes of forward passes that no cycle before had.")
    device_allocations: int | None = Field(description="Times CUDA's allocator asked the driver for memory.")
    device_frees: int | None = Field(description="Times it gave memory back to the driver.")
    device_ooms: int | None = Field(description="Times neither its cache nor the driver had memory.")
    new_segments: int | None = Field(description="Segments it held at the end, less those at the start.")
    reserved_growth_bytes: int | None = Field(description="Bytes reserved at the end, less those at the start.")
    split_bytes: Bytes | None = Field(description="Free at the end, but of segments partly in use.")
    gradient_sync_seconds: Seconds | None = Field(description="Seconds of the last update that sum gradients.")
    gradient_sync_hidden_share: Share | None = Field(description="Of them, while the backward pass still computed.")


class GpuUse(Shape):
    """Utilization of the GPUs in a phase, by NVML: means over samples and GPUs; joules and bytes are sums over GPUs."""

    samples: int = Field(description="Readings this rests on; few say little of a short phase.")
    busy_share: Share | None = Field(description="Of the time in which a kernel ran.")
    memory_busy_share: Share | None = Field(description="Of the time in which device memory was read or written.")
    sm_mhz: float | None
    sm_mhz_max: float | None = Field(description="What that clock can be at most.")
    joules: float | None
    pcie_sent_bytes: float | None = Field(description="To the host.")
    pcie_received_bytes: float | None = Field(description="From the host.")
    nvlink_sent_bytes: float | None
    nvlink_received_bytes: float | None
    power_capped_share: Share | None = Field(description="Of the samples with the clock held down for power.")
    hot_share: Share | None = Field(description="Of the samples with the clock held down for heat.")
    celsius: float | None = Field(description="Highest temperature.")


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
    useful_share: Share | None = Field(description="Useful over computed tokens.")
    rows: int
    updates: int
    lengths_tokens: list[int]
    clipped_share: Share | None
    peaks: dict[str, PeakBytes]
    cpu_seconds: Seconds | None
    drift_share: Share | None
    outside_cpu_share: Share | None
    reference_seconds: Seconds | None = Field(description="Seconds of the reference kernel just before and after.")
    accepted: bool = Field(description="False: the clock guard discarded it.")
    noisy: bool
    groups: int | None
    zero_std_groups: int | None
    stale_rows: int | None = Field(description="Completions that were dropped because their weights were too old.")
    reward_mean: float | None
    loss: float | None
    grad_norm: float | None
    logp_mismatch: float | None = Field(description="Mean of exp(|log-prob of the trainer - of the engine|).")
    preemptions: int | None = Field(description="Sequences the rollout engine had to start again.")
    cache_usage_share: Share | None = Field(description="Highest share of the KV cache in use.")
    engine_bytes: int | None = Field(description="Memory the rollout engine took when it was built.")
    alloc_retries: int | None = Field(description="Retries of the CUDA allocator.")
    process: ProcessUse | None = Field(description="Of verl all processes together, without phases and threads.")
    gpu: dict[str, GpuUse] = Field(description="By phase, and `cycle`: use of all GPUs in cycles of rank 0, by NVML.")


class PhaseOfUse(Shape):
    """Mean time and resource use of one phase, over the timed cycles."""

    seconds: Seconds | None
    main_thread_share: float | None = Field(description="Of a core, by the thread that drives the training.")
    cores: float | None = Field(description="Used by all threads of the process.")
    watts: float | None = Field(description="Of all GPUs.")
    gpu: GpuUse


class Blame(Shape):
    """The bottleneck: the resource that limits the speed."""

    resource: Resource = Field(strict=False)
    phase: str = Field(description="`cycle` where it is all of it.")
    sentence: str


class Usage(Shape):
    """Mean resource use over a trial's timed cycles, the bottleneck, and the share of the roofline reached."""

    cycles: int
    phases: dict[str, PhaseOfUse] = Field(description="By phase; `cycle` is the whole cycle.")
    joules_per_token: float | None = Field(description="Energy of all GPUs for one completion token.")
    device_allocations_per_cycle: float | None = Field(description="Calls of the driver for memory.")
    alloc_retries_per_cycle: float | None
    gradient_sync_exposed_seconds: Seconds | None = Field(description="Seconds of a cycle that only sum gradients.")
    blame: Blame | None = Field(description="`null` where too little was recorded to say.")
    roofline_share: float | None = Field(description="Of what this GPU could do at most; `null` if it is not known.")


class Gpu(Shape):
    """A GPU of a trial."""

    index: int = Field(description="As `nvidia-smi` counts on its machine.")
    uuid: str


class Place(Shape):
    """Slot of a trial: its node and GPUs."""

    name: str | None = Field(description="`null` of one that has a machine without GPUs to itself.")
    node: str | None = Field(description="The machine; `null` where there is only one.")
    gpus: list[Gpu] = Field(description="That the trial was given; empty on a CPU.")


class TrialWithCycles(Trial):
    """A trial with its protocol and every cycle."""

    protocol: Protocol
    cycles: list[Cycle]
    place: Place
    usage: Usage | None = Field(description="`null` where it was not recorded.")


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
    next_cursor: str | None = Field(description="For `cursor` of the next page; `null` at the end.")


class Moment(Shape):
    """A moment of an attempt."""

    seconds: Seconds = Field(description="Seconds since the attempt began.")
    phase: str | None = Field(description="Phase or part of the start-up it was in; `null` before the first.")
    cycle: int | None = Field(description="`null` in the start-up.")


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
    memory_limit_bytes: Bytes | None = Field(description="Of the process tree; `null`: it has none.")
    began_at: Time | None
    host: list[HostMemory] = Field(description="Looked at ten times a second; each the highest of its stretch of time.")
    device: list[DeviceMemory] = Field(description="Looked at every five seconds; empty without a GPU.")

"""Finds the phase and the resource that limit a trial's speed, in one sentence. Pure.

Every rule is a threshold on recorded figures of the speed cycles, with its reason beside it. The rules come from one
recording of an H100 (``tests/fixtures/h100_gpu``); on other machines they are not tested.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autotune.domain import Configuration, Phase, Trial
from autotune.insights.usage import PhaseUse, TrialUse, trial_use
from autotune.wording.numbers import percent

LEAST_SAMPLES = 10
"""Fewest NVML samples over all speed cycles: at five a second, 2 s; NVML's own figures are means of up to 1 s."""
LEAST_OF_PHASE = 3
"""Fewest samples by which a phase is judged."""
LONG = 0.15
"""Share of a cycle from which a phase can be its bottleneck."""
IDLE = 0.7
"""Busy share of a phase, 0..1, below which the GPU waits for something. Well-fed training keeps a GPU above 0.9."""
FULL = 0.9
"""Share of a core from which a thread counts as fully busy; the rest is switching."""
MEMORY_BOUND = 0.5
"""Busy share of memory, 0..1, from which a phase is memory-bound. By NVML, a decode step that only reads weights has
0.5 to 0.6, a training pass 0.25 to 0.35."""
SLOWED = 0.9
"""Share of the highest clock below which the clock limits: a tenth of all arithmetic is lost."""
HELD = 0.2
"""Share of the samples with a throttled clock from which the driver's reason counts."""
ALLOCATION_S = 1e-3
"""Seconds of one driver call that allocates memory, if it must wait for the GPU (order of magnitude)."""
ALLOCATING = 0.05
"""Share of a cycle in driver calls for memory above which the allocator is the bottleneck."""
LINK_BYTES_S = 5e9
"""Bytes/s over PCIe, one way, from which the link limits: a fifth of a fourth-generation link of 16 lanes."""


class Resource(StrEnum):
    """Resource that limits a trial's speed."""

    HOST = "host"
    COMPUTE = "GPU compute"
    BANDWIDTH = "GPU memory bandwidth"
    ALLOCATOR = "allocator"
    LINK = "PCIe"
    GRADIENTS = "gradient synchronisation"
    WAITING = "waiting"
    POWER = "power limit"
    HEAT = "heat"
    NOTHING = "nothing stands out"


@dataclass(frozen=True)
class Blame:
    """The bottleneck: the limiting resource, and the phase in which it limits."""

    resource: Resource
    phase: str
    """``Phase`` value, or ``cycle`` for the whole cycle."""
    sentence: str
    """Sentence that begins with the resource: ``the host: the GPU was busy 45 % of the update while ...``."""


_PHASE_WORDS = {
    Phase.GENERATE.value: "the generation",
    Phase.REWARD.value: "the rewards",
    Phase.LOGPROB.value: "the log-probability passes",
    Phase.UPDATE.value: "the update",
    Phase.SYNC.value: "the weight sync",
    Phase.WAIT.value: "the waits between ranks",
    Phase.IDLE.value: "the time outside every phase",
}


def blame(trial: Trial) -> Blame | None:
    """Returns the limiting resource and phase; ``None`` without speed cycles or with too few NVML samples."""
    use = trial_use(trial)
    if use is None or use.whole.gpu.samples < LEAST_SAMPLES or use.whole.gpu.busy is None:
        return None
    return (
        _of_clock(use)
        or _of_allocator(use)
        or _of_gradients(use)
        or _of_waiting(use, trial.configuration)
        or _of_work(use)
    )


def _of_clock(use: TrialUse) -> Blame | None:
    """Names the GPU's clock as the bottleneck if the driver throttled it for heat or power, below ``SLOWED``."""
    gpu = use.whole.gpu
    if gpu.sm_mhz is None or gpu.sm_mhz_max is None or gpu.sm_mhz >= SLOWED * gpu.sm_mhz_max:
        return None
    clock = f"the clock was {gpu.sm_mhz:.0f} of {gpu.sm_mhz_max:.0f} MHz"
    if (gpu.hot or 0.0) >= HELD:
        heat = "" if gpu.celsius is None else f" at {gpu.celsius:.0f} °C"
        return Blame(Resource.HEAT, use.whole.phase, f"heat: {clock}, held down for heat{heat}; cool the GPU")
    if (gpu.power_capped or 0.0) >= HELD:
        return Blame(Resource.POWER, use.whole.phase, f"the power limit: {clock}; a higher limit, if there is one")
    return None


def _of_allocator(use: TrialUse) -> Blame | None:
    """Names the allocator as the bottleneck if cycles retry allocations, or often ask the driver for memory."""
    retries, calls = use.alloc_retries or 0.0, use.device_allocations or 0.0
    if retries >= 1.0:
        said = f"it freed its cache and tried again {retries:.0f} times in a cycle"
        return Blame(Resource.ALLOCATOR, use.whole.phase, f"the allocator: {said}; leave the GPU more free memory")
    if calls * ALLOCATION_S < ALLOCATING * use.whole.seconds:
        return None
    said = f"it asked the driver for memory {calls:.0f} times in a cycle"
    return Blame(Resource.ALLOCATOR, use.whole.phase, f"the allocator: {said}; try expandable_segments true")


def _of_gradients(use: TrialUse) -> Blame | None:
    """Names the summation of gradients over ranks as the bottleneck. Runs before the check of the GPU's own work: a
    rank that waits for another meanwhile runs a kernel, which NVML counts as busy."""
    exposed = use.gradient_sync_exposed_s or 0.0
    if exposed < LONG * use.whole.seconds:
        return None
    share = f"{exposed:.1f} of {use.whole.seconds:.1f} s of a cycle"
    said = f"{share}, waits for a slower rank included, with nothing computed"
    return Blame(
        Resource.GRADIENTS, Phase.UPDATE.value, f"gradient synchronisation: {said}; fewer ranks or faster links"
    )


def _of_waiting(use: TrialUse, configuration: Configuration) -> Blame | None:
    """Names the phase in which the GPU idled longest as the bottleneck, if that is a large share of a cycle."""
    idle = [(p.seconds * (1.0 - p.gpu.busy), p) for p in _judged(use) if p.gpu.busy is not None and p.gpu.busy < IDLE]
    lost, phase = max(idle, key=lambda one: one[0], default=(0.0, use.whole))
    if lost < LONG * use.whole.seconds:
        return None
    busy = f"the GPU was busy {percent(phase.gpu.busy)} of {phase_words(phase.phase)}"
    if (host := _host_words(phase, use)) is not None:
        advice = _fewer_launches(phase.phase, configuration)
        return Blame(Resource.HOST, phase.phase, f"the host: {busy} while {host}; {advice}")
    moved = max(phase.gpu.pcie_sent or 0.0, phase.gpu.pcie_received or 0.0) / phase.seconds
    if moved >= LINK_BYTES_S:
        return Blame(Resource.LINK, phase.phase, f"PCIe: {busy} while {moved / 1e9:.1f} GB/s went over it")
    cores = phase.cores if phase.cores is not None else use.whole.cores
    host = "what the host did was not recorded" if cores is None else f"the trial used {cores:.1f} cores: both waited"
    return Blame(Resource.WAITING, phase.phase, f"waiting: {busy}; {host}")


def _host_words(phase: PhaseUse, use: TrialUse) -> str | None:
    """Describes how the host was busy in a phase; ``None`` if it was not busy or not recorded."""
    if phase.main_thread is not None and phase.main_thread >= FULL:
        return "the main thread used all of a core"
    if phase.cores is not None and phase.cores >= FULL:  # a backward pass is driven by autograd's thread
        return f"the trial's process used {phase.cores:.1f} cores"
    if phase.cores is None and (use.whole.cores or 0.0) >= FULL:
        return f"the trial used {use.whole.cores:.1f} cores all along"
    return None


def _fewer_launches(phase: str, configuration: Configuration) -> str:
    """Returns advice that reduces the number of kernel launches in ``phase``."""
    if phase == Phase.GENERATE.value:
        if configuration.get("rollout_engine") in (None, "transformers"):
            return "vLLM's CUDA graphs launch a decode step at once"
        return "CUDA graphs (enforce_eager false) launch a decode step at once"
    if phase == Phase.UPDATE.value and configuration.get("gradient_checkpointing") is True:
        return "larger micro-batches and no checkpointing cut launches"
    if phase == Phase.UPDATE.value:
        return "larger micro-batches cut launches"
    if phase == Phase.LOGPROB.value:
        return "larger logprob_rows cut launches"
    return "what runs there is the host's own work"


def _of_work(use: TrialUse) -> Blame:
    """Names GPU compute or memory bandwidth as the bottleneck of the longest phase; nothing if the GPU was not busy."""
    judged = _judged(use)
    if not judged or (judged[0].gpu.busy or 0.0) < IDLE:
        busy = f"the GPU was busy {percent(use.whole.gpu.busy)} of a cycle and no phase idled for long"
        return Blame(Resource.NOTHING, use.whole.phase, f"nothing stands out: {busy}")
    phase = judged[0]
    busy = f"the GPU was busy {percent(phase.gpu.busy)} of {phase_words(phase.phase)}"
    if (phase.gpu.memory_busy or 0.0) >= MEMORY_BOUND:
        said = f"{busy}, its memory {percent(phase.gpu.memory_busy)}"
        return Blame(Resource.BANDWIDTH, phase.phase, f"GPU memory bandwidth: {said}; fewer or smaller bytes help")
    return Blame(Resource.COMPUTE, phase.phase, f"GPU compute: {busy}, so that the host kept it fed")


def _judged(use: TrialUse) -> list[PhaseUse]:
    """Returns the phases with enough seconds and samples for a verdict, longest first."""
    least = LONG * use.whole.seconds
    return [p for p in use.phases if p.seconds >= least and p.gpu.samples >= LEAST_OF_PHASE]


def phase_words(phase: str) -> str:
    """Returns a phase in words: ``the update``."""
    return _PHASE_WORDS.get(phase, phase)

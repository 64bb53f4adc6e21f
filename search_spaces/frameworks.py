"""Facts about the training frameworks: names and differences.

A framework that is not listed has the defaults of ``Facts``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class WeightSync(StrEnum):
    """Transfer of trained weights to a rollout engine; determines which weights a GPU gathers meanwhile."""

    PARAMETERS = "parameters"
    """One parameter at a time; all at once if an adapter is merged under ZeRO-3."""
    BATCHES = "batches"
    """All at once, or in ``weight_sync_batches``."""
    BUCKETS = "buckets"
    """One parameter at a time through a buffer of ``weight_sync_bucket_mib``."""


@dataclass(frozen=True)
class Facts:
    """Facts about a framework; measured for TRL, read from the source of the others."""

    # Rollout
    generates_with: tuple[str, ...] = ("transformers", "vllm")
    """Supported values of ``rollout_engine``."""
    sizes_engine_by_update: bool = False
    """A colocated engine is sized for the completions of a whole update, whatever ``steps_per_generation`` is."""
    raises_batched_tokens: bool = False
    """The framework raises ``max_num_batched_tokens`` to the longest sequence."""
    replicas_multiply: bool = False
    """A colocated engine takes ``tensor_parallel_size`` x ``rollout_data_parallel_size`` GPUs."""
    engine_spans_nodes: bool = False
    """One engine may take all GPUs of several machines (verl 1dda039, ``workers/rollout/replica.py`` 113 to 117)."""

    puts_engine_to_sleep: bool = True
    """A colocated engine with ``sleep_level`` is put to sleep while training."""
    weight_sync: WeightSync = WeightSync.PARAMETERS
    server_share: float | None = None
    """Default ``gpu_memory_utilization`` of a rollout server; ``None``: the colocated engine's default.

    Source: ``trl/scripts/vllm_serve.py``, line 111 in TRL 1.16 and 217 in 0.18.
    """
    pinned_vllm: str = ""
    """vLLM version that the framework installs, assumed if the environment is unknown."""
    stops_expandable_segments: bool = False
    """The framework turns expandable segments off around an engine's sleep."""
    quantizes_engine: frozenset[str] = frozenset()
    """Quantizations of the trained model (4 bit, 8 bit) whose packed weights a colocated engine accepts."""
    sends_packed_weights: bool = False
    """A rollout server, which holds whole weights, receives the packed weights of a quantized model."""
    merges_in_shards: bool = True
    """The framework merges adapters into weights that FSDP2 shards in packed form."""

    # Hardware and sharding
    trains_on_gpus_only: bool = False
    has_deepspeed: bool = True
    deepspeed_needs_gpu: bool = False
    """Without our launcher, accelerate refuses DeepSpeed on a CPU."""
    helped_on_cpu: bool = False
    """On a CPU, weight transfer to a colocated vLLM and DeepSpeed work only with our launcher."""

    # Numerics and kernels
    trains_in_fp8: bool = True
    has_muon: bool = True
    hub_kernels_package: str = ""
    """Package that ``hub_kernels`` needs, checked before a trial because the framework does not check."""
    packs_with_flash_attention_only: bool = False
    """``remove_padding`` needs flash attention, and excludes ``hub_kernels``."""
    packs_split_sequences: bool = False
    """``sequence_parallel_size`` above 1 needs ``remove_padding``."""
    tiles_lm_head: bool = False
    """Log-probs are computed in tiles of tokens x vocabulary, never from the whole logits."""

    casts_logits: bool = True
    """Logits are cast to fp32 if accelerate wraps the model for mixed precision; not under DeepSpeed
    (``Accelerator.prepare_model``, ``convert_outputs_to_fp32``)."""
    launched_in: str = ""
    """Precision in the framework's own launch files; assumed if the user's keys set none."""

    # Learning
    averages_micro_batches: bool = False
    """Some settings of the objective are averaged over each micro-batch (``search_spaces.own_keys``)."""
    logprobs_by_micro_batch: bool = False
    """Log-probs without gradients are computed micro-batch by micro-batch, not for a whole generation."""
    refuses_more_logprob_rows: bool = False
    """True if ``logprob_rows`` above a rank's rows is an error (verl 0.9.1, ``workers/engine/utils.py`` 125)."""
    trains_adapters_by_default: bool = False
    """The framework trains LoRA adapters unless ``tuner_type`` is ``full``."""
    adapts_all_linear: bool = False
    """Adapters go to all linear projections unless the user names targets."""
    unset_beta: float = 0.0
    """Default of ``beta``, the weight of the KL term; above 0 a second model is held."""
    megatron_holds_reference: bool = False
    """True if Megatron holds a second model for any ``beta`` when all weights are trained
    (``swift/megatron/trainers/rlhf_mixin.py:31``)."""

    # What is known of it here
    memory_measured: bool = False
    """The memory model was compared with trials of this framework."""
    rewards_by_plugin: bool = False
    """A plugin of the user may register rewards by name, so names are resolved from the plugin's folder."""
    starts_processes: bool = False
    """True if a trial starts further processes itself."""
    serves_once: bool = False
    """State of a trial remains in its process, so the next trial needs a new process."""


FACTS: dict[str, Facts] = {
    "trl": Facts(
        server_share=0.9,
        quantizes_engine=frozenset({"4 bit"}),
        sends_packed_weights=True,
        merges_in_shards=False,
        helped_on_cpu=True,
        has_muon=False,
        hub_kernels_package="kernels",
        tiles_lm_head=True,
        averages_micro_batches=True,
        memory_measured=True,
    ),
    "open_r1": Facts(
        server_share=0.9,
        pinned_vllm="0.8.5",
        sends_packed_weights=True,
        sizes_engine_by_update=True,
        puts_engine_to_sleep=False,
        deepspeed_needs_gpu=True,
        serves_once=True,
        has_muon=False,
        launched_in="bf16",
        unset_beta=0.04,
    ),
    "ms_swift": Facts(
        weight_sync=WeightSync.BATCHES,
        stops_expandable_segments=True,
        quantizes_engine=frozenset({"4 bit"}),
        deepspeed_needs_gpu=True,
        serves_once=True,
        trains_in_fp8=False,
        packs_with_flash_attention_only=True,
        averages_micro_batches=True,
        logprobs_by_micro_batch=True,
        trains_adapters_by_default=True,
        adapts_all_linear=True,
        unset_beta=0.04,
        megatron_holds_reference=True,
        rewards_by_plugin=True,
    ),
    "verl": Facts(
        generates_with=("vllm", "sglang"),
        raises_batched_tokens=True,
        replicas_multiply=True,
        engine_spans_nodes=True,
        adapts_all_linear=True,
        weight_sync=WeightSync.BUCKETS,
        trains_on_gpus_only=True,
        has_deepspeed=False,
        trains_in_fp8=False,
        packs_split_sequences=True,
        refuses_more_logprob_rows=True,
        casts_logits=False,
        starts_processes=True,
        serves_once=True,
    ),
}
"""Name of the framework in the catalogue -> its facts."""
_UNKNOWN = Facts()


def facts_of(framework: str) -> Facts:
    """Returns the facts of ``framework``; generic facts for an unknown framework."""
    return FACTS.get(framework, _UNKNOWN)


SHORT: dict[str, str] = {"trl": "trl", "open_r1": "openr1", "ms_swift": "swift", "verl": "verl"}
"""Name in the catalogue -> word of a command line."""

TITLES: dict[str, str] = {"trl": "TRL", "open_r1": "Open-R1", "ms_swift": "ms-swift", "verl": "verl"}
"""Name in the catalogue -> the framework's own spelling."""


def resolved(word: str) -> str:
    """Returns the catalogue's name for a command line's ``word``; ``word`` itself if no framework has it."""
    return next((name for name, short in SHORT.items() if short == word), word)

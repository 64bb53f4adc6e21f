"""What was measured on one H100 and stands behind ``benchmarks.decisions``: seconds, bytes and their sources.

Everything in this file is recorded; nothing is estimated. Sources, by letter:

* A: ``benchmarks/tables/h100-eight-minutes-2026-11-27.jsonl``: a study of 8 minutes, 1.5B parameters, 128 rows per
  update, prompts of at most 256 and completions of at most 96 tokens. Trials 0 and 2 are TRL's defaults (transformers
  generates), 1 and 3 the same with vLLM.
* B: TRL's own trainer at the settings of A's baseline, without the tuner, on another H100 an hour later; steps 2 to 6
  of the first trainer.
* C: ``benchmarks/tables/h100-study-0.5b-eager-2026-11-22.jsonl``: 0.5B parameters, 64 rows, vLLM without compiled code.
* D: ``benchmarks/tables/h100-study-1.5b-defaults-2026-11-22.jsonl``: 1.5B parameters, 64 rows.
* E: ``benchmarks/tables/h200-study-2026-11-28.jsonl``: A's study on one H200, cut after 462 s; trial 1 is vLLM's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

STUDY = Path(__file__).parents[1] / "tables" / "h100-eight-minutes-2026-11-27.jsonl"
"""Source A: baseline, space, hardware, recorded lengths and every cycle."""

PROBE: Mapping[str, object] = {
    "bandwidth": 2464972048055.043, "cores": 16, "device": "cuda",
    "flops": {"bf16": 859698512725967.4, "fp16": 804484452395493.6, "fp32": 51923948619737.48,
              "fp8": 1593864704518615.8, "tf32": 421809539096036.44},
    "host_link": 54778363853.70151, "kernel_s": 6.856349999964095e-06, "memory": 85017493504,
    "name": "NVIDIA H100 80GB HBM3", "seconds": 10.23031908500002, "threads": 16, "torch": "2.11.0+cu130",
}  # fmt: skip
"""A: what the device was measured to do before the first trial. Its 10 s are not part of the budget."""


@dataclass(frozen=True)
class Start:
    """Seconds from the beginning of an attempt to its first cycle."""

    parts: Mapping[str, float]
    """By ``StartupPart``."""
    unnamed: float
    """What no part names."""
    crash: str = ""
    """Error with which the attempt then ends."""


TRANSFORMERS_START = Start({"spawn": 9.54, "import": 0.0, "load": 2.21, "engine": 0.41, "first_batch": 0.32}, 0.8)
"""A, trial 0. Trial 2 took 11.8 s in all."""
VLLM_FIRST = Start({"spawn": 0.12, "import": 13.87, "load": 1.73, "engine": 58.21, "first_batch": 0.03}, 20.3)
"""A, trial 1: vLLM's first process of the study; its engine had been built on the machine a minute before. The unnamed
seconds are a preloaded process that imported everything, opened the GPU and therefore could not be forked."""
VLLM_LATER = Start({"spawn": 0.11, "import": 14.62, "load": 1.75, "engine": 33.98, "first_batch": 0.02}, 15.2)
"""A, trial 3: the same engine again, in a new process."""
VLLM_EAGER_ENGINE_S = (47.5, 7.1)
"""C: start of an engine without compiled code, first and later (trials 0, 3, 4, 5)."""
KEPT_START = Start({"import": 0.0, "load": 0.49, "engine": 0.97, "first_batch": 0.03}, 2.5)
"""C, trials 1 and 2: a trial in the process of the one before it. 4.0 s passed beside parts and cycles, 1.5 s of them
at the end."""

TRANSFORMERS_END_S, VLLM_END_S, KEPT_END_S = 0.4, 1.5, 1.5
"""From the last cycle to the end of an attempt: A, trials 2 and 3; C, trials 1 and 2."""
OOM_AFTER_START = 0.7
"""D, trial 1: seconds of a cycle until it ran out of memory, over those of a whole one: it took some 5 s beyond start
and fork."""

PLAIN_GENERATE_S = (4.73, 5.25, 4.71, 4.75, 5.29)
PLAIN_STEP_S = (8.48, 8.93, 8.47, 8.64, 9.76)
"""B: generation with rewards, and whole steps, at TRL's defaults: micro-batch 8, checkpointing, transformers
generates."""
PLAIN_FIRST_S = 11.04
"""B: the first step."""
VLLM_S = ((5.94, 5.87, 5.15), (5.69, 5.97, 5.34))
"""A: recorded-length cycles of trials 1 and 3."""
VLLM_WARMUP_S = (7.73, 6.94)
"""A: the warm-up of each."""
VLLM_PHASES_S: Mapping[str, tuple[float, ...]] = {
    "generate": (1.00, 1.09, 0.93, 1.08, 1.10, 0.87),
    "logprob": (0.81, 0.88, 0.54, 0.75, 0.89, 0.59),
    "update": (3.96, 3.67, 3.50, 3.67, 3.78, 3.73),
    "sync": (0.06, 0.08, 0.07, 0.07, 0.05, 0.06),
    "idle": (0.11, 0.14, 0.12, 0.12, 0.13, 0.10),
}
"""A: the same six cycles by phase. Micro-batch 8, checkpointing, log-probs of 8 rows at a time."""
UPDATE_32_S = 1.6
"""B: update with micro-batch 32. Labelled "without checkpointing", but the trainer was the second on one model object,
on which checkpointing stays switched on, and its peak (28.0 GiB, next constant) has no room for kept activations."""
PEAK_8_GIB, PEAK_32_GIB = 26.2, 28.0
"""B: allocated at most with micro-batch 8 and 32."""
UPDATE_EAGER_S = {(8, True): 1.71, (8, False): 0.91, (16, False): 0.49}
"""C: update by (micro-batch, checkpointing): 64 rows, 24 layers. The device was waiting for the host in all three."""
GENERATE_EAGER_S = 4.6
"""C: generation of at most 256 tokens without compiled code, mean of trials 1 to 4, 24 layers."""

IDLE_GIB, UPDATE_GIB, ENGINE_GIB = 24.0, 28.5, 23.9
"""A: device memory in use before a cycle, at its peak in the update, and of an engine with a share of 0.3 (47.9 -
24.0)."""
KEPT_ACTIVATIONS_GIB = 4.9 / 8
"""C: more memory for each row of a micro-batch without checkpointing (33.9, 39.0, 43.9 GiB): 384 tokens, 24 layers of
896."""
CAPACITY_GIB, TOTAL_GIB = 79.18, 79.65
"""D and A: what the device has by the allocator's own words, and by NVML."""
PROCESS_PAIRS = ((6.298e6, 6.284e6), (3.827e6, 3.569e6))
"""A: tokens/hour of the two configurations that ran in two processes."""

COLD_ENGINE_S = 72.2
"""Start of an engine with compiled code on a machine that has compiled none: 0.5B, 2026-11-22."""
REFUSED_S: Mapping[str, float] = {"transformers": 10.0, "vllm": 19.5}
"""Imports whose process then could not be forked: A, trial 1, without what else is unnamed; without vLLM as long as a
trial's imports."""
SERVED = 3
"""Trials of a process at most: E, trials 2 to 4."""
BETWEEN_S = (0.31, 0.03, 2.94, 0.08, 0.06)
"""E: between the end of a trial and the start of the next, by the number of trials."""
H200_CRASH = Start(
    {"spawn": 0.09, "import": 10.33, "load": 1.68}, 53.3 + 9.1,
    "InductorError: RuntimeError: Failed to run autotuning code block: '_EventPlaceholder' object has no attribute",
)  # fmt: skip
"""E, trial 1: vLLM's; and what the next trial's imports took, which were shared before."""
H200_FORK_S = 0.03
"""E, trials 5 to 7: start of a process forked from one that has imported."""
H200_GENERATE_S = (5.05, 4.37, 4.08, 4.85, 4.88, 4.79, 4.44, 4.04, 4.19)
"""E: generation of the accepted recorded-length cycles of trials 0, 3 and 4."""
H200_MICRO_BATCH_S, H200_UPDATE_S = 0.1, {True: 2.5, False: 1.9}
"""E: fitted to the mean updates of (micro-batch, checkpointing): (8, True) 4.1 s, (32, True) 2.9, (64, True) 2.8,
(8, False) 3.8, (32, False) 2.3."""
H200_FACTORS = {False: (15.9 / 8.0, 19.5 / 8.0), True: (6.3 / 7.6, 9.1 / 6.2)}
"""E: seconds of the warm-up and of the first timed cycle over those of a steady one, in a fresh process (trials 0, 2,
5, 6) and in a kept one (3, 4; the first timed one over the one that it is compared with)."""
H200_CAPACITY_GIB = 139.5
"""E: what the device has, by the driver's words."""

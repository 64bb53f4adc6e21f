"""Rules of Megatron-SWIFT (``megatron rlhf`` of ms-swift 4.6) on top of Megatron-Core's (``megatron_rules``).

Line numbers are of ``swift/megatron/arguments/megatron_args.py``.
"""

from __future__ import annotations

from search_spaces.legality.case import COMPARED, Case, only, rules_in
from search_spaces.legality.megatron_rules import FIRST, LAST, PIPELINE, RANKS, of_megatron


@of_megatron(("rollout_engine",), ("rollout_engine",))
def swift_megatron_engine(case: Case) -> str | None:
    """Requires vLLM as the rollout engine (line 460)."""
    engine = case.get("rollout_engine")
    return None if engine == "vllm" else f"rollout_engine {engine}: Megatron-SWIFT generates with vllm only"


@of_megatron(COMPARED, ("steps_per_generation",))
def swift_megatron_updates(case: Case) -> str | None:
    """Requires a generation to serve whole updates (lines 258 to 295)."""
    batch = case.batch
    if batch.accumulation < 1 or batch.steps < 1 or batch.steps % batch.accumulation == 0:
        return None
    return (
        f"steps_per_generation {batch.steps} is no multiple of gradient_accumulation_steps {batch.accumulation}: "
        "a generation of Megatron-SWIFT serves whole updates"
    )


@of_megatron(RANKS, ("steps_per_generation", "micro_batch_size", "num_generations"))
def swift_megatron_prompts(case: Case) -> str | None:
    """Requires the prompts of a generation to divide over data-parallel ranks and micro-batches (lines 311 to 325)."""
    batch = case.batch
    if batch.group < 1 or batch.rollout_rows % batch.group:
        return None  # ``whole_groups`` says it
    prompts = batch.rollout_rows // batch.group
    text = f"{prompts} prompts of a generation ({batch.rollout_rows} rows / num_generations {batch.group})"
    if prompts % batch.ranks:
        return f"{text} are not divisible by {batch.ranks} data-parallel ranks, which Megatron-SWIFT asks for"
    if prompts // batch.ranks % batch.micro:
        each = f"{text} on {batch.ranks} data-parallel ranks are {prompts // batch.ranks} each"
        return f"{each}, not divisible by micro-batch {batch.micro}, which Megatron-SWIFT asks for"
    return None


@of_megatron(RANKS, ("steps_per_generation", "micro_batch_size"))
def swift_megatron_rows(case: Case) -> str | None:
    """Requires the rows of a generation to divide over the training GPUs (``trainers/grpo_trainer.py:1357``)."""
    rows, gpus = case.batch.rollout_rows, case.training_gpus
    if rows % gpus == 0:
        return None
    return f"{rows} rows of a generation are not divisible by {case.ranks_in_words(gpus)}, which generate them"


@of_megatron(("logprob_rows", *COMPARED), ("logprob_rows",))
def swift_megatron_logprobs(case: Case) -> str | None:
    """Requires ``logprob_rows`` of at least the micro-batch (``trainers/grpo_trainer.py:285``)."""
    rows, micro = case.number("logprob_rows"), case.batch.micro
    if rows is None or rows >= micro:
        return None
    return f"logprob_rows {rows} is less than micro-batch {micro}, by which Megatron-SWIFT computes log-probs"


@of_megatron((PIPELINE, FIRST, LAST), (FIRST, LAST, PIPELINE))
def swift_megatron_stages(case: Case) -> str | None:
    """Allows own layers of the first and last stage only with several stages (line 887)."""
    if case.at_least_one(PIPELINE) > 1:
        return None
    own = next((name for name in (FIRST, LAST) if case.number(name)), "")
    return f"{own} {case.number(own)} needs {PIPELINE} above 1" if own else None


RULES = tuple(only("ms_swift", each) for each in rules_in(globals()))

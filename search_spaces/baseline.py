"""Completes a baseline for comparisons: sets every knob of the space, so that equivalent configurations are equal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from search_spaces.batch import batch_of, normalised, training_gpus
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.frameworks import facts_of
from search_spaces.knobs import KNOBS, defaults
from search_spaces.legality.case import Case
from search_spaces.legality.knob_rules import inactive_value_of, resting
from search_spaces.legality.numeric_rules import attention_kernel

REPLICAS, TENSOR, ATTENTION = "rollout_data_parallel_size", "tensor_parallel_size", "attn_implementation"
TRAINING = "training_gpus"
SHARE, CACHE = "gpu_memory_utilization", "kv_cache_memory_bytes"


def complete(baseline: Mapping[str, KnobValue], resources: Resources, names: Iterable[str] = ()) -> Configuration:
    """Returns ``baseline`` with the framework's own defaults filled in.

    - The four batch knobs are numbers; an unset ``steps_per_generation`` equals the accumulation,
    as in the frameworks.
    - Each knob of ``names`` that is not set gets the framework's default. A knob without a default and with an effect
      stays unset.
    - A knob without an effect (a vLLM knob under transformers generation) gets the framework's default.
    - ``logprob_rows`` is at most the completions that a rank generates.
    - An unset ``gpu_memory_utilization`` of a rollout server is the default of the framework's own command.
    - By default the replicas of a rollout server fill its GPUs, and on one machine all other GPUs train.

    A second call changes nothing.
    """
    values, names = normalised(baseline, resources), tuple(names)
    unset = defaults(resources.framework, resources.device)
    for name in names:
        if name in values or name not in KNOBS:
            continue
        setting = KNOBS[name].frameworks.get(resources.framework)
        default = unset.get(name, values.get(setting.follows) if setting else None)
        if name == REPLICAS:
            default = _replicas(Case(values, resources)) or default
        if name == SHARE and CACHE not in values and Case(values, resources).server:
            default = facts_of(resources.framework).server_share or default
        if name == TRAINING and resources.gpus and resources.nodes == 1:
            default = training_gpus(values, resources)
        if default is not None:
            values[name] = default
    case = Case(values, resources)
    values.update({n: value for n in names if n not in values and (value := inactive_value_of(n, case)) is not None})
    return Configuration(capped(resting(values, resources), resources))


def fitted(values: Mapping[str, KnobValue], resources: Resources) -> dict[str, KnobValue]:
    """Returns ``values`` with other values for defaults of the framework that the machine cannot satisfy.

    verl's default spreads an engine over 2 GPUs, which a machine with one GPU lacks, and computes attention by a
    package that may be missing; attention is then ``sdpa``.
    """
    kernel = {
        ATTENTION: values.get(ATTENTION) or defaults(resources.framework, resources.device).get(ATTENTION, "sdpa")
    }
    found = _spread(values, resources)
    lacking = ATTENTION not in values and attention_kernel.judge(Case({**values, **kernel}, resources)) is not None
    return {**found, ATTENTION: "sdpa"} if lacking else found


def _spread(values: Mapping[str, KnobValue], resources: Resources) -> dict[str, KnobValue]:
    """Returns ``values`` with a ``tensor_parallel_size`` that divides the GPUs if the framework's default does not."""
    case = Case(values, resources)
    size = case.at_least_one(TENSOR)
    if TENSOR in values or not case.colocated or not case.on_gpu or case.training_gpus % size == 0:
        return dict(values)
    return {**values, TENSOR: math.gcd(size, case.training_gpus)}


def _replicas(case: Case) -> int | None:
    """Returns the number of replicas that fill the GPUs of the rollout server; ``None`` without a server."""
    if not case.server:
        return None
    return max(1, (case.number("rollout_gpus") or 0) // case.at_least_one("tensor_parallel_size"))


def capped(values: dict[str, KnobValue], resources: Resources) -> dict[str, KnobValue]:
    """Returns ``values`` with ``logprob_rows`` reduced to the most completions that a log-prob pass can have.

    A pass has at most the rows that a rank generates, or one micro-batch if log-probs are computed by micro-batch.
    """
    rows = values.get("logprob_rows")
    if isinstance(rows, int) and not facts_of(resources.framework).refuses_more_logprob_rows:
        batch = batch_of(values, resources)
        whole = not facts_of(resources.framework).logprobs_by_micro_batch
        most = batch.micro * batch.steps if whole else batch.micro
        values["logprob_rows"] = min(rows, max(1, most))
    return values

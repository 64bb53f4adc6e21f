"""What a failure beside a rollout engine rules out, by the catalogue itself: above all, the direction."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import Configuration, Pool, Trial
from autotune.proposals import dominance
from tests.support import factories

ORDERED: dict[str, tuple[Any, ...]] = {
    "gpu_memory_utilization": (0.1, 0.2, 0.3, 0.5, 0.9),
    "kv_cache_memory_bytes": (1 << 24, 1 << 26, 1 << 28, 1 << 30),
    "max_model_len": (128, 512, 2048, 8192),
}
OTHERS: dict[str, tuple[Any, ...]] = {
    "micro_batch_size": (1, 2, 8),
    "steps_per_generation": (1, 4),
    "num_generations": (4, 8),
    "gradient_checkpointing": (False, True),
    "enforce_eager": (False, True),
    "precision": ("bf16", "fp32"),
    "zero_stage": (0, 3),
    "sleep_level": (0, 1),
}
STARTING = ("engine", "capture", "generate", None)
"""Where a cache can be found too small."""

configurations = st.fixed_dictionaries(
    {
        **{name: st.sampled_from(values) for name, values in {**ORDERED, **OTHERS}.items()},
        "rollout_engine": st.just("vllm"),
        "rollout_mode": st.just("colocate"),
    },
    optional={"max_num_seqs": st.sampled_from((4, 64))},
).map(Configuration)


def failed(configuration: Configuration, pool: Pool, phase: str | None) -> Trial:
    return factories.failed(4, factories.oom(phase=phase, pool=pool), configuration=configuration)


def rules_out(trial: Trial, configuration: Configuration, *, one_memory: bool = False) -> bool:
    found = dominance.regions([trial], one_memory=one_memory)
    return any(dominance.covers(region, configuration) for region in found)


def moved(configuration: Configuration, name: str, data: st.DataObject, *, up: bool) -> Configuration | None:
    """``configuration`` with another value of ``name``, larger or smaller."""
    values = [v for v in ORDERED[name] if (v > configuration[name] if up else v < configuration[name])]
    return configuration.with_(**{name: data.draw(st.sampled_from(values))}) if values else None


@settings(deadline=None)
@given(configurations, st.sampled_from(STARTING), st.booleans(), st.sampled_from(sorted(ORDERED)), st.data())
def test_a_cache_failure_rules_out_smaller_shares_and_longer_models_and_never_the_reverse(
    configuration: Configuration, phase: str | None, one_memory: bool, name: str, data: st.DataObject
) -> None:
    trial = failed(configuration, Pool.ROLLOUT_CACHE, phase)
    worse_is_up = name == "max_model_len"
    worse = moved(configuration, name, data, up=worse_is_up)
    better = moved(configuration, name, data, up=not worse_is_up)
    assert worse is None or rules_out(trial, worse, one_memory=one_memory)
    assert better is None or not rules_out(trial, better, one_memory=one_memory)


@settings(deadline=None)
@given(configurations, configurations, st.sampled_from(STARTING), st.booleans())
def test_a_cache_failure_never_rules_out_a_larger_share_whatever_else_is_changed(
    configuration: Configuration, other: Configuration, phase: str | None, one_memory: bool
) -> None:
    trial = failed(configuration, Pool.ROLLOUT_CACHE, phase)
    for name in ("gpu_memory_utilization", "kv_cache_memory_bytes"):
        if other[name] > configuration[name]:
            assert not rules_out(trial, other, one_memory=one_memory)


@settings(deadline=None)
@given(configurations, st.sampled_from(("update", "logprob", "engine", "capture", None)), st.data())
def test_a_device_failure_beside_a_colocated_engine_rules_out_larger_shares_and_never_smaller(
    configuration: Configuration, phase: str | None, data: st.DataObject
) -> None:
    trial = failed(configuration, Pool.DEVICE, phase)
    for name in ("gpu_memory_utilization", "kv_cache_memory_bytes"):
        larger, smaller = (moved(configuration, name, data, up=up) for up in (True, False))
        assert larger is None or rules_out(trial, larger)
        assert smaller is None or not rules_out(trial, smaller)


@settings(deadline=None)
@given(configurations, st.data())
def test_on_a_cpu_the_caches_bytes_are_the_hosts(configuration: Configuration, data: st.DataObject) -> None:
    trial = failed(configuration, Pool.HOST, "update")
    larger, smaller = (moved(configuration, "kv_cache_memory_bytes", data, up=up) for up in (True, False))
    assert larger is None or rules_out(trial, larger, one_memory=True)
    assert smaller is None or not rules_out(trial, smaller, one_memory=True)


BASE = Configuration(
    {
        **{name: values[1] for name, values in {**ORDERED, **OTHERS}.items()},
        "rollout_engine": "vllm",
        "rollout_mode": "colocate",
    }
)


@pytest.mark.parametrize(
    ("pool", "phase", "changes", "ruled"),
    [
        # An engine's cache is cut before a group is generated, so the group's size cannot save it.
        (Pool.ROLLOUT_CACHE, "engine", {"num_generations": 4}, True),
        (Pool.ROLLOUT_CACHE, "generate", {"num_generations": 4}, False),
        (Pool.ROLLOUT_CACHE, "engine", {"gradient_checkpointing": False, "precision": "bf16"}, True),
        (Pool.ROLLOUT_CACHE, "engine", {"rollout_engine": "transformers"}, False),
        (Pool.ROLLOUT_CACHE, "engine", {"rollout_mode": "server"}, False),
        # It is built for the sequences of one generation where nothing says how many.
        (Pool.DEVICE, "capture", {"steps_per_generation": 1}, False),
        (Pool.DEVICE, "capture", {"max_num_seqs": 4}, False),
        (Pool.DEVICE, "engine", {"rollout_engine": "transformers"}, False),
        (Pool.DEVICE, "update", {"micro_batch_size": 1}, False),
    ],
)
def test_what_else_bears_on_it(pool: Pool, phase: str, changes: dict[str, Any], ruled: bool) -> None:
    assert rules_out(failed(BASE, pool, phase), BASE.with_(**changes)) is ruled


def test_an_engine_told_for_how_many_sequences_does_not_care_for_the_rows_of_a_generation() -> None:
    sized = BASE.with_(max_num_seqs=64)
    trial = failed(sized, Pool.DEVICE, "capture")
    assert rules_out(trial, sized.with_(steps_per_generation=1, micro_batch_size=1))
    assert rules_out(trial, sized.with_(max_num_seqs=128))
    assert not rules_out(trial, sized.with_(max_num_seqs=4))

"""An engine that has other values than it was given: told where it costs speed, refused where it rounds otherwise."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainer.child.frameworks.trl.engine import ENGINE_KNOBS, EngineError
from trainer.child.frameworks.trl.run import PLACES, has_otherwise

SEAMS: dict[str, Any] = {
    "max_num_seqs": 64,
    "max_num_batched_tokens": 4096,
    "chunked_prefill": True,
    "enforce_eager": False,
    "rollout_quantization": "fp8",
    "kv_cache_dtype": "fp8",
    "kv_cache_memory_bytes": 1 << 30,
    "prefix_caching": True,
    "cuda_graph_max_batch": 20,
}


def llm(**changes: Any) -> SimpleNamespace:
    """An engine that took everything, but for ``changes`` by knob."""
    parts: dict[str, SimpleNamespace] = {}
    for knob, (part, name) in PLACES.items():
        setattr(parts.setdefault(part, SimpleNamespace()), name, changes.get(knob, SEAMS[knob]))
    return SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=SimpleNamespace(**parts)))


def test_every_place_is_of_a_knob_this_child_sets() -> None:
    assert set(PLACES) == set(SEAMS)
    assert set(PLACES) <= ENGINE_KNOBS


def test_an_engine_that_took_everything_is_not_spoken_of() -> None:
    assert has_otherwise(llm(), SEAMS) == {}
    assert has_otherwise(llm(kv_cache_dtype="fp8_e4m3", rollout_quantization="fp8_per_tensor"), SEAMS) == {}


def test_what_it_changed_is_told() -> None:
    changed = llm(cuda_graph_max_batch=16, prefix_caching=False, enforce_eager=True)
    assert has_otherwise(changed, SEAMS) == {"cuda_graph_max_batch": 16, "prefix_caching": False, "enforce_eager": True}


def test_only_what_was_asked_for_is_compared() -> None:
    changed = llm(cuda_graph_max_batch=16, prefix_caching=False, kv_cache_dtype="auto")
    assert has_otherwise(changed, {"max_num_seqs": 64, "rollout_quantization": None, "kv_cache_dtype": "auto"}) == {}


@pytest.mark.parametrize(("knob", "has"), [("rollout_quantization", None), ("kv_cache_dtype", "auto")])
def test_a_rounding_that_did_not_happen_is_refused(knob: str, has: str | None) -> None:
    """Its figure would stand under FP8, and be compared with others of FP8."""
    with pytest.raises(EngineError, match=f"{knob} fp8: the engine has {has} instead"):
        has_otherwise(llm(**{knob: has}), SEAMS)


@pytest.mark.parametrize(
    "engine",
    [
        SimpleNamespace(),
        SimpleNamespace(llm_engine=SimpleNamespace()),
        SimpleNamespace(llm_engine=SimpleNamespace(vllm_config=SimpleNamespace(cache_config=SimpleNamespace()))),
    ],
)
def test_an_engine_that_keeps_its_values_elsewhere_is_believed(engine: Any) -> None:
    assert has_otherwise(engine, SEAMS) == {}

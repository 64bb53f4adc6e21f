"""transformers' continuous batching in a trial: exact lengths, and a share of memory that acts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.running.preloaded import Preloads
from search_spaces.configuration import KnobValue
from tests.gpu.device import CUDA, require
from tests.support.trl_trials import LENGTHS, PLAIN, Ran, reward_file, run_trial, tiny_spec
from trainer.child.contract import CycleKind, FailureReason, Phase, Pool, Protocol

pytestmark = pytest.mark.trl

PROTOCOL = Protocol(warmup=1, natural=1, recorded=2, maximum=1, lengths=LENGTHS, outside_cpu_limit=9.0)
PROMPT, COMPLETION = 48, 16
DEVICES = (pytest.param("cpu", marks=pytest.mark.full), CUDA)


@pytest.fixture(scope="module")
def preloads() -> Iterator[Preloads]:
    """What is tried here could as well be started: on a CPU it imports once."""
    made = Preloads()
    yield made
    made.close()


def trial(tiny: Path, device: str, name: str, preloads: Preloads) -> Ran:
    if device == "cuda":
        require()
    folder = tiny / device / name
    batching: dict[str, KnobValue] = {"continuous_batching": True, "continuous_batching_memory": 0.01}
    spec = tiny_spec(tiny, reward_file(folder, PLAIN), PROTOCOL, knobs=batching)
    return run_trial(folder / "run", replace(spec, device=device), preloads=preloads if device == "cpu" else None)


@pytest.fixture(scope="module", params=DEVICES)
def ran(request: pytest.FixtureRequest, tiny: Path, preloads: Preloads) -> Ran:
    found = trial(tiny, request.param, "roomy", preloads)
    assert found.result.ok, found.result.detail
    return found


def test_every_row_has_the_length_it_was_given_in_its_place(ran: Ran) -> None:
    """Rows are refilled as others end, and sorted for shared prefixes: each must still be the one asked for."""
    recorded = ran.of(CycleKind.RECORDED)
    assert len(recorded) == 2
    assert all(Counter(cycle.lengths) == Counter(LENGTHS) for cycle in recorded)
    assert recorded[0].lengths != recorded[1].lengths, "another order of the same lengths each time"
    assert all(set(cycle.lengths) == {COMPLETION} for cycle in ran.of(CycleKind.MAXIMUM))


def test_a_natural_cycle_ends_where_the_model_wants(ran: Ran) -> None:
    (natural,) = ran.of(CycleKind.NATURAL)
    assert all(1 <= length <= COMPLETION for length in natural.lengths)


def test_the_worst_case_is_met(ran: Ran) -> None:
    assert (ran.worst_case.prompt_tokens, ran.worst_case.completion_tokens) == (PROMPT, COMPLETION)


def test_generation_is_a_phase_as_ever(ran: Ran) -> None:
    for cycle in ran.cycles:
        assert cycle.phases["generate"] > 0
        assert sum(cycle.phases.values()) == pytest.approx(cycle.seconds, rel=2e-3)


@pytest.mark.parametrize("device", DEVICES)
def test_a_share_that_holds_no_block_is_the_caches_failure(tiny: Path, device: str, preloads: Preloads) -> None:
    """transformers' engine dies in a thread of its own and only logs it; the trial must still say what happened."""
    if device == "cuda":
        require()
    folder = tiny / device / "small"
    spec = tiny_spec(tiny, reward_file(folder, PLAIN), knobs={"continuous_batching": True})
    nothing = {"transformers_continuous_batching_config": {"max_memory_percent": 1e-7}}
    spec = replace(spec, device=device, settings={**spec.settings, **nothing})
    found = run_trial(folder / "run", spec, preloads=preloads if device == "cpu" else None)
    assert not found.result.ok
    assert (found.result.reason, found.result.pool) == (FailureReason.OOM, Pool.ROLLOUT_CACHE), found.result.detail
    assert found.result.phase is Phase.GENERATE

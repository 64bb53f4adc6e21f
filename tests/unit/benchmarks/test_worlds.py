"""The simulated worlds: what each says of itself holds, its best is legal and fits, and every arm keeps the rules."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Configuration, Phase
from benchmarks.decisions import studies
from benchmarks.decisions.machine import Noise
from benchmarks.decisions.studies import Place, run
from benchmarks.worlds import places
from benchmarks.worlds.arms import ARMS
from benchmarks.worlds.models import H100, ONE_AND_HALF
from benchmarks.worlds.physics import World
from benchmarks.worlds.places import WORLDS, place_of
from search_spaces.legality import check, check_baseline, is_legal

UPDATE = Phase.UPDATE.value


def changed(place: Place, **knobs: Any) -> Configuration:
    """The baseline with other knobs, at its rows per update."""
    world, base = WORLDS[place.name], place.spec.baseline.with_(**knobs)
    ranks = world.gpus - (int(base["rollout_gpus"]) if base.get("rollout_mode") == "server" else 0)
    steps = world.rows // (ranks * int(base["micro_batch_size"]))
    found = base.with_(gradient_accumulation_steps=steps, steps_per_generation=steps)
    assert check(found, place.spec.resources, place.spec.baseline) == ()
    return found


FASTER: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("one-gpu", {"rollout_engine": "vllm"}, {}),
    ("one-gpu", {"gradient_checkpointing": False}, {}),
    ("one-gpu", {"micro_batch_size": 8}, {"micro_batch_size": 1}),
    ("eight-gpus", {"micro_batch_size": 4}, {"micro_batch_size": 1}),
    ("eight-gpus", {}, {"offload_optimizer": "cpu"}),
    ("wrong-sign", {}, {"rollout_engine": "vllm"}),
    ("wrong-sign", {"micro_batch_size": 4}, {"micro_batch_size": 16}),
    ("wrong-sign", {"micro_batch_size": 16}, {"micro_batch_size": 64}),
    ("wrong-sign", {}, {"gradient_checkpointing": False}),
    ("wrong-sign", {"attn_implementation": "eager"}, {"attn_implementation": "sdpa"}),
    ("wrong-sign", {"attn_implementation": "sdpa"}, {"attn_implementation": "flash_attention_2"}),
    ("slow-starts", {"rollout_engine": "vllm", "gpu_memory_utilization": 0.2}, {}),
    ("verl-node", {"tensor_parallel_size": 1}, {"tensor_parallel_size": 4}),
    ("verl-node", {"micro_batch_size": 8}, {"micro_batch_size": 1}),
    ("ragged", {"remove_padding": True}, {}),
]


@pytest.mark.parametrize(("name", "fast", "slow"), FASTER)
def test_what_a_world_says_is_faster_is(name: str, fast: dict[str, Any], slow: dict[str, Any]) -> None:
    place = place_of(name)
    assert place.seconds(changed(place, **fast)) < place.seconds(changed(place, **slow))


def test_whole_copies_do_not_fit_eight_gpus_and_a_server_leaves_more_memory() -> None:
    place, world = place_of("eight-gpus"), WORLDS["eight-gpus"]
    assert world.fits(changed(place, zero_stage=0)) == 0.0
    apart = changed(place, rollout_mode="server", rollout_gpus=4, rollout_data_parallel_size=4)
    beside = world.run(place.spec.baseline)
    assert world.used(world.run(apart), 0.5)[UPDATE] < world.used(beside, 0.5)[UPDATE]
    assert world.run(apart).ranks == 4 < beside.ranks == 8


def test_a_larger_micro_batch_never_fits_in_more_processes_and_some_fit_by_chance() -> None:
    place, world = place_of("moving-memory"), WORLDS["moving-memory"]
    shares = [world.fits(changed(place, micro_batch_size=rows)) for rows in (1, 2, 4, 8, 16, 32, 64)]
    assert shares == sorted(shares, reverse=True)
    assert any(0.0 < share < 1.0 for share in shares)
    luck = [world.ooms(changed(place, micro_batch_size=64), draw) is None for draw in (0.0, 1.0)]
    assert luck == [True, False], "the same configuration, two processes"


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_sound(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(studies, "DRAWN", 300)
    monkeypatch.setattr(studies, "CLIMBS", 1)
    place, world = place_of.__wrapped__(name), WORLDS[name]
    baseline = place.spec.baseline
    assert check_baseline(baseline, place.spec.resources) == ()
    assert world.fits(baseline) == 1.0
    assert len(world.lengths) == world.rows
    assert max(world.lengths) <= world.max_completion
    best = place.best_configuration
    assert is_legal(best, place.spec.resources, baseline)
    assert world.fits(best) > 0.9
    assert 1.2 < math.exp(place.best) < 5.0
    for configuration in (baseline, best, *place.candidates[::5000]):
        phases, peaks = world.phases(configuration), world.peaks(configuration, 0.5)
        assert all(math.isfinite(s) and s >= 0 for s in phases.values())
        assert phases == WORLDS[name].phases(configuration), "nothing is drawn"
        assert all(p.device_allocated <= p.device_reserved <= p.device_used for p in peaks.values())  # type: ignore[operator]


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_has_the_preset_with_numerics_and_learning_and_they_have_an_effect(name: str) -> None:
    place, world = place_of(name), WORLDS[name]
    assert {"precision", "master_weights", "num_generations", "kv_cache_dtype"} <= set(place.space.values)
    free = place.space.candidates(place.spec.baseline, place.spec.resources, same_learning=False, limit=2000)
    by_precision = {c["precision"] for c in free}
    base = world.seconds(place.spec.baseline)
    others = {p: world.seconds(place.spec.baseline.with_(precision=p)) for p in by_precision - {"bf16"}}
    assert all(seconds != base for seconds in others.values())
    halved = world.used(world.run(place.spec.baseline.with_(master_weights="bf16")), 0.5)[UPDATE]
    assert halved <= world.used(world.run(place.spec.baseline), 0.5)[UPDATE]


def test_the_physics_come_near_what_one_h100_showed() -> None:
    recorded = studies.h100()
    like = World(
        name="recorded", chip=H100, model=ONE_AND_HALF, rows=128, prompt=156, max_prompt=256, max_completion=96,
        lengths=recorded.lengths, baseline={}, launch=2.6e-3, decode_launch=1.5e-3,
    )  # fmt: skip
    for changes in ({}, {"rollout_engine": "vllm"}, {"gradient_checkpointing": False}):
        configuration = recorded.spec.baseline.with_(**changes)
        own, there = like.seconds(configuration), recorded.seconds(configuration)
        assert own == pytest.approx(there, rel=0.25)
        held = recorded.machine.peaks(configuration, 0.5)[UPDATE].device_used
        assert like.used(like.run(configuration), 0.5)[UPDATE] == pytest.approx(held, rel=0.1)


def test_noise_is_drawn_by_its_seed_alone_and_has_the_spread_it_says() -> None:
    noise = Noise(process=0.02, cycle=0.01, degrees=4.0, drift=0.025)
    courses = [[noise.of_time(seed, 20.0 * step) for step in range(4000)] for seed in (1, 2, 1)]
    assert courses[0] == courses[2] != courses[1]
    assert math.sqrt(sum(x * x for x in courses[0]) / 4000) == pytest.approx(0.025, rel=0.25)
    chance = random.Random(0)
    cycles = [noise.of_cycle(chance) for _ in range(20_000)]
    assert math.sqrt(sum(x * x for x in cycles) / 20_000) == pytest.approx(0.01, rel=0.2)


@pytest.fixture(scope="module")
def played() -> dict[str, Any]:
    """Two studies of each arm that needs nothing heavy, in the world with the quickest cycles."""
    seen: dict[str, Any] = {}
    place = place_of("wrong-sign")

    def spying(arm: str) -> Callable[[Place, int], Any]:
        def made(where: Place, seed: int) -> Any:
            proposer = ARMS[arm](where, seed)
            inner = proposer.propose

            def propose(history: Any, number: int) -> Any:
                found = inner(history, number)
                if found is not None:
                    seen.setdefault(arm, []).append((found[0], {t.configuration for t in history}))
                return found

            proposer.propose = propose
            return proposer

        return made

    for arm in ("coordinate", "order", "tpe", "expert"):
        seen[f"{arm}/verdicts"] = [run(place, spying(arm), 480.0, 0) for _ in range(2)]
    return seen


@pytest.mark.parametrize("arm", ["coordinate", "order", "tpe", "expert"])
def test_an_arm_proposes_what_is_legal_and_new_and_the_same_seed_gives_the_same_study(
    arm: str, played: dict[str, Any]
) -> None:
    place = place_of("wrong-sign")
    assert played[arm]
    for configuration, taken in played[arm]:
        assert is_legal(configuration, place.spec.resources, place.spec.baseline)
        assert configuration not in taken
    first, second = played[f"{arm}/verdicts"]
    assert first == second


def test_every_module_of_a_world_is_listed() -> None:
    folder = Path(places.__file__).parent
    own = {p.stem for p in folder.glob("*.py") if "\nWORLD = " in p.read_text(encoding="utf-8")}
    assert own == {module.__name__.rpartition(".")[2] for module in places.MODULES}
    assert all(isinstance(world, World) for world in WORLDS.values())

"""The worlds by name, each with the study that a user would run in it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from autotune.domain import Configuration, RewardSpec, StudySpec, Workload
from autotune.frameworks import framework_named
from autotune.proposals.forecasts import PriorData
from autotune.specification.build import fitted, without_server
from autotune.specification.request import DEFAULT_SAMPLER
from benchmarks.decisions.studies import Place
from benchmarks.worlds import eight_gpus, moving_memory, one_gpu, ragged, slow_starts, verl_node, wrong_sign
from benchmarks.worlds.physics import World
from search_spaces.knobs import defaults
from search_spaces.space import SearchSpace

MODULES = (one_gpu, eight_gpus, wrong_sign, slow_starts, moving_memory, verl_node, ragged)
WORLDS: Mapping[str, World] = {module.WORLD.name: module.WORLD for module in MODULES}


@lru_cache(maxsize=8)
def place_of(name: str) -> Place:
    """The study in a world: its preset as it is shipped, with what a user lists beside it."""
    world = WORLDS[name]
    space, resources = space_of(world), world.resources
    ranks = world.gpus * world.baseline["micro_batch_size"]
    unset = {"num_generations": world.group, "rollout_engine": defaults(world.framework)["rollout_engine"]}
    given = {**unset, "gradient_accumulation_steps": world.rows // ranks, **world.baseline}
    baseline = space.complete(Configuration(given), resources)
    work = Workload(
        model=name, prompts=name, prompts_sha256="0" * 64, rewards=(RewardSpec(kind="reasoning_gym", name=name),),
        rows_per_update=world.rows, max_prompt_length=world.max_prompt, max_completion_length=world.max_completion,
    )  # fmt: skip
    spec = StudySpec(
        name, work, world.framework, space.as_json(), baseline, resources, sampler=DEFAULT_SAMPLER, python="none"
    )
    return Place(name, world, spec, world.lengths, int(world.rows * world.prompt), PriorData(probe_of(world)))


def space_of(world: World) -> SearchSpace:
    """The preset, fitted to the framework as ``autotune start`` fits it."""
    framework = framework_named(world.framework)
    space, _ = fitted(SearchSpace.load(world.preset), framework)
    served = framework.no_server == ""
    space, _ = without_server(space, framework, served=served)
    data = space.as_json()
    return SearchSpace.from_json({**data, "knobs": {**data["knobs"], **world.extra}})


def probe_of(world: World) -> Mapping[str, object]:
    """What the product's probe would measure of the device before the first trial."""
    chip = world.chip
    flops = {"bf16": 0.85 * chip.flops, "fp16": 0.83 * chip.flops, "fp32": 0.85 * chip.fp32 * chip.flops}
    if chip.fp8 > 1.0:
        flops["fp8"] = 0.75 * chip.fp8 * chip.flops
    return {
        "bandwidth": 0.78 * chip.bandwidth, "cores": 16, "device": "cuda", "flops": flops, "kernel_s": 6.5e-6,
        "host_link": 0.9 * chip.host_link, "memory": int(chip.memory), "name": f"NVIDIA {chip.name}", "seconds": 10.0,
        "threads": 16, "torch": "2.11.0",
    }  # fmt: skip

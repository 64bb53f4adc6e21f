"""What a trial used, and what is blamed for its speed: each rule on cycles made for it, and on a recorded H100."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from autotune.domain import CycleRecord, GpuUse, ProcessUse, Trial
from autotune.insights.blame import ALLOCATING, ALLOCATION_S, Resource, blame
from autotune.insights.roofline import Roof, roof_of
from autotune.insights.usage import trial_use, use_of
from autotune.insights.usage_words import by_cycle, by_phase, energy_words, speed_sentence, usage_json
from autotune.machine.data_sheets import SHEETS
from tests.support import factories as make
from tests.support import recorded_gpu
from tests.support.not_none import not_none

PHASES = {"generate": 4.0, "update": 6.0}


def gpu(**changes: Any) -> GpuUse:
    """A GPU that is kept busy at its full clock."""
    return replace(GpuUse(10, 0.95, 0.3, 1980.0, 1980.0, 3000.0), **changes)


def trial(
    generate: GpuUse | None = None,
    update: GpuUse | None = None,
    *,
    whole: GpuUse | None = None,
    main: float = 0.5,
    cores: float = 0.6,
    cycle: dict[str, Any] | None = None,
    process: dict[str, Any] | None = None,
    **knobs: Any,
) -> Trial:
    """Three steady cycles of ten seconds; ``main`` and ``cores`` are used all along."""
    uses = {"generate": generate or gpu(), "update": update or gpu(), "cycle": whole or gpu()}
    use = ProcessUse({p: main * s for p, s in PHASES.items()}, {p: cores * s for p, s in PHASES.items()})
    one = make.cycle(seconds=10.0, phases=PHASES, gpu=uses, process=replace(use, **(process or {})))
    cycles = tuple(replace(one, index=index, **(cycle or {})) for index in range(3))
    return make.finished(1, cycles=0).with_(cycles=cycles, configuration=make.configuration(**knobs))


def blamed(found: Trial) -> tuple[Resource, str]:
    result = not_none(blame(found))
    return result.resource, result.phase


def test_a_gpu_that_waits_for_a_full_thread_waits_for_the_host() -> None:
    found = not_none(blame(trial(update=gpu(busy=0.45), main=0.99, cores=1.1)))
    assert (found.resource, found.phase) == (Resource.HOST, "update")
    assert found.sentence == (
        "the host: the GPU was busy 45 % of the update while the main thread used all of a core; "
        "larger micro-batches and no checkpointing cut launches"
    )


def test_a_backward_pass_is_driven_by_another_thread_and_is_the_hosts_too() -> None:
    found = not_none(blame(trial(update=gpu(busy=0.45), main=0.4, cores=1.0, gradient_checkpointing=False)))
    assert found.resource is Resource.HOST
    assert "while the trial's process used 1.0 cores; larger micro-batches cut launches" in found.sentence


def test_the_phase_that_loses_the_most_seconds_is_blamed_not_the_idlest() -> None:
    """40 % of 4 s are less than 30.1 % of 6 s."""
    busy = {"generate": gpu(busy=0.60), "update": gpu(busy=0.69)}
    assert blamed(trial(**busy, main=1.0)) == (Resource.HOST, "update")
    assert blamed(trial(generate=gpu(busy=0.5), update=gpu(busy=0.69), main=1.0)) == (Resource.HOST, "generate")


def test_a_gpu_and_a_host_that_both_wait_are_told_apart_from_a_slow_host() -> None:
    assert blamed(trial(update=gpu(busy=0.3), main=0.2, cores=0.3)) == (Resource.WAITING, "update")
    moved = gpu(busy=0.3, pcie_received=6.0 * 6e9)
    assert blamed(trial(update=moved, main=0.2, cores=0.3)) == (Resource.LINK, "update")


def test_a_gpu_that_is_kept_busy_computes_or_reads() -> None:
    assert blamed(trial(main=1.0)) == (Resource.COMPUTE, "update")
    assert blamed(trial(update=gpu(memory_busy=0.6))) == (Resource.BANDWIDTH, "update")
    assert blamed(trial(generate=gpu(memory_busy=0.6))) == (Resource.COMPUTE, "update"), "the longest phase says it"


def test_an_allocator_at_work_in_steady_cycles_comes_first() -> None:
    waiting = gpu(busy=0.4)
    assert blamed(trial(update=waiting, main=1.0, cycle={"alloc_retries": 2})) == (Resource.ALLOCATOR, "cycle")
    many = int(10.0 * ALLOCATING / ALLOCATION_S)
    assert blamed(trial(process={"device_allocations": many}))[0] is Resource.ALLOCATOR
    assert blamed(trial(process={"device_allocations": many - 1}))[0] is Resource.COMPUTE


def test_gradients_that_nothing_hides_are_blamed_though_the_gpu_is_busy_meanwhile() -> None:
    """A kernel that waits for another rank is busy by NVML. Two updates of 1.5 s, half of each hidden: 1.5 of 10 s."""
    half = {"gradient_sync_seconds": 1.5, "gradient_sync_hidden": 0.5}
    found = not_none(blame(trial(process=half, cycle={"updates": 2})))
    assert (found.resource, found.phase) == (Resource.GRADIENTS, "update")
    assert found.sentence.startswith(
        "gradient synchronisation: 1.5 of 10.0 s of a cycle, waits for a slower rank included"
    )
    assert blamed(trial(process=half, cycle={"updates": 1}))[0] is Resource.COMPUTE
    assert blamed(trial(process={**half, "gradient_sync_hidden": 1.0}, cycle={"updates": 9}))[0] is Resource.COMPUTE


def test_the_table_of_cycles_tells_how_gradients_were_summed() -> None:
    cells = not_none(by_cycle(trial(process={"gradient_sync_seconds": 0.12, "gradient_sync_hidden": 0.75}).cycles))
    row = dict(zip(cells.heads, cells.rows[0], strict=True))
    assert (row["gradient sync"], row["sync hidden"]) == ("0.12 s", "75 %")
    alone = not_none(by_cycle(trial().cycles))
    assert not {"gradient sync", "sync hidden"} & set(alone.heads)


def test_a_clock_held_down_is_heat_or_power_and_a_low_clock_alone_is_neither() -> None:
    low = {"sm_mhz": 1500.0}
    assert blamed(trial(whole=gpu(**low, hot=0.5, power_capped=0.9))) == (Resource.HEAT, "cycle")
    assert blamed(trial(whole=gpu(**low, power_capped=0.9))) == (Resource.POWER, "cycle")
    assert blamed(trial(whole=gpu(**low, power_capped=0.0)))[0] is Resource.COMPUTE
    assert blamed(trial(whole=gpu(sm_mhz=1900.0, power_capped=0.9)))[0] is Resource.COMPUTE


def test_nothing_stands_out_where_no_phase_idles_for_long() -> None:
    almost = gpu(busy=0.69)
    shorter = trial(update=almost, generate=almost, main=1.0)
    cycles = tuple(replace(c, seconds=30.0, phases={**PHASES, "idle": 20.0}) for c in shorter.cycles)
    assert blamed(shorter.with_(cycles=cycles))[0] is Resource.NOTHING


@pytest.mark.parametrize("few", [gpu(samples=3), GpuUse(30), GpuUse()])
def test_too_little_to_say_says_nothing(few: GpuUse) -> None:
    assert blame(trial(whole=few)) is None


def test_records_of_earlier_versions_say_nothing() -> None:
    old = make.finished(1)
    assert all(c.process is None and not c.gpu for c in old.cycles)
    assert (trial_use(old), blame(old), usage_json(old, None)) == (None, None, None)
    assert (by_phase(trial_use(old)), by_cycle(old.cycles), energy_words(None)) == (None, None, "")
    assert speed_sentence(old, None) == ""
    assert use_of(()) is None


def test_energy_is_that_of_all_tokens_of_a_cycle() -> None:
    use = not_none(trial_use(trial()))
    tokens = sum(make.LENGTHS)
    assert use.joules_per_token == pytest.approx(3000.0 / tokens)
    assert use.whole.watts == pytest.approx(300.0)


def test_cycles_weigh_by_their_samples() -> None:
    few, many = gpu(samples=1, busy=0.0), gpu(samples=9, busy=1.0)
    made = trial()
    cycles = [replace(c, gpu={"cycle": use}) for c, use in zip(made.cycles, (few, many, many), strict=True)]
    use = not_none(use_of(cycles))
    assert use.whole.gpu.busy == pytest.approx(18 / 19)
    assert use.whole.gpu.samples == 19


def test_where_no_thread_was_watched_the_cores_are_those_of_the_whole_trial() -> None:
    """As with verl, of which only counters of all its processes are known."""
    made = trial()
    cycles = [replace(c, cpu_seconds=2 * c.seconds, process=ProcessUse(system_seconds=0.5)) for c in made.cycles]
    use = not_none(use_of(cycles))
    assert (use.whole.cores, use.whole.main_thread) == (pytest.approx(2.0), None)
    assert all(p.cores is None and p.main_thread is None for p in use.phases)


def test_columns_nobody_knows_anything_of_are_left_out() -> None:
    cells = not_none(by_phase(trial_use(trial())))
    assert cells.heads == ("phase", "GPU busy", "GPU memory busy", "MHz", "watts", "main thread", "cores used")
    assert [row[0] for row in cells.rows] == ["update", "generate", "whole cycle"]
    assert all(len(row) == len(cells.heads) for row in cells.rows)


def test_the_recorded_h100_was_host_bound_in_its_update() -> None:
    """The child of that time did not tell of phases, but its whole tree used one core all along."""
    for number in (0, 1):
        found = not_none(blame(recorded_gpu.trial(number)))
        assert (found.resource, found.phase) == (Resource.HOST, "update")
        assert "while the trial used 1.0 cores all along" in found.sentence
    plain, vllm = (not_none(trial_use(recorded_gpu.trial(number))) for number in (0, 1))
    assert 1.4 < plain.joules_per_token / vllm.joules_per_token < 2.0, "vLLM's speed saves energy too"


def test_the_share_of_the_roofline_needs_a_known_gpu_and_model() -> None:
    study = make.study(spec=recorded_gpu.spec(), lengths=recorded_gpu.cycles(0)[3].lengths)
    fingerprint = make.fingerprint(hardware={"gpus": [{"name": "NVIDIA H100 80GB HBM3"}]})
    roof = roof_of(study, fingerprint)
    assert isinstance(roof, Roof)
    assert roof.peak is SHEETS["H100"]
    baseline = recorded_gpu.trial(0)
    share = not_none(roof.share(baseline))
    assert 0.0 < share < 0.5
    assert speed_sentence(baseline, roof).endswith("of what this GPU could do at most, if nothing ever waited")
    assert roof_of(study, None) is None
    assert roof_of(study, make.fingerprint(hardware={"gpus": [{"name": "Example 9000"}]})) is None
    two = {"gpus": [{"name": "NVIDIA H100 80GB HBM3"}] * 2}
    assert roof_of(study, make.fingerprint(hardware=two)) is None
    assert roof_of(make.study(), fingerprint) is None, "of a CPU"


def test_the_json_has_every_figure_and_no_nan() -> None:
    document = not_none(usage_json(trial(main=1.0, update=gpu(busy=0.4)), None))
    json.dumps(document, allow_nan=False)
    assert document["blame"]["resource"] == "host"
    assert set(document["phases"]) == {"generate", "update", "cycle"}
    assert document["phases"]["cycle"]["gpu"]["busy_share"] == 0.95
    assert document["roofline_share"] is None


def test_every_rank_but_the_first_is_left_out_of_the_table_of_cycles() -> None:
    cycles: Sequence[CycleRecord] = trial().cycles
    cells = not_none(by_cycle([*cycles, replace(cycles[0], rank=1)]))
    assert len(cells.rows) == len(cycles)

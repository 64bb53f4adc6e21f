"""Which earlier studies a new one may begin from."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from autotune.domain import Study, StudySpec
from autotune.insights.related import FARTHEST, related
from search_spaces.configuration import ModelFacts
from tests.support import factories

GIB = factories.GIB


def on_gpus(
    name: str = "here", *, gpus: int = 8, parameters: int | None = 7_000_000_000, rows: int = 64, **more: object
) -> StudySpec:
    resources = factories.resources(
        gpus=gpus, device="cuda", device_memory=80 * GIB, compute_capability=(9, 0),
        model=ModelFacts(parameters=parameters), **more,
    )  # fmt: skip
    work = factories.workload(rows_per_update=rows, model_sha256=f"{parameters}")
    return factories.study_spec(name, resources=resources, workload=work, memory_limit=None)


def stored(number: int, spec: StudySpec) -> Study:
    return factories.study(id=number, spec=spec, created_at=factories.NOW + number)


def test_nearest_are_the_same_model_on_other_gpus_and_another_size_on_the_same() -> None:
    studies = [
        stored(1, on_gpus("half", gpus=4)),
        stored(2, on_gpus("small", parameters=1_500_000_000)),
        stored(3, on_gpus("small half", gpus=2, parameters=1_500_000_000)),
        stored(4, on_gpus("other rows", rows=65)),
    ]
    found = related(studies, on_gpus())
    assert [r.study.spec.name for r in found] == ["other rows", "half", "small", "small half"]
    assert found[1].distance == 1.0
    assert "gpus 4 instead of 8" in found[1].sentence
    assert "1,500,000,000 parameters instead of 7,000,000,000" in found[2].sentence


def test_what_is_not_comparable_or_too_far_is_left_out() -> None:
    here = on_gpus()
    studies = [
        stored(1, here),
        stored(2, replace(on_gpus("verl", gpus=4), framework="verl")),
        stored(3, factories.study_spec("cpu")),
        stored(4, on_gpus("tiny", parameters=7_000_000_000 // 2**9)),
        stored(5, replace(on_gpus("unknown", gpus=4, parameters=None), workload=factories.workload(model_sha256="x"))),
    ]
    assert related(studies, here) == ()


def test_of_equally_near_ones_the_newest_goes_first() -> None:
    studies = [stored(1, on_gpus("old", gpus=4)), stored(2, on_gpus("new", gpus=4))]
    assert [r.study.id for r in related(studies, on_gpus())] == [2, 1]


def test_adapters_and_all_weights_are_apart() -> None:
    here = on_gpus()
    for framework, key, value in (
        ("trl", "use_peft", True),
        ("ms_swift", "tuner_type", "full"),
        ("verl", "actor_rollout_ref.model.lora_rank", 32),
    ):
        mine = replace(here, framework=framework)
        load = replace(mine.workload, passthrough={**mine.workload.passthrough, key: value})
        (found,) = related([stored(1, replace(mine, name="lora", workload=load))], mine)
        assert found.distance == 2.0, framework
        assert "adapters" in found.sentence


@settings(max_examples=30)
@given(gpus=st.integers(1, 64), parameters=st.integers(10**8, 10**11), rows=st.integers(8, 512))
def test_distance_is_the_same_both_ways_and_bounded(gpus: int, parameters: int, rows: int) -> None:
    here, there = on_gpus(), on_gpus("there", gpus=gpus, parameters=parameters, rows=rows)
    forth, back = related([stored(1, there)], here), related([stored(1, here)], there)
    assert len(forth) == len(back)
    for one, other in zip(forth, back, strict=True):
        assert abs(one.distance - other.distance) < 1e-9
        assert 0 <= one.distance <= FARTHEST

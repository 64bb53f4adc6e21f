from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.domain import Study
from autotune.insights.matching import TrainingProfile, nearest_studies
from tests.support import factories


def made(number: int, **changes: Any) -> Study:
    resources = factories.resources(**changes.pop("resources", {}))
    framework = changes.pop("framework", "trl")
    spec = factories.study_spec(workload=factories.workload(**changes), resources=resources, framework=framework)
    return factories.study(id=number, spec=spec, created_at=factories.NOW + number)


def order(studies: list[Study], **wanted: Any) -> list[int]:
    return [match.study.id for match in nearest_studies(studies, TrainingProfile(**wanted))]


def test_what_is_not_asked_for_does_not_matter_and_the_newest_comes_first() -> None:
    studies = [made(1, model="a"), made(2, model="b", rows_per_update=512), made(3)]
    assert order(studies) == [3, 2, 1]
    assert all(match.distance == 0 and not match.differences for match in nearest_studies(studies, TrainingProfile()))


def test_a_model_of_the_same_family_is_nearer_than_another() -> None:
    studies = [made(1, model="org/Llama-3-8B"), made(2, model="org/Qwen2.5-3B"), made(3, model="/data/Qwen2.5-1.5B/")]
    assert order(studies, model="Qwen/Qwen2.5-1.5B") == [3, 2, 1]
    assert nearest_studies(studies, TrainingProfile(model="qwen/qwen2.5-1.5b"))[0].distance == 0


def test_numbers_are_as_far_as_their_ratio() -> None:
    studies = [made(1, max_completion_length=256), made(2, max_completion_length=2048)]
    assert order(studies, max_completion_tokens=512) == [1, 2]
    (difference,) = nearest_studies(studies, TrainingProfile(max_completion_tokens=512))[0].differences
    assert (difference.name, difference.target, difference.study) == ("max_completion_tokens", 512, 256)
    assert difference.distance == pytest.approx(1.0)


def test_another_framework_outweighs_a_device_and_that_a_model() -> None:
    other = {"resources": {"device": "NVIDIA H200", "gpus": 1}}
    studies = [made(1, framework="verl"), made(2, **other), made(3, model="x/entirely-else")]
    assert order(studies, framework="TRL", gpu="cpu", model="/models/small") == [3, 2, 1]


def test_part_of_a_gpu_name_is_enough() -> None:
    studies = [made(1), made(2, resources={"device": "NVIDIA H200", "gpus": 1})]
    assert order(studies, gpu="h200") == [2, 1]
    assert order(studies, gpus=8) == [2, 1], "none against some is further than one against eight"


@given(
    wanted=st.builds(
        TrainingProfile,
        model=st.none() | st.text(max_size=20),
        framework=st.none() | st.text(max_size=5),
        gpu=st.none() | st.text(max_size=5),
        gpus=st.none() | st.integers(0, 2**53),
        params_b=st.none() | st.integers(1, 2**53),
    )
)
def test_any_question_has_an_ordered_answer(wanted: TrainingProfile) -> None:
    matches = nearest_studies([made(1), made(2, model="b"), made(3, resources={"gpus": 4})], wanted)
    distances = [m.distance for m in matches]
    assert distances == sorted(distances)
    assert all(0 <= d < 1000 for d in distances)
    assert sorted(m.study.id for m in matches) == [1, 2, 3]

"""Published baselines: what they say, and what they become on other GPUs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.batch import batch_of, rows_allowed, training_gpus
from search_spaces.configuration import Resources
from search_spaces.errors import SpaceError
from search_spaces.legality import check
from search_spaces.published import PUBLISHED, Published, Scaled, published, scaled

EACH = pytest.mark.parametrize("baseline", list(PUBLISHED.values()), ids=list(PUBLISHED))
ANY = st.sampled_from(list(PUBLISHED.values()))


def machine(baseline: Published, gpus: int) -> Resources:
    return Resources(gpus=gpus, device="cuda", framework=baseline.framework)


def on(baseline: Published, gpus: int) -> Scaled | None:
    """Scaled, or ``None`` where the number of GPUs is refused."""
    try:
        return scaled(baseline, gpus)
    except SpaceError:
        return None


@EACH
def test_a_baseline_is_legal_and_unchanged_on_the_gpus_it_was_written_for(baseline: Published) -> None:
    found = scaled(baseline, baseline.gpus)
    kept = {**found.configuration, **baseline.configuration}
    assert dict(found.configuration) == kept
    assert check(found.configuration, machine(baseline, baseline.gpus), found.configuration) == ()
    assert batch_of(baseline.configuration, machine(baseline, baseline.gpus)).rows == baseline.rows_per_update


@EACH
def test_the_source_is_told_with_a_file_and_a_version(baseline: Published) -> None:
    repository, _, place = baseline.source.partition(" ")
    assert "@" in repository
    assert "/" in place
    assert scaled(baseline, baseline.gpus).lines[0] == f"{baseline.name} is {baseline.source}."


@given(ANY, st.integers(1, 64))
def test_rows_per_update_are_kept_on_any_gpus_that_can_share_them(baseline: Published, gpus: int) -> None:
    found = on(baseline, gpus)
    if found is None:
        return
    resources = machine(baseline, gpus)
    batch = batch_of(found.configuration, resources)
    assert batch.rows == found.rows_per_update
    assert rows_allowed(batch.rows, baseline.rows_per_update, batch.ranks)
    if baseline.rows_per_update % batch.ranks == 0:
        assert batch.rows == baseline.rows_per_update
    assert batch.steps == baseline.reuse * batch.accumulation
    assert batch.group == baseline.configuration["num_generations"]
    assert any(str(batch.rows) in line and "rows per update" in line for line in found.lines)


@given(ANY, st.integers(1, 64))
def test_a_scaled_baseline_is_legal(baseline: Published, gpus: int) -> None:
    found = on(baseline, gpus)
    if found is not None:
        resources = machine(baseline, gpus)
        assert [v.sentence for v in check(found.configuration, resources, found.configuration)] == []


@given(ANY, st.integers(1, 64))
def test_only_knobs_of_the_batch_and_the_split_change_and_each_is_told(baseline: Published, gpus: int) -> None:
    found = on(baseline, gpus)
    if found is None:
        return
    changed = {
        name
        for name in {*baseline.configuration, *found.configuration}
        if baseline.configuration.get(name) != found.configuration.get(name)
    }
    batch = {"micro_batch_size", "gradient_accumulation_steps", "steps_per_generation", "logprob_rows"}
    split = {"rollout_mode", "rollout_gpus", "rollout_data_parallel_size", "gpu_memory_utilization"}
    assert changed <= batch | split | {"tensor_parallel_size"}
    text = " ".join(found.lines)
    assert "tensor_parallel_size" not in changed or "tensor_parallel_size" in text
    assert "rollout_mode" not in changed or "colocated" in text


@given(ANY, st.integers(1, 64))
def test_a_refusal_names_a_number_of_gpus_that_works(baseline: Published, gpus: int) -> None:
    try:
        scaled(baseline, gpus)
    except SpaceError as error:
        fewer = int(str(error).rpartition(" ")[2])
        assert fewer < gpus
        assert scaled(baseline, fewer).gpus == fewer


def test_one_gpu_takes_what_eight_did() -> None:
    found = scaled(published("openr1:qwen2.5-1.5b-demo"), 1)
    assert found.rows_per_update == 512
    assert found.configuration["micro_batch_size"] == 16
    assert found.configuration["gradient_accumulation_steps"] == 32


def test_a_server_keeps_its_share_and_one_gpu_has_none_to_spare() -> None:
    baseline = published("swift:qwen2.5-7b-server")
    four, one = scaled(baseline, 4), scaled(baseline, 1)
    assert (four.configuration["rollout_gpus"], training_gpus(four.configuration, machine(baseline, 4))) == (1, 3)
    assert four.rows_per_update == one.rows_per_update == 24
    assert one.configuration["rollout_mode"] == "colocate"
    assert "rollout_gpus" not in one.configuration


@given(ANY.filter(lambda one: one.rollout_gpus > 0), st.integers(1, 32))
def test_where_trials_can_have_no_server_the_engine_shares_all_gpus(baseline: Published, gpus: int) -> None:
    try:
        found = scaled(baseline, gpus, colocated="Such trials cannot have a rollout server")
    except SpaceError as error:
        fewer = int(str(error).rpartition(" ")[2])
        assert scaled(baseline, fewer, colocated="x").gpus == fewer < gpus
        return
    resources = machine(baseline, gpus)
    assert found.configuration["rollout_mode"] == "colocate"
    assert training_gpus(found.configuration, resources) == gpus
    assert batch_of(found.configuration, resources).rows == found.rows_per_update
    assert [v.sentence for v in check(found.configuration, resources, found.configuration)] == []
    assert any(line.startswith("Such trials cannot have a rollout server, so the engine is") for line in found.lines)


def test_generations_that_serve_several_updates_go_on_doing_so() -> None:
    found = scaled(published("swift:qwen2.5-7b-gspo"), 2)
    assert found.configuration["steps_per_generation"] == 4 * int(found.configuration["gradient_accumulation_steps"])


def test_without_a_gpu_it_is_refused() -> None:
    with pytest.raises(SpaceError, match="written for GPUs, and none is held"):
        scaled(published("verl:qwen3-4b"), 0)


def test_an_unknown_name_is_answered_with_the_closest() -> None:
    with pytest.raises(SpaceError, match=r"did you mean openr1:qwen2\.5-1\.5b-demo"):
        published("openr1:qwen2.5-1.5b-dem")
    with pytest.raises(SpaceError, match=r"known are openr1:"):
        published("!")

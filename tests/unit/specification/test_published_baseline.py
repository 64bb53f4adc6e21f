"""A published baseline in place of the user's own configuration: what is taken, and what goes before it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune import frameworks
from autotune.cli.commands.start_request import framework_asked
from autotune.domain import RewardSpec
from autotune.errors import UsageError
from autotune.frameworks import TrlFramework
from autotune.specification.published_baseline import with_published
from autotune.specification.request import Request
from search_spaces.batch import batch_of
from search_spaces.configuration import Resources
from search_spaces.errors import SpaceError
from search_spaces.knobs import FRAMEWORKS as CATALOGUE
from search_spaces.published import PUBLISHED, published, scaled
from tests.support.imports import of

DEMO = "openr1:qwen2.5-1.5b-demo"


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every framework of the catalogue, whether its package is there or not."""
    monkeypatch.setattr(frameworks, "FRAMEWORKS", dict.fromkeys(CATALOGUE, TrlFramework))


FILE = RewardSpec("file", "score", "/r.py")


def asked(**changes: Any) -> Request:
    return Request(**{"framework": "open_r1", "published": DEMO, "folder": "/work", **changes})


def test_everything_the_source_says_is_taken() -> None:
    joined, lines = with_published(asked(), 8)
    found = published(DEMO)
    assert (joined.model, joined.rows_per_update) == (found.model, found.rows_per_update)
    assert joined.max_completion_length == found.max_completion_length
    assert joined.dataset == {"dataset_name": found.dataset}
    assert [reward.kind for reward in joined.rewards] == ["open_r1"] * len(found.rewards)
    assert joined.passthrough == dict(found.workload)
    assert lines == scaled(found, 8).lines


@given(name=st.sampled_from(sorted(PUBLISHED)), gpus=st.integers(1, 16))
def test_the_baseline_has_the_rows_that_are_said(name: str, gpus: int) -> None:
    found = published(name)
    try:
        here = scaled(found, gpus)
    except SpaceError:
        with pytest.raises(UsageError, match=name):
            with_published(asked(published=name, framework=found.framework), gpus)
        return
    joined, lines = with_published(asked(published=name, framework=found.framework), gpus)
    resources = Resources(gpus=gpus, device="cuda", framework=found.framework)
    assert batch_of(joined.baseline, resources).rows == joined.rows_per_update
    assert lines == here.lines


def test_what_is_typed_goes_before_it() -> None:
    request = asked(
        model="/mine", data="/p.jsonl", rewards=(FILE,), max_completion_length=64, baseline={"enforce_eager": True}
    )
    joined, _ = with_published(request, 4)
    assert (joined.model, joined.data, dict(joined.dataset)) == ("/mine", "/p.jsonl", {})
    assert (joined.rewards, joined.max_completion_length) == ((FILE,), 64)
    assert joined.baseline["enforce_eager"] is True
    assert "reward_weights" not in joined.passthrough


def test_a_request_without_one_stays_as_it_is() -> None:
    assert with_published(asked(published=""), 0) == (asked(published=""), ())


@pytest.mark.parametrize(("changes", "gpus", "said"), of("what_cannot_be_joined_is_one_sentence"))
def test_what_cannot_be_joined_is_one_sentence(changes: dict[str, Any], gpus: int, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        with_published(asked(**changes), gpus)
    assert len(str(refused.value).splitlines()) == 1


def test_the_framework_follows_from_the_baseline_unless_it_is_named() -> None:
    assert framework_asked(None, None) == "trl"
    assert framework_asked("trl", DEMO) == "trl"  # refused where the two are joined
    with pytest.raises(UsageError, match="no published baseline"):
        framework_asked(None, "openr1:nothing")

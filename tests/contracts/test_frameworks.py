"""The suite of the port over every framework that is registered."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.routes import recommendation
from autotune.errors import UsageError
from autotune.frameworks import ENVIRONMENTS, FRAMEWORKS, Integration, Source, framework_named
from search_spaces.frameworks import SHORT
from search_spaces.knobs import FRAMEWORKS as CATALOGUE
from tests.contracts.framework_suite import FrameworkSuite


class TestTrl(FrameworkSuite):
    name = "trl"


class TestTrlOnACpu(FrameworkSuite):
    name = "trl"
    device = "cpu"


class TestOpenR1(FrameworkSuite):
    name = "open_r1"


class TestOpenR1OnACpu(FrameworkSuite):
    name = "open_r1"
    device = "cpu"


class TestSwift(FrameworkSuite):
    name = "ms_swift"


class TestSwiftOnACpu(FrameworkSuite):
    name = "ms_swift"
    device = "cpu"


class TestVerl(FrameworkSuite):
    name = "verl"


def test_every_registered_framework_runs_the_suite() -> None:
    tested = {cls.name for cls in FrameworkSuite.__subclasses__()}
    assert set(FRAMEWORKS) == tested


@given(name=st.sampled_from(sorted(FRAMEWORKS)), text=st.text(max_size=200))
def test_any_text_is_a_configuration_or_a_sentence_that_names_its_file(name: str, text: str) -> None:
    said = _said(framework_named(name), text)
    assert said == "" or "own.cfg" in said
    assert len(said.splitlines()) <= 1


def _said(framework: Integration, text: str) -> str:
    """What is said against ``text`` as a configuration; empty if nothing is."""
    source = Source(text, "own.cfg")
    try:
        framework.read_keys(source, dict.fromkeys(framework.named_files(source), "{}"))
    except UsageError as error:
        return str(error)
    return ""


def test_the_registry_knows_no_framework_the_catalogue_does_not() -> None:
    assert set(FRAMEWORKS) <= set(CATALOGUE)
    assert set(ENVIRONMENTS) == set(CATALOGUE)


@pytest.mark.parametrize("word", ["", "TRL", "megatron", *(SHORT[f] for f in CATALOGUE if f not in FRAMEWORKS)])
def test_a_framework_that_is_not_there_is_refused_by_name(word: str) -> None:
    with pytest.raises(
        UsageError, match=f"no framework '{word}' yet; (choose one of: trl, openr1, swift, verl|did you mean trl)"
    ):
        framework_named(word)


def test_a_format_of_an_export_is_a_word_of_the_command_line() -> None:
    assert [form.value for form in recommendation.Format] == ["json", *SHORT.values()]

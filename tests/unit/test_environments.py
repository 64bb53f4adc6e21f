"""What a framework's environment lacks, in one sentence with the command that mends it."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from autotune.frameworks.environments import ENVIRONMENTS, MS_SWIFT, TRL, VERL, Needed, within

SWIFT = {
    "torch": "2.13.0+cpu",
    "swift": "4.6.0",
    "trl": "0.29.1",
    "transformers": "5.10.4",
    "accelerate": "1.15.0",
    "datasets": "4.8.4",
    "peft": "0.20.0",
    "msgspec": "0.19.0",
}


def test_an_environment_that_has_everything_is_no_problem() -> None:
    assert MS_SWIFT.problem("/env/bin/python", "3.11.7", SWIFT) == ""
    assert MS_SWIFT.lacking(SWIFT) == MS_SWIFT.outside(SWIFT) == ()


@pytest.mark.parametrize("name", sorted(SWIFT))
def test_each_missing_package_is_named_with_its_command(name: str) -> None:
    said = MS_SWIFT.problem("/env/bin/python", "3.11.7", {k: v for k, v in SWIFT.items() if k != name})
    assert said.startswith(f"/env/bin/python lacks {name}; install with: /env/bin/python -m pip install ")
    (wanted,) = shlex.split(said.partition(" -m pip install ")[2])
    assert Requirement(wanted).name == ("ms-swift" if name == "swift" else name)


@pytest.mark.parametrize(
    ("name", "version"),
    [("swift", "4.5.1"), ("swift", "4.7.0"), ("trl", "1.16.0"), ("trl", "0.25"), ("datasets", "4.8.5"), ("peft", "?")],
)
def test_a_version_outside_is_named_with_the_versions_that_will_do(name: str, version: str) -> None:
    said = MS_SWIFT.problem("/env/bin/python", "3.11.7", {**SWIFT, name: version})
    assert f"has {name} {version}; install with: " in said
    (wanted,) = shlex.split(said.partition(" -m pip install ")[2])
    assert not within(str(Requirement(wanted).specifier), version)


@pytest.mark.parametrize(
    ("version", "taken"), [("3.9.1", False), ("3.10.0", True), ("3.12.9", True), ("3.13.0", False)]
)
def test_a_python_the_framework_has_no_release_for(version: str, taken: bool) -> None:
    assert VERL.takes_python(version) is taken
    said = VERL.problem("/env/bin/python", version, {})
    assert ("Python >=3.10,<3.13 is needed" in said) is not taken


def test_trls_environment_is_judged_by_the_child_itself() -> None:
    assert TRL.modules == {}
    assert TRL.problem("/env/bin/python", "3.11", {}) == ""
    assert TRL.pip == "torch 'trl>=1.16,<1.17' transformers accelerate datasets"


def test_every_environment_can_be_typed_after_pip() -> None:
    for environment in ENVIRONMENTS.values():
        words = shlex.split(environment.pip)
        assert len(words) == len(environment.needed)
        assert all(Requirement(word).name for word in words)


@given(version=st.text(max_size=12))
def test_any_version_is_judged(version: str) -> None:
    assert Needed("x").takes(version)
    assert isinstance(Needed("x", ">=1,<2").takes(version), bool)

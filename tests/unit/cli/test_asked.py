"""Words of ``start`` about the framework: which one, where its source lies, what it is launched with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autotune.cli.commands.start_options import StartOptions
from autotune.cli.commands.start_request import request_of
from autotune.errors import UsageError
from autotune.frameworks import framework_named
from autotune.machine import hardware
from autotune.specification.request import Request


def asked(folder: Path, config: Path | None = None, **changes: Any) -> Request:
    return request_of(StartOptions(config=config, **changes), folder)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with what Open-R1's trials run."""
    script = tmp_path / "open-r1" / framework_named("openr1").script
    script.parent.mkdir(parents=True)
    script.touch()
    return tmp_path / "open-r1"


def test_without_a_word_it_is_trl(tmp_path: Path) -> None:
    assert (asked(tmp_path).framework, asked(tmp_path).checkout) == ("trl", "")


def test_both_names_of_a_framework_are_taken(tmp_path: Path) -> None:
    assert {asked(tmp_path, framework=word).framework for word in ("swift", "ms_swift")} == {"ms_swift"}


def test_open_r1_is_told_where_its_source_and_its_launch_are(tmp_path: Path, checkout: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("beta: 0.1")
    (tmp_path / "zero2.yaml").write_text("num_processes: 8")
    found = asked(
        tmp_path,
        framework="openr1",
        openr1="open-r1",
        config=tmp_path / "recipe.yaml",
        accelerate=tmp_path / "zero2.yaml",
    )
    assert (found.checkout, found.accelerate) == (str(checkout), "num_processes: 8")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"framework": "megatron"}, "there is no framework 'megatron' yet; choose one of: trl, "),
        ({"framework": "openr1"}, "name a checkout of Open-R1 with --openr1 PATH"),
        ({"framework": "openr1", "openr1": "."}, "is no checkout of Open-R1: there is no "),
        ({"openr1": "open-r1"}, "--openr1 is the checkout that Open-R1's trials run from"),
        ({"accelerate": Path("a.yaml")}, "--accelerate is the file that `accelerate launch` is given"),
        (
            {"framework": "openr1", "openr1": "open-r1", "accelerate": Path("a.yaml")},
            "beside a configuration of TRL or Open-R1",
        ),
        ({"published": "openr1:nothing"}, "no published baseline"),
        ({"published": "openr1:qwen2.5-1.5b-demo"}, "name a checkout of Open-R1"),
    ],
)
@pytest.mark.usefixtures("checkout")
def test_what_does_not_belong_together_is_one_sentence(tmp_path: Path, words: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        asked(tmp_path, **words)
    assert len(str(refused.value).splitlines()) == 1


def test_a_containers_limit_is_the_trials_unless_several_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hardware, "contained_memory", lambda: 5 << 30)
    plain, given = StartOptions(), StartOptions(memory_limit="2GiB")
    limits = [
        request_of(options, tmp_path, at_once).memory_limit
        for options, at_once in ((plain, 1), (plain, 4), (given, 1), (given, 4))
    ]
    assert limits == [5 << 30, None, 2 << 30, 2 << 30]


@pytest.mark.parametrize(("length", "said"), [(200, ""), (201, "--name has 201 characters; expected at most 200")])
def test_a_name_is_as_long_as_a_screen_can_show(tmp_path: Path, length: int, said: str) -> None:
    options = StartOptions(name="x" * length)
    if not said:
        assert len(str(request_of(options, tmp_path).name)) == length
        return
    with pytest.raises(UsageError, match=said):
        request_of(options, tmp_path)

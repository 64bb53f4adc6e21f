"""How a dataclass's types and defaults are told; what TRL itself has is looked at in the real environment."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from pathlib import Path
from typing import Any, Dict, List, Literal, Optional, Union  # noqa: UP035 - the older spellings are what is tested

import pytest

from trainer.child import describe
from trainer.child.contract import FailureReason, RunPaths, read_result
from trainer.frameworks.common.fields import fields_of


class Word(Enum):
    FIRST = "first"
    LAST = "last"


@dataclasses.dataclass
class Inner:
    path: str = ""


@dataclasses.dataclass
class GRPOConfig:
    switch: bool = True
    number: Optional[int] = None  # noqa: UP045
    share: float | None = 0.1
    text: Union[str, None] = None  # noqa: UP007
    word: Word | str = Word.LAST
    literal: Literal["a", "b"] = "a"
    told: str = dataclasses.field(default="x", metadata={"choices": ["x", "y"]})
    names: List[str] = dataclasses.field(default_factory=list)  # noqa: UP006
    weights: list[float] | None = None
    mapping: Dict[str, Any] | str | None = None  # noqa: UP006
    inner: list[Inner] = dataclasses.field(default_factory=lambda: [Inner()])
    needed: Any = dataclasses.field(default_factory=object)
    own: Path | None = None
    hidden: int = dataclasses.field(init=False, default=3)


EXPECTED = {
    "switch": ("bool", True, False, []),
    "number": ("int | none", None, False, []),
    "share": ("float | none", 0.1, False, []),
    "text": ("str | none", None, False, []),
    "word": ("str", "last", False, ["first", "last"]),
    "literal": ("str", "a", False, ["a", "b"]),
    "told": ("str", "x", False, ["x", "y"]),
    "names": ("list[str]", [], False, []),
    "weights": ("list[float] | none", None, False, []),
    "mapping": ("dict | str | none", None, False, []),
    "inner": ("list[dict]", None, True, []),
    "needed": ("any", None, True, []),
    "own": ("object | none", None, False, []),
}


def test_each_kind_of_field_is_told_in_plain_words() -> None:
    describe_module_hints = describe.fields([GRPOConfig])
    fields = {n: (e["type"], e["default"], e["unset"], e["choices"]) for n, e in describe_module_hints.items()}
    assert fields == EXPECTED
    assert {e["group"] for e in describe_module_hints.values()} == {"training"}
    json.dumps(describe_module_hints, allow_nan=False)


def test_the_parent_understands_what_the_child_tells() -> None:
    found = fields_of(json.loads(json.dumps(describe.fields([GRPOConfig]))))
    assert found["mapping"].typed('{"a": "1"}') == {"a": 1}
    assert found["number"].typed("None") is None
    assert found["word"].typed("first") == "first"
    assert found["inner"].typed([{"path": "x"}]) == [{"path": "x"}]


@pytest.mark.parametrize("config", ["[]", '{"config": 5}', "{"])
def test_a_malformed_request_is_a_result_not_a_crash(tmp_path: Path, config: str) -> None:
    (tmp_path / "config.json").write_text(config)
    assert not describe.main(tmp_path).ok
    assert not read_result(RunPaths(tmp_path).result).ok


def test_a_refusal_still_carries_the_description(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the parent, which knows the lines, can say something better first."""

    class Parser:
        dataclass_types = (GRPOConfig,)

    seen: list[dict[str, Any]] = []

    def refuse(keys: dict[str, Any], scratch: Path) -> str:
        seen.append(keys)
        return "no"

    monkeypatch.setattr(describe, "script_parser", Parser)
    monkeypatch.setattr(describe, "refusal", refuse)
    monkeypatch.setattr(describe.importlib.metadata, "version", lambda name: "1.16.0")
    monkeypatch.setenv("AUTOTUNE_TEST_DESCRIBED", "")
    config = {"config": {"switch": "yes", "env": {"AUTOTUNE_TEST_DESCRIBED": 5}}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    result = describe.main(tmp_path)
    assert (result.ok, result.reason, result.message) == (False, FailureReason.ILLEGAL, "no")
    assert set(result.data["fields"]) == set(EXPECTED)
    assert seen == [{"switch": "yes"}]
    assert describe.os.environ["AUTOTUNE_TEST_DESCRIBED"] == "5"

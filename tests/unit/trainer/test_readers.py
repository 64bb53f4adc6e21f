"""A user's own configuration becomes what ``tests/fixtures/readers.yaml`` says, or is refused in one sentence."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import swift_fields, trl_fields
from tests.support.imports import of
from trainer.frameworks.common.config_entries import ConfigError
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.open_r1.keys import FIELDS

ROWS: dict[str, Any] = yaml.safe_load((Path(__file__).parents[2] / "fixtures" / "readers.yaml").read_text("utf-8"))
FIELDS_OF: Mapping[str, Mapping[str, Any]] = {
    "trl": trl_fields.FIELDS,
    "open_r1": FIELDS,
    "ms_swift": swift_fields.FIELDS,
    "verl": {},
}
NAMES = {"trl": "grpo.yaml", "open_r1": "recipe.yaml", "ms_swift": "run.sh", "verl": "mine.txt"}
NOT_READ = [("trl", text, sentence) for text, sentence in of("what_cannot_be_taken_is_one_sentence_with_its_line")] + [
    ("ms_swift", text, sentence) for text, sentence in of("what_is_wrong_is_told_in_one_sentence")
]


def read(framework: str, text: str, name: str = "", **given: Any) -> Imported:
    reader = importlib.import_module(f"trainer.frameworks.{framework}.import_config")
    found = reader.import_config(text, name or NAMES[framework], FIELDS_OF[framework], **given)
    assert isinstance(found, Imported)
    return found


def plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def refusal(framework: str, text: str, name: str = "", *, sentences: int = 1, **given: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(framework, text, name, **given)
    message = str(caught.value)
    assert message.startswith((name or NAMES[framework], "accelerate.yaml"))
    assert message.endswith(".")
    assert len(message.splitlines()) == sentences
    assert "sentinel" not in message, "a secret"
    return message


@pytest.mark.parametrize("case", ROWS["cases"], ids=lambda case: f"{case['of']}: {case['what']}")
def test_a_configuration_becomes_what_its_framework_makes_of_it(case: Mapping[str, Any]) -> None:
    given = {key: value for key, value in case.items() if key not in ("what", "of", "base", "text", "right", "refused")}
    text = ROWS["bases"].get(case.get("base"), "") + case["text"]
    if "refused" in case:
        message = refusal(case["of"], text, **given)
        assert [words for words in case["refused"] if words not in message] == []
        return
    found = read(case["of"], text, **given)
    for key, right in case["right"].items():
        name, _, part = key.partition(" ")
        value = plain(getattr(found, name))
        if name == "notes":
            assert len(value) == len(right), value
            assert [words for words, note in zip(right, value, strict=True) if words not in note] == []
        elif part == "without":
            assert not set(right) & set(value)
        else:
            assert ({entry: value.get(entry) for entry in right} if part else value) == right


@pytest.mark.parametrize(("framework", "text", "sentence"), NOT_READ)
def test_what_cannot_be_read_is_one_sentence(framework: str, text: str, sentence: str) -> None:
    assert sentence in refusal(framework, text)


@pytest.mark.parametrize(("text", "says"), of("a_mistake_is_one_sentence_with_its_line"))
def test_a_mistake_in_a_recipe_is_one_sentence_with_its_line(text: str, says: str) -> None:
    assert re.search(says, refusal("open_r1", text, processes=8))

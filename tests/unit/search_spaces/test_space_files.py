"""Space files: what they mean, and that no bad one gets past or hangs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import Configuration, KnobValue
from search_spaces.errors import SpaceError
from search_spaces.space import SearchSpace, parse_value
from search_spaces.yaml_text import MAX_BYTES
from tests.support.imports import of
from tests.support.properties import examples


def load(tmp_path: Path, text: str | bytes) -> SearchSpace:
    path = tmp_path / "mine.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return SearchSpace.load(path)


def refusal(tmp_path: Path, text: str | bytes) -> str:
    with pytest.raises(SpaceError) as caught:
        load(tmp_path, text)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "mine.yaml"))
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 400 + len(str(tmp_path))
    return message.removeprefix(str(tmp_path / "mine.yaml"))


# --- what a file means -------------------------------------------------------------------------------------------


def test_lists_ranges_and_single_values(tmp_path: Path) -> None:
    space = load(
        tmp_path,
        """
        knobs:
          micro_batch_size: {min: 1, max: 20, log2: true}
          num_generations: {min: 2, max: 8, step: 3}
          gpu_memory_utilization: {min: 0.2, max: 0.5, step: 0.1}
          gradient_checkpointing: [true, off]
          precision: [bf16]
          attn_implementation: sdpa
          steps_per_generation: [accumulation, 2]
        """,
    )
    assert dict(space.values) == {
        "micro_batch_size": (1, 2, 4, 8, 16),
        "num_generations": (2, 5, 8),
        "gpu_memory_utilization": (0.2, 0.3, 0.4, 0.5),
        "gradient_checkpointing": (True, False),
        "steps_per_generation": ("accumulation", 2),
    }
    assert space.fixed == Configuration({"precision": "bf16", "attn_implementation": "sdpa"})
    assert space.size == 5 * 3 * 4 * 2 * 2
    assert SearchSpace.from_json(space.as_json()) == space


def test_a_file_extends_a_preset(tmp_path: Path) -> None:
    preset = SearchSpace.load("cpu")
    space = load(tmp_path, "extends: cpu\nknobs:\n  micro_batch_size: [2, 4]\n  optimizer: null\n  precision: fp32\n")
    assert space.values["micro_batch_size"] == (2, 4)
    assert "optimizer" not in space.values
    assert space.fixed["precision"] == "fp32"
    assert space.values["num_generations"] == preset.values["num_generations"]
    assert space.require == preset.require


def test_json_of_an_extended_preset_stands_alone(tmp_path: Path) -> None:
    space = load(tmp_path, "extends: cpu\nknobs: {micro_batch_size: [2, 4]}\n")
    assert "extends" not in space.as_json()
    assert SearchSpace.from_json(space.as_json()) == space


@pytest.mark.parametrize(("text", "value"), [("1e-1", 0.1), ("5.0e-1", 0.5), ("0.5", 0.5)])
def test_shares_may_be_written_as_people_write_them(tmp_path: Path, text: str, value: float) -> None:
    assert load(tmp_path, f"knobs: {{gpu_memory_utilization: [{text}, 0.9]}}").values["gpu_memory_utilization"] == (
        value,
        0.9,
    )


# --- bad input, one sentence each --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *of("a_bad_space_file"),
        (b"knobs:\n  \xff\xfe: 1", ", line 2: this is not UTF-8 text."),
        (b"knobs: {a: \x00}", None),
        ("knobs: {micro_batch_size: [1, " + "9" * 5000 + "]}", None),
    ],
)
def test_a_bad_file_is_refused_in_one_sentence(tmp_path: Path, text: str | bytes, expected: str | None) -> None:
    message = refusal(tmp_path, text)
    if expected is not None:
        assert message == expected


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "\n".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]" for i in range(20)
)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("text", "part"),
    [
        (BOMB, "aliases (*a) are not allowed"),
        ("a: &a\n  <<: *a", "aliases"),
        ("[" * 30_000, "nested more than"),
        ("{a: " * 10_000, "nested more than"),
        ("- " * 20_000, "nested more than"),
        ("? " * 20_000, "nested more than"),
        ("x: [" + "1," * 15_000 + "]", "more than 10000 values"),
        ("x: " + "y" * MAX_BYTES, "bytes are more than a space file may have"),
        ("\n".join(f"k{i}: 1" for i in range(6000)), ""),
        ("x: '" + "''" * 30_000, ""),
        ("a" * 60_000, ""),
    ],
    ids=["aliases", "merge", "lists", "mappings", "dashes", "questions", "many", "long", "keys", "quotes", "word"],
)
def test_a_hostile_file_is_refused_before_it_costs_anything(tmp_path: Path, text: str, part: str) -> None:
    assert part in refusal(tmp_path, text)


@examples(60, 200)
@given(st.binary(max_size=200) | st.text(max_size=200).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_are_a_space_or_a_sentence(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(data)
    with pytest.raises(SpaceError):
        SearchSpace.load(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpaceError, match="No such file"):
        SearchSpace.load(tmp_path / "none.yaml")
    with pytest.raises(SpaceError, match="this is not a file"):
        SearchSpace.load(tmp_path)
    with pytest.raises(SpaceError, match="there is no preset singel-gpu; did you mean single-gpu"):
        SearchSpace.load("singel-gpu")


@pytest.mark.parametrize("data", [{}, {"knobs": []}, {"knobs": {"micro_batch_size": [object()]}}, {"x": 1}])
def test_bad_json_is_refused_too(data: dict[str, Any]) -> None:
    with pytest.raises(SpaceError, match=r"^search space: "):
        SearchSpace.from_json(data)


def test_json_nested_without_end_is_refused() -> None:
    data: dict[str, Any] = {}
    data["knobs"] = data
    with pytest.raises(SpaceError, match="nested more than"):
        SearchSpace.from_json(data)


@pytest.mark.parametrize(("name", "text", "value"), of("values_from_a_command_line"))
def test_values_from_a_command_line(name: str, text: str, value: KnobValue) -> None:
    assert repr(parse_value(name, text)) == repr(value)


@pytest.mark.parametrize(("name", "text"), [("micro_batch_size", "4.0"), ("nothing", "1"), ("precision", "")])
def test_bad_values_from_a_command_line(name: str, text: str) -> None:
    with pytest.raises(SpaceError, match=name):
        parse_value(name, text)

"""Changing values in a user's YAML text: if one of these fails, an export rewrites what was never asked for."""

from __future__ import annotations

import difflib
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.yaml_edit import YamlEditError, edited, located, lookup, scalar
from tests.support.imports import of, text_of

OWN = text_of("edited.yaml")


def changed_lines(old: str, new: str) -> list[str]:
    return [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if line[0] in "+-"]


def test_only_the_text_of_the_changed_values_moves() -> None:
    new = edited(
        OWN,
        {
            ("optim",): "adamw_torch_fused",
            ("bf16",): True,
            ("fp16",): False,
            ("model_init_kwargs", "dtype"): "float32",
            ("model_init_kwargs", "attn_implementation"): "sdpa",
            ("per_device_train_batch_size",): 4,
        },
    )
    assert changed_lines(OWN, new) == [
        '- optim:   "adamw_torch"',
        "+ optim:   adamw_torch_fused",
        "-   dtype: bfloat16  # nested",
        "+   dtype: float32  # nested",
        "+   attn_implementation: sdpa",
        "- fp16:",
        "+ fp16: false",
        "+ per_device_train_batch_size: 4",
    ]
    assert yaml.safe_load(new)["model_init_kwargs"] == {"dtype": "float32", "attn_implementation": "sdpa"}


def test_a_list_in_its_keys_column_is_replaced_and_the_comment_behind_it_kept() -> None:
    new = edited(OWN, {("reward_funcs",): ["autotune_reward.score"]})
    assert yaml.safe_load(new)["reward_funcs"] == ["autotune_reward.score"]
    assert "# about the weights\nreward_weights: [1.0, 0.5]\n" in new


def test_a_value_that_means_the_same_keeps_its_spelling() -> None:
    assert edited("a: yes\nb: 0x10\nc: 'x'\n", {("a",): True, ("b",): 16, ("c",): "x"}) == "a: yes\nb: 0x10\nc: 'x'\n"
    assert edited("a: 1\n", {("a",): True}) == "a: true\n"


@pytest.mark.parametrize(("text", "expected"), of("every_form_of_a_document"))
def test_every_form_of_a_document(text: str, expected: str) -> None:
    assert edited(text, {("a",): 2, ("c",): "no"}) == expected


@pytest.mark.parametrize("text", ["- a\n", "text", "", "a: [1\n", "a: &x 1\nb: *x\n", "a: 1\n---\nb: 2\n"])
def test_what_is_no_such_document_is_refused(text: str) -> None:
    with pytest.raises(YamlEditError):
        edited(text, {("a",): 2})


def test_a_key_inside_a_scalar_is_refused() -> None:
    with pytest.raises(YamlEditError, match="a is no mapping"):
        edited("a: text\n", {("a", "b"): 2})


@pytest.mark.parametrize(
    "value", ["\x85", "a\u2028b", "\u2029", "\x85 \n", "a\nb", "a\r", ["a\x85b", "c\nd", 1], {"k": ["a\u2029"]}]
)
def test_what_yaml_takes_for_the_end_of_a_line_stays_what_it_is(value: Any) -> None:
    assert len(scalar(value).splitlines()) == 1
    for path, text in {("a",): "a: 1\n", ("a", "b"): "a:\n    b: 1\n    c: 2\n"}.items():
        wanted = value if len(path) == 1 else {"b": value, "c": 2}
        assert yaml.safe_load(edited(text, {path: value})) == {"a": wanted}


KEYS = st.sampled_from(["optim", "bf16", "num_generations", "tf32", "added", "dtype"])
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.booleans(),
    st.integers(-9, 10**6),
    st.none(),
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.floats(-9, 9),
)
LAYOUTS = st.sampled_from(["{k}: {v}", "{k}:   {v}  # why", "# about it\n{k}: {v}", "\n{k}:\n    {v}"])


@given(st.dictionaries(KEYS, st.tuples(VALUES, LAYOUTS), min_size=1), st.dictionaries(KEYS, VALUES), st.booleans())
def test_edited_text_means_the_old_values_with_the_new_ones_and_keeps_every_other_line(
    old: dict[str, tuple[Any, str]], new: dict[str, Any], newline: bool
) -> None:
    pieces = {key: layout.format(k=key, v=scalar(value)) for key, (value, layout) in old.items()}
    text = "\n".join(pieces.values()) + ("\n" if newline else "")
    result = edited(text, {(key,): value for key, value in new.items()})
    assert yaml.safe_load(result) == {**{key: value for key, (value, _) in old.items()}, **new}
    for key in old.keys() - new.keys():
        assert pieces[key] in result
    assert result.count("#") >= sum("#" in layout for _, layout in old.values()), "a comment was lost"
    document = located(result)
    assert all(lookup(document, (key,)) == value for key, value in new.items())

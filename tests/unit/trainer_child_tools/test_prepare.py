"""Preparing prompts: what is written is what will be trained on, and what cannot be used is refused whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.child import prepare as module
from trainer.child import prompt_rows
from trainer.child.contract import FailureReason, Result, RunPaths, read_result


class WordTokenizer:
    """One token a word; a chat message costs two more."""

    chat_template: str | None = "template"

    def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
        return {"input_ids": [1] * len(text.split())}

    def apply_chat_template(self, prompt: Any, tokenize: bool, add_generation_prompt: bool) -> str:
        return " ".join(f"<{m['role']}> {m['content']}" for m in prompt) + (
            " <assistant>" if add_generation_prompt else ""
        )


class FakeTask:
    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {
            "question": f"what is {index} + {self.options['seed']}",
            "answer": str(index),
            "metadata": {"set": {1, 2}},
        }

    def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
        return float(answer == entry["answer"])


@pytest.fixture
def tokenizer(monkeypatch: pytest.MonkeyPatch) -> WordTokenizer:
    tokenizer = WordTokenizer()
    monkeypatch.setattr(module, "load_tokenizer", lambda model: tokenizer)
    monkeypatch.setattr(module, "model_facts", lambda model: {"layers": 2})
    monkeypatch.setattr(module, "model_folder", lambda model, revision: Path(model))
    monkeypatch.setattr(module, "create_task", lambda name, options: FakeTask(options))
    monkeypatch.setattr(prompt_rows, "create_task", lambda name, options: FakeTask(options))
    monkeypatch.setattr("trainer.child.rewards.create_task", lambda name, options: FakeTask({**options, "seed": 0}))
    return tokenizer


def run(folder: Path, **changes: Any) -> Result:
    config = {
        "model": "m",
        "max_prompt_length": 16,
        "rewards": [{"kind": "reasoning_gym", "name": "chain_sum"}],
        "task": {"name": "chain_sum", "size": 20, "seed": 3},
        **changes,
    }
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if v is not None}))
    result = module.main(folder)
    assert read_result(RunPaths(folder).result) == result
    return result


def with_data(folder: Path, lines: list[str], reward: str = "[0.0 for _ in completions]", **changes: Any) -> Result:
    folder.mkdir(exist_ok=True)
    (folder / "data.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    (folder / "reward.py").write_text(f"def score(prompts, completions, **columns):\n    return {reward}\n")
    spec = {"kind": "file", "name": "score", "path": str(folder / "reward.py")}
    return run(folder, task=None, data=str(folder / "data.jsonl"), rewards=[spec], **changes)


@pytest.mark.usefixtures("tokenizer")
def test_task_becomes_a_prompts_file(tmp_path: Path) -> None:
    result = run(tmp_path)
    text = (tmp_path / "prompts.jsonl").read_text()
    rows = [json.loads(line) for line in text.splitlines()]
    assert result.ok
    assert result.data["count"] == len(rows) == 20
    assert result.data["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert result.data["longest_prompt"] == 7  # <user> what is 0 + 3 <assistant>
    assert rows[4]["prompt"] == [{"role": "user", "content": "what is 4 + 3"}]
    assert json.loads(rows[4]["entry"])["metadata"] == {"set": [1, 2]}
    assert result.data["model"] == {"layers": 2}
    assert result.data["rewards"] == ["chain_sum"]


@pytest.mark.usefixtures("tokenizer")
def test_same_seed_same_file_other_seed_another(tmp_path: Path) -> None:
    digests = [
        run(tmp_path / str(i), task={"name": "chain_sum", "size": 5, "seed": s}).data["sha256"]
        for i, s in enumerate([1, 1, 2])
    ]
    assert digests[0] == digests[1] != digests[2]


def test_model_without_chat_template_gets_plain_text(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    tokenizer.chat_template = None
    assert run(tmp_path).ok
    assert json.loads((tmp_path / "prompts.jsonl").read_text().splitlines()[0])["prompt"] == "what is 0 + 3"


TEXT = json.dumps({"prompt": "one two three"})
VERL_TEMPLATE = "actor_rollout_ref.model.custom_chat_template"


@pytest.mark.parametrize(
    ("framework", "passthrough", "longest"),
    [
        ("trl", {"system_prompt": "be brief"}, 3),
        ("ms_swift", {}, 3),
        ("open_r1", {}, 5),  # <user> one two three <assistant>
        ("open_r1", {"system_prompt": "be brief"}, 8),  # <system> be brief before it
        ("verl", {"system_prompt": "be brief"}, 5),
    ],
)
@pytest.mark.usefixtures("tokenizer")
def test_prompts_are_measured_as_the_framework_asks_them(
    tmp_path: Path, framework: str, passthrough: dict[str, Any], longest: int
) -> None:
    result = with_data(tmp_path, [TEXT], framework=framework, passthrough=passthrough)
    assert result.ok, result.message
    assert result.data["longest_prompt"] == longest
    assert json.loads((tmp_path / "prompts.jsonl").read_text())["prompt"] == "one two three"


@pytest.mark.parametrize(("framework", "key"), [("open_r1", "chat_template"), ("verl", VERL_TEMPLATE)])
def test_a_framework_of_conversations_needs_a_chat_template(
    tmp_path: Path, tokenizer: WordTokenizer, framework: str, key: str
) -> None:
    tokenizer.chat_template = None
    result = with_data(tmp_path / "none", [TEXT], framework=framework)
    assert (result.ok, result.reason) == (False, FailureReason.ILLEGAL)
    assert f"has no chat template, and {module.CONVERSATIONS[framework].title} makes a conversation" in result.message
    assert f"by {key}," in result.message
    assert with_data(tmp_path / "own", [TEXT], framework=framework, passthrough={key: "theirs"}).ok
    assert tokenizer.chat_template == "theirs"


@pytest.mark.parametrize(("framework", "completion"), [("open_r1", "list"), ("verl", "str"), ("trl", "str")])
@pytest.mark.usefixtures("tokenizer")
def test_a_reward_is_tried_with_what_the_framework_gives_it(tmp_path: Path, framework: str, completion: str) -> None:
    reward = f"[1.0 if type(c) is {completion} else None for c in completions]"
    assert with_data(tmp_path, [TEXT], reward, framework=framework).ok


@pytest.mark.usefixtures("tokenizer")
def test_long_prompts_are_counted_refused_and_nothing_is_written(tmp_path: Path) -> None:
    lines = [json.dumps({"prompt": "word " * n}) for n in (3, 17, 40)]
    result = with_data(tmp_path, lines)
    assert (result.ok, result.reason) == (False, FailureReason.ILLEGAL)
    assert "2 of 3 prompts are longer than the 16 tokens allowed (the longest has 40)" in result.message
    assert not (tmp_path / "prompts.jsonl").exists()


@pytest.mark.usefixtures("tokenizer")
def test_prompt_of_exactly_the_limit_is_allowed(tmp_path: Path) -> None:
    result = with_data(tmp_path, [json.dumps({"prompt": "word " * 16})])
    assert result.ok
    assert result.data["longest_prompt"] == 16


@pytest.mark.usefixtures("tokenizer")
@pytest.mark.parametrize(
    ("reward", "expected"),
    [
        ("columns['solution']", "raised KeyError: 'solution'"),
        ("[1.0]", "returned 1 rewards for 2 completions"),
        ("[None for _ in completions]", "returned None for all 2 completions"),
        ("None", "returned None; it must return a list"),
        ("[float('nan') for _ in completions]", "returned nan"),
    ],
)
def test_bad_reward_is_a_reward_error(tmp_path: Path, reward: str, expected: str) -> None:
    result = with_data(tmp_path, ['{"prompt": "hi"}'], reward)
    assert (result.ok, result.reason) == (False, FailureReason.REWARD_ERROR)
    assert expected in result.message
    assert not (tmp_path / "prompts.jsonl").exists()


@pytest.mark.usefixtures("tokenizer")
def test_missing_reward_file_is_a_reward_error(tmp_path: Path) -> None:
    result = run(tmp_path, rewards=[{"kind": "file", "name": "score", "path": "/nowhere/r.py"}])
    assert result.reason is FailureReason.REWARD_ERROR
    assert "/nowhere/r.py" in result.message


@pytest.mark.usefixtures("tokenizer")
@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], "holds no prompts"),
        (["", "  "], "holds no prompts"),
        (['{"prompt": "a"}', '{"prompt": 1 2'], "line 2: not JSON: Expecting ',' delimiter: column 14"),
        (['{"prompt": "a", "x": {"b": 1, "c": 2, "b": 3}}'], "line 1: not JSON: the key 'b' is given twice"),
        (["[1]"], "line 1: it needs a"),
        (['{"question": "a"}'], "line 1: it needs a"),
        (['{"prompt": ""}'], 'line 1: it needs a "prompt" that is text, not empty'),
        (['{"prompt": []}'], "line 1: it needs a"),
        (['{"prompt": [{"content": "a"}]}'], "line 1: it needs a"),
        (['{"prompt": "a", "x": 1}', '{"prompt": "b"}'], "line 2: its columns (prompt)"),
        (["[" * 100_000], "line 1: not JSON"),
        (['{"prompt": "a", "x": 1}', '{"prompt": "b", "x": "1"}'], "line 2: column 'x' is text here and a number be"),
    ],
)
def test_malformed_data_is_refused_by_line(tmp_path: Path, lines: list[str], expected: str) -> None:
    result = with_data(tmp_path, lines)
    assert result.reason is FailureReason.ILLEGAL
    assert expected in result.message


@pytest.mark.usefixtures("tokenizer")
@pytest.mark.parametrize(
    "changes", [{"task": None}, {"data": "x"}, {"max_prompt_length": "9"}, {"rewards": None}, {"rewards": []}]
)
def test_malformed_request_is_illegal(tmp_path: Path, changes: dict[str, Any]) -> None:
    assert run(tmp_path, **changes).reason is FailureReason.ILLEGAL


def test_messages_for_a_model_that_has_no_template_are_refused(tmp_path: Path, tokenizer: WordTokenizer) -> None:
    tokenizer.chat_template = None
    result = with_data(tmp_path, [json.dumps({"prompt": [{"role": "user", "content": "a"}]})])
    assert "no chat template" in result.message


def test_entries_that_json_cannot_carry_are_refused(
    tmp_path: Path, tokenizer: WordTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    class ByIdentity(FakeTask):
        def score_answer(self, answer: str, entry: dict[str, Any]) -> float:
            return float(isinstance(entry["metadata"]["set"], set))

    monkeypatch.setattr(prompt_rows, "create_task", lambda name, options: ByIdentity(options))
    assert "do not survive" in run(tmp_path).message


@given(st.lists(st.text(min_size=1), min_size=1, max_size=20))
def test_rows_survive_writing_and_reading_whatever_the_text(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str]
) -> None:
    """U+2028, NUL, lone surrogates and quotes in a prompt must not tear a line."""
    path = tmp_path_factory.mktemp("rows") / "data.jsonl"
    path.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts), encoding="utf-8")
    assert [row["prompt"] for row in prompt_rows.read_rows(path)] == texts


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
LINES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    ANY_JSON.map(json.dumps),
    st.fixed_dictionaries({"prompt": ANY_JSON}, optional={"answer": ANY_JSON}).map(json.dumps),
)


@given(st.lists(LINES, max_size=5))
def test_any_lines_are_rows_or_one_sentence_with_the_line(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    """Whatever a file holds, a user reads which line to mend, never a traceback."""
    path = tmp_path_factory.mktemp("any") / "data.jsonl"
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8", newline="")
    try:
        rows = prompt_rows.read_rows(path)
    except prompt_rows.UnusablePromptsError as error:
        said = str(error)
    else:
        assert all(prompt_rows.is_prompt(row["prompt"]) for row in rows)
        assert len({tuple(sorted(row)) for row in rows}) == 1
        return
    assert said.startswith(str(path))
    assert ", line " in said or "holds no prompts" in said


def test_what_is_not_text_is_told_by_its_byte(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_bytes(b'{"prompt": "\xff"}\n')
    with pytest.raises(prompt_rows.UnusablePromptsError) as said:
        prompt_rows.read_rows(path)
    assert str(said.value) == f"{path}, byte 12: this is not UTF-8 text"


def test_rows_as_ms_swift_has_them_are_prompts(tmp_path: Path) -> None:
    """An answer at the end is taken off, as ms-swift does; the other columns are the rewards'."""
    asked = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    path = tmp_path / "d.jsonl"
    rows = [
        {"messages": [*asked, {"role": "assistant", "content": "a"}], "solution": "4"},
        {"messages": asked, "solution": "5"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert prompt_rows.read_rows(path) == [{"prompt": asked, "solution": "4"}, {"prompt": asked, "solution": "5"}]


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"prompt": "what is this?", "image": "a.png"}, "image"),
        ({"messages": [{"role": "user", "content": "<image>"}], "images": ["a.png"]}, "images"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "t"}]}]}, "image"),
        ({"prompt": [{"role": "user", "content": [{"type": "video_url"}]}]}, "video_url"),
    ],
)
def test_pictures_are_refused_before_any_trial(tmp_path: Path, row: dict[str, Any], kind: str) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text(json.dumps(row) + "\n")
    with pytest.raises(prompt_rows.UnusablePromptsError, match=f"line 1: it holds '{kind}', and trials .* text only"):
        prompt_rows.read_rows(path)
    if "prompt" in row:
        with pytest.raises(prompt_rows.UnusablePromptsError, match="text only"):
            prompt_rows.checked(row, "org/data", 1)


def test_an_empty_column_of_pictures_and_text_in_parts_are_text(tmp_path: Path) -> None:
    row = {"prompt": [{"role": "user", "content": [{"type": "text", "text": "t"}]}], "images": [], "image": None}
    (tmp_path / "d.jsonl").write_text(json.dumps(row) + "\n")
    assert prompt_rows.read_rows(tmp_path / "d.jsonl") == [row]


def test_line_separator_inside_a_json_string_does_not_end_the_line(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n', encoding="utf-8")
    assert prompt_rows.read_rows(path) == [{"prompt": "a\u2028b"}]


@pytest.mark.usefixtures("tokenizer")
def test_a_reward_of_the_frameworks_own_is_left_to_the_trial(tmp_path: Path) -> None:
    """ms-swift makes its rewards of its own arguments and plugins; others beside them are still tried."""
    own = {"kind": "ms_swift", "name": "accuracy", "path": "/somewhere"}
    result = run(tmp_path / "own", rewards=[own])
    assert (result.ok, result.data["rewards"]) == (True, [])
    result = run(tmp_path / "both", rewards=[own, {"kind": "file", "name": "score", "path": "/nowhere/r.py"}])
    assert result.reason is FailureReason.REWARD_ERROR


SURROGATE = "\\ud83d"
"""In JSON text, the first half of a character."""


@pytest.mark.usefixtures("tokenizer")
@pytest.mark.parametrize("column", ["prompt", "answer"])
def test_half_a_character_is_refused_by_its_line(tmp_path: Path, column: str) -> None:
    lines = [json.dumps({"prompt": "a", "answer": "b"}), json.dumps({"prompt": "c", "answer": "d"})]
    lines[1] = lines[1].replace('"c"' if column == "prompt" else '"d"', f'"x{SURROGATE}"')
    result = with_data(tmp_path, lines)
    assert result.reason is FailureReason.ILLEGAL
    assert "data.jsonl, line 2: it holds half of a character" in result.message


@pytest.mark.usefixtures("tokenizer")
def test_a_whole_character_in_two_halves_is_text(tmp_path: Path) -> None:
    assert with_data(tmp_path, [json.dumps({"prompt": "smile \U0001f600"})]).ok


@pytest.mark.usefixtures("tokenizer")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"])
@pytest.mark.parametrize("text", ["[1, 2]", "7", '"text"', "null", "{", "", "[" * 100_000])
def test_settings_of_a_model_that_are_no_object_are_refused_by_their_file(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / name).write_text(text)
    result = with_data(tmp_path, [json.dumps({"prompt": "a"})], model=str(tmp_path / "model"))
    assert result.reason is FailureReason.ILLEGAL
    assert result.message.startswith(str(tmp_path / "model" / name))


@pytest.mark.usefixtures("tokenizer")
def test_while_a_reward_runs_it_is_known_that_it_does(tmp_path: Path) -> None:
    """It may end the process, and the tuner then reads the mark."""
    mark = f"__import__('pathlib').Path({str(tmp_path / 'phase')!r}).read_text().split()[0]"
    result = with_data(tmp_path, [json.dumps({"prompt": "a"})], reward=f"[1.0 if {mark} == 'reward' else 1 / 0] * 2")
    assert result.ok, result.message
    assert (tmp_path / "phase").read_text().split()[0] == "load"

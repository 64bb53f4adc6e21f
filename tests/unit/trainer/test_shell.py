"""What a user's script says is read as a shell would read it, and what only a shell knows is marked."""

from __future__ import annotations

import contextlib
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.imports import of
from tests.support.properties import examples
from trainer.frameworks.common.shell import Command, commands
from trainer.frameworks.common.shell_tree import ShellError
from trainer.frameworks.ms_swift.given import read_given
from trainer.frameworks.verl.reading import calls_of

SWIFT = "swift rlhf --rlhf_type grpo "


def the_only(script: str) -> Command:
    (found,) = commands(script)
    return found


def test_a_word_has_its_place_in_bytes_and_words_of_a_list_have_none() -> None:
    text = 'A=(é=1 x=2)\nrun "${A[@]}" é=2'
    *listed, own = the_only(text).words[1:]
    assert [(word.text, word.end) for word in listed] == [("é=1", 0), ("x=2", 0)]
    assert text.encode()[own.start : own.end].decode() == "é=2"


def test_what_is_exported_follows_later_assignments() -> None:
    found = commands("export A=1\nrun\nA=2\nB=3 run\nexport NOT_SET\nrun")
    assert [{name: word.text for name, word in each.environment.items()} for each in found] == [
        {"A": "1"},
        {"A": "2", "B": "3"},
        {"A": "2"},
    ]


def test_words_of_a_list_are_read_and_not_edited() -> None:
    """An edit of the list would change every command that uses it."""
    (call,) = calls_of('A=(a=1)\nB=2 env C=3 main_ppo "${A[@]}" "$@"')
    assert [word.text for word in call.words] == ["env", "C=3", "main_ppo", "a=1"]
    assert {name: word.text for name, word in call.environment.items()} == {"B": "2", "C": "3"}
    for script in (
        'A=(--seed 1)\n{}"${{A[@]}}"',
        'A="--seed 1"\n{}$A',
        'bash -c "{}--seed 1"',
        "bash <<E\n{}--seed 1\nE",
    ):
        found = read_given(script.format(SWIFT), "run.sh")
        assert (found.arguments["seed"].words, found.in_place) == (("1",), False)
    assert read_given(f"{SWIFT}--seed 1", "run.sh").in_place
    with pytest.raises(ValueError, match=r"beta: \$1 is known to a shell only"):
        read_given(f"{SWIFT}--beta $1", "run.sh")


@pytest.mark.parametrize(("script", "words"), of("words_as_a_shell_has_them"))
def test_words_are_those_a_shell_has_without_running_a_program(script: str, words: list[str]) -> None:
    """Words of the last command; what only a shell knows stands between angle brackets."""
    found = commands(script)[-1].words
    assert [f"<{word.unknown}>" if word.unknown else word.text for word in found] == words


def test_what_is_quoted_is_one_word() -> None:
    assert the_only('A=$(f a b)\nrun "$A c" $A').words[1].text == "$(f a b) c"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        *of("a_script_that_cannot_be_read"),
        ("run a\n" * 20_000, "more than 65536 bytes"),
        ("(" * 10_000 + "run" + ")" * 10_000, "nested too deeply"),
        ("run " + "$(echo " * 8_000 + ")" * 8_000, "nested too deeply"),
        ("run " + "${A:-" * 9_000 + "}" * 9_000, "nested too deeply"),
        ("A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 40 + "run $A", "too often"),
        ("A=(x y)\n" + 'A+=("${A[@]}")\n' * 30 + "run", "too often"),
        ("for a in 1 2 3 4 5 6 7 8 9; do\n" * 9 + "run\n" + "done\n" * 9, "too often"),
        ("A=" + "a" * 30_000 + "\nrun ${A%%*b*c}", "too often"),
        ("f0() { run; }\n" + "".join(f"f{i + 1}() {{ f{i}; f{i}; }}\n" for i in range(18)) + "f18", "too often"),
    ],
)
def test_a_script_that_cannot_be_read_is_refused_by_its_line(script: str, words: str) -> None:
    with pytest.raises(ShellError, match=words) as caught:
        commands(script)
    assert caught.value.line <= script.count("\n") + 1


COMMAND = "swift rlhf --rlhf_type grpo --seed 1"


@pytest.mark.parametrize(
    "script",
    [
        f'docker run -v $PWD:/w image bash -c "cd /w && {COMMAND}"',
        f"docker exec -it box bash -lc 'set -x; {COMMAND}'",
        f'srun bash -c "{COMMAND}"',
        f"ssh node << 'END'\ncd /w\n{COMMAND}\nEND",
        f"sbatch <<END\n#!/bin/bash\n#SBATCH -N 1\n{COMMAND}\nEND\necho done",
        f'RUN="{COMMAND}"\neval "$RUN"',
        f"cd /w && source env/bin/activate && {COMMAND}",
    ],
)
def test_what_another_shell_is_given_is_read(script: str) -> None:
    assert read_given(script, "run.sh").arguments["seed"].words == ("1",)


def test_a_line_within_another_script_is_that_of_the_file() -> None:
    found = [word for each in commands("bash <<END\ntrue\npython a.py --a\nEND\npython b") for word in each.words]
    assert [(word.text, word.line, word.end > 0) for word in found if word.text in ("--a", "b")] == [
        ("--a", 3, False),
        ("b", 5, True),
    ]


def test_what_is_no_script_is_not_run() -> None:
    for text in (f'echo "{COMMAND}"', f"cat <<END\n{COMMAND}\nEND", f"python - <<END\n{COMMAND}\nEND"):
        assert not any(word.text == "--seed" for each in commands(text) for word in each.words)


def test_variables_before_another_shell_are_its_own() -> None:
    found = commands("A=1 env B=2 bash -c 'C=3 python x.py'\npython y.py")
    environments = [{name: word.text for name, word in each.environment.items()} for each in found]
    assert environments == [{"A": "1", "B": "2"}, {"A": "1", "B": "2", "C": "3"}, {}]


def test_what_follows_a_doubtful_command_holds_together() -> None:
    found = commands("maybe && export A=1 && run\nrun")
    assert [each.environment["A"].unknown != "" for each in found if each.words[0].text == "run"] == [False, True]
    assert commands("cd x && export A=1\nrun")[-1].environment["A"].unknown == ""


@pytest.mark.parametrize(
    ("script", "line"),
    [
        ("python run \\\n  --a 1\n  --b 2", 2),
        ("python run \\\n  --a 1 \\ \n  --b 2", 2),
        ("python run \\\n  --a 1 \\\n  # --c 3 \\\n  --b 2", 3),
        ("python run a.b=1\n  +c.d=2", 1),
    ],
)
def test_an_option_that_belongs_to_no_command_is_refused_where_the_command_ends(script: str, line: int) -> None:
    with pytest.raises(ShellError, match="the command ends here") as caught:
        commands(script)
    assert caught.value.line == line
    assert commands("options: >-\n  --a 1")
    assert commands("python run \\\n  --a 1 \\\n  # --c 3 \\\n\nrun --b 2")


def test_an_empty_variable_that_the_callers_words_may_set_is_named_and_else_is_no_word() -> None:
    script = (
        'NAME=""\nMORE=""\nSIZE=7\nwhile [[ $# -gt 0 ]]; do case "$1" in --name) NAME="$2"; shift 2;; '
        '--more) MORE="$2";; --size) SIZE="$2";; esac; done\nrun recipes/$NAME/c_$SIZE.yaml $MORE --end'
    )
    words = the_only(script).words
    assert [word.text for word in words] == ["run", "recipes/$NAME/c_7.yaml", "--end"]
    assert [bool(word.unknown) for word in words] == [False, True, False]


@pytest.mark.parametrize(
    "text", ["|\u92d3{\U000dfa8e\U00018da8 7", "a {1..\u0661}", '\\\U000ba1b8"1', "echo \u00e9={\U0001f600}"]
)
def test_characters_outside_ascii_are_read_or_refused(text: str) -> None:
    """The grammar's scanner looks each character up in a table for bytes; the process would end."""
    with contextlib.suppress(ShellError):
        assert all(word.text in text for command in commands(text) for word in command.words)


@examples(100, 300)
@given(st.text(st.sampled_from("ab ='\"\\\n$(){}[]@`#;&|<>-swift rlhf"), max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ShellError):
        for word in (word for command in commands(text) for word in command.words):
            assert 0 <= word.start < word.end <= len(text)
    with contextlib.suppress(ShellError):
        assert all(any("main_ppo" in word.text for word in call.words) for call in calls_of(f"{text}\nmain_ppo x=1"))


@examples(60, 200)
@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=12), min_size=1, max_size=6))
def test_quoted_words_are_read_as_a_shell_reads_them(words: list[str]) -> None:
    assert [word.text for word in commands(shlex.join(["run", *words]))[0].words] == ["run", *words]

"""What a user's script says is read as a shell would read it, and what only a shell knows is marked."""

from __future__ import annotations

import pytest

from trainer.frameworks.common.shell import Command, commands
from trainer.frameworks.ms_swift.given import given
from trainer.frameworks.verl.reading import call_of

SWIFT = "swift rlhf --rlhf_type grpo "


def the_only(script: str) -> Command:
    (found,) = commands(script)
    return found


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("(cd /x; run a=1)", ["run", "a=1"]),
        ("run a=1 > log 2>&1 b=2", ["run", "a=1", "b=2"]),
        ("run costs='5 $' now $", ["run", "costs=5 $", "now", "$"]),
        ('run "$@" $*', ["run", "$@", "$*"]),
        ("E=; run $E ''", ["run", ""]),
    ],
)
def test_words(script: str, words: list[str]) -> None:
    assert [word.text for word in commands(script)[-1].words] == words


@pytest.mark.parametrize("written", ["$1", "$#", "$$", "${HOME}", "`date`", "$(date)", "${A%.x}"])
def test_what_only_a_shell_knows_is_marked_as_it_was_written(written: str) -> None:
    assert [word.unknown for word in the_only(f"run a={written}").words] == ["", written]


@pytest.mark.parametrize(
    "written",
    [
        '$(dirname "$0")',
        '$(cd "$(dirname "$0")" && pwd)',
        "$(cd -- $(dirname -- ${BASH_SOURCE[0]}) >/dev/null 2>&1; pwd -P)",
    ],
)
def test_a_script_finds_its_own_folder(written: str) -> None:
    found = commands(f"here={written}\nrun a=$here/x", folder="/scripts")[-1]
    assert [(word.text, word.unknown) for word in found.words] == [("run", ""), ("a=/scripts/x", "")]


def test_another_folder_is_not_its_own() -> None:
    assert the_only('run $(basename $(dirname "$0"))').words[1].unknown


def test_a_word_has_its_place_and_one_of_a_list_says_so() -> None:
    text = 'A=(x=1)\nrun "${A[@]}" y=2'
    listed, own = the_only(text).words[1:]
    assert (text[listed.start : listed.end], listed.listed) == ("x=1", '"${A[@]}"')
    assert (text[own.start : own.end], own.listed) == ("y=2", "")


def test_what_is_exported_follows_later_assignments() -> None:
    found = commands("export A=1\nrun\nA=2\nB=3 run\nexport NOT_SET\nrun")
    assert [{name: word.text for name, word in each.environment.items()} for each in found] == [
        {"A": "1"},
        {"A": "2", "B": "3"},
        {"A": "2"},
    ]


def test_words_of_a_list_are_read_for_verl_and_refused_for_ms_swift() -> None:
    """An edit of the list would change every command that uses it."""
    call = call_of('A=(a=1)\nB=2 env C=3 main_ppo "${A[@]}" "$@"', "main_ppo")
    assert call is not None
    assert [word.text for word in call.words] == ["env", "C=3", "main_ppo", "a=1"]
    assert {name: word.text for name, word in call.environment.items()} == {"B": "2", "C": "3"}
    with pytest.raises(ValueError, match=r'"\$\{A\[@\]\}" stands for a list'):
        given(f'A=(--seed 1)\n{SWIFT}"${{A[@]}}"', "run.sh")
    with pytest.raises(ValueError, match=r"model: \$1 is known to a shell only"):
        given(f"{SWIFT}--model $1", "run.sh")

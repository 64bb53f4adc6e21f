"""What a user's script says is read as a shell would read it, and what only a shell knows is marked."""

from __future__ import annotations

import contextlib

import pytest

from trainer.frameworks.common.shell import Command, commands
from trainer.frameworks.common.shell_tree import ShellError
from trainer.frameworks.ms_swift.given import read_given
from trainer.frameworks.verl.reading import calls_of

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
        ("run $é $% a=é", ["run", "$é", "$%", "a=é"]),
    ],
)
def test_words(script: str, words: list[str]) -> None:
    assert [word.text for word in commands(script)[-1].words] == words


@pytest.mark.parametrize("written", ["$1", "$$", "${HOME}", "`date`", "$(date)", "${A%.x}"])
def test_what_only_a_shell_knows_is_marked_as_it_was_written(written: str) -> None:
    assert [word.unknown for word in the_only(f"run a={written}").words] == ["", written]


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


def words_of(script: str) -> list[str]:
    """Of the last command; what only a shell knows between angle brackets."""
    return [f"<{word.unknown}>" if word.unknown else word.text for word in commands(script)[-1].words]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("B=/d\nA=${A:-${B}/x}\nrun $A", ["run", "/d/x"]),
        ('A=${A:-"${B:-/d}/x y"}\nrun "$A"', ["run", "/d/x y"]),
        ("A=\nrun ${A:-1} ${A-2}", ["run", "1"]),
        ("A=1\nrun ${A:+yes} ${B:+no} ${B+no}", ["run", "yes"]),
        ("run ${A:=3} $A", ["run", "3", "3"]),
        ("A=run-7b.tar.gz\nrun ${A%.*} ${A%%.*} ${A#*-} ${A##*.} ${A/run/x} ${A//./_} ${A^^}",
         ["run", "run-7b.tar", "run-7b", "7b.tar.gz", "gz", "x-7b.tar.gz", "run-7b_tar_gz", "RUN-7B.TAR.GZ"]),
        ("A=4 B=2\nrun $((A * (B + 1))) $(( -A / 3 )) $((${A}%3)) $((A > B && B)) $((C))",
         ["run", "12", "-1", "1", "1", "0"]),
        ("run ${1:-first} $#", ["run", "first", "0"]),
        ("A=(a 'b c')\nrun ${#A[@]} ${A[1]} ${#B[@]}x \"${A[0]}\"", ["run", "2", "b", "c", "<${#B[@]}>", "a"]),
        ("A=(a)\nif true; then A+=(b); fi\nrun x\"${A[@]}\"y", ["run", "xa", "by"]),
        ("A=()\nrun \"${A[@]}\" ${A[@]} x", ["run", "x"]),
        ("E='a=1  b=2'\nrun $E \"$E\"", ["run", "a=1", "b=2", "a=1  b=2"]),
        ("for i in 1 2; do A=$A-$i; done\nA=x\nfor i in 1 2; do A=$A-$i; done\nrun $A", ["run", "x-1-2"]),
        ("f() { run \"$1\" $# \"$@\"; }\nf a 'b c'", ["run", "a", "2", "a", "b c"]),
        ("A=1\n(A=2; echo)\nrun $A", ["run", "1"]),
        ("cat <<EOF > x\nrun 'no\nEOF\nrun yes", ["run", "yes"]),
        ("cat <<-'EOF' && A=1\n\tif\n\tEOF\nA=1\nrun $A", ["run", "1"]),
        ("A=a B=b\nexport C=$A/$B/$A-$B.x\nif true; then run $C $A/$B/c; fi", ["run", "a/b/a-b.x", "a/b/c"]),
        ("run --a=x\\\ny", ["run", "--a=xy"]),
        ("while [ $# -gt 0 ]; do A=$1; shift; done\nrun ${A:-none}", ["run", "none"]),
        ("run $(echo a b) $(if [ 1 = 1 ]; then echo c; fi)", ["run", "a", "b", "c"]),
        ("A=1\nunset A\nrun ${A:-gone}", ["run", "gone"]),
        ("diff <(a b) <(c) x", ["diff", "x"]),
    ],
)  # fmt: skip
def test_what_a_shell_works_out_without_a_program(script: str, words: list[str]) -> None:
    assert words_of(script) == words


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ('[ "$A" = x ]', True),
        ('[ "$A" != x ]', False),
        ("[[ $A == x* && $N -gt 3 ]]", True),
        ("[[ $A == y || ( $N -le 3 ) ]]", None),
        ("[ -z $NOT ]", None),
        ('[ -z "${NOT:-}" ]', True),
        ('[ "$A" = x ] && [ "$N" -eq 5 ]', False),
        ('[ "$A" = y ] || test -n "$A"', True),
        ("! [ $N -lt 9 ]", False),
        ("{ [ $A = y ] || [ $A = x ]; } && true", True),
        ("[ -f /there ]", None),
        ('[ "$A" = y ] && [ -f /there ]', False),
        ("((N == 4))", True),
        ("grep -q x y", None),
    ],
)
def test_a_condition_holds_or_does_not_or_only_a_shell_knows(condition: str, holds: bool | None) -> None:
    found = words_of(f"A=x N=4\nB=otherwise\nif {condition}; then B=then; fi\nrun $B")[1]
    expected = {True: "then", False: "otherwise", None: f"<if {condition}>"}
    assert found == expected[holds]


def test_a_case_takes_the_first_pattern_that_fits() -> None:
    script = 'case "$A" in\n  gpu | cuda) B=1 ;;\n  n*) B=2\n  ;;\n  *) B=3 ;;\nesac\nrun $B'
    assert [words_of(f"A={value}\n{script}")[1] for value in ("cuda", "npu", "tpu")] == ["1", "2", "3"]
    assert words_of(script)[1] == '<case "$A" in>'.replace(" in", "")


def test_only_what_a_doubtful_branch_changes_is_not_known() -> None:
    script = "A=1 B=1 C=1\nif [ -f x ]; then A=2; C=2; else A=3; C=2; fi\nrun $A $B $C"
    assert words_of(script) == ["run", "<if [ -f x ]>", "1", "2"]


def test_a_check_that_ends_a_script_ends_it_only_without_an_error() -> None:
    """The command line of the tuner may give what the check misses."""
    assert words_of('if [ "$#" -lt 1 ]; then echo usage; exit 1; fi\nrun $1') == ["run", "<$1>"]
    assert words_of("[ -d x ] || exit 1\nA=1\nrun $A") == ["run", "1"]
    assert words_of("run a\nexit 0\nrun b") == ["run", "a"]
    assert words_of("run a\nif true; then exit; fi\nrun b") == ["run", "a"]


def test_a_question_for_an_npu_is_answered_with_no() -> None:
    """No trial runs on one."""
    asked = "$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)"
    assert words_of(f"D=${{D:-{asked}}}\nrun $D") == ["run", "gpu"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("if true; then run", "expected fi"),
        ("A=(a b", r"expected \)"),
        ("case x in a) run", "expected esac"),
        ("run ${A:-x", "expected }"),
        ("for i in 1; do run", "expected done"),
        ("\necho 'a\nb", r"a quote \('\) is not closed"),
        ('run\necho "a\nb', r'a quote \("\) is not closed'),
        ("run a\n)\nrun b", r"\) cannot be read here"),
        ("run --host <your_host>\nrun", r"> cannot be read here"),
        ("run a\0b", "a character that is none"),
        ("run a\n" * 20_000, "more than 65536 bytes"),
        ("(" * 10_000 + "run" + ")" * 10_000, "nested too deeply"),
        ("run " + "$(echo " * 8_000 + ")" * 8_000, "nested too deeply"),
        ("run " + "${A:-" * 9_000 + "}" * 9_000, "nested too deeply"),
        ("A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 40 + "run $A", "too often"),
        ("A=(x y)\n" + 'A+=("${A[@]}")\n' * 30 + "run", "too often"),
        ("for a in 1 2 3 4 5 6 7 8 9; do\n" * 9 + "run\n" + "done\n" * 9, "too often"),
        (":() { :|:& }\n:", "too often"),
        ("A=" + "a" * 30_000 + "\nrun ${A%%*b*c}", "too often"),
        ("f0() { run; }\n" + "".join(f"f{i + 1}() {{ f{i}; f{i}; }}\n" for i in range(18)) + "f18", "too often"),
    ],
)
def test_a_script_that_cannot_be_read_is_refused_by_its_line(script: str, words: str) -> None:
    with pytest.raises(ShellError, match=words) as caught:
        commands(script)
    assert caught.value.line <= script.count("\n") + 1


@pytest.mark.parametrize("sum_", ["9**9**9", "1<<9999", "1/0", "a b", "x=3", "1" * 300])
def test_a_sum_that_is_none_is_marked(sum_: str) -> None:
    assert words_of(f"run $(({sum_}))")[1].startswith("<")


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


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('set -- --a 1\nrun "$@" $1', ["run", "--a", "1", "--a"]),
        ('set -e\nset -- "$@" --a\nrun $@', ["run", "--a"]),
        ('while [[ $# -gt 0 ]]; do E+=("$1"); shift; done\nrun "${E[@]}" ${E[*]} x', ["run", "x"]),
        ('while getopts "b:" o; do B=$OPTARG; done\nrun ${B:-8}', ["run", "8"]),
    ],
)
def test_words_of_the_caller_are_none(script: str, words: list[str]) -> None:
    last = commands(script)[-1]
    assert ([word.text for word in last.words], any(word.unknown for word in last.words)) == (words, False)


def test_of_several_words_of_a_variable_only_those_with_an_expansion_are_unknown() -> None:
    arguments = "--nproc_per_node 8 --node_rank ${RANK} --addr $(hostname -I | cut -d_ -f1) --port=$P"
    words = the_only(f'ARGS="{arguments}"\ntorchrun $ARGS a.py').words
    known = [word.text for word in words if not word.unknown]
    assert known == ["torchrun", "--nproc_per_node", "8", "--node_rank", "--addr", "a.py"]
    assert [word.text for word in words if word.unknown] == ["${RANK}", "$(hostname -I | cut -d_ -f1)", "--port=$P"]
    assert the_only('A=$(f a b)\nrun "$A c" $A').words[1].text == "$(f a b) c", "what is quoted is one word"


@pytest.mark.parametrize("end", ["\\", " \\", "\\\n", ""])
def test_a_backslash_that_ends_the_script_joins_nothing(end: str) -> None:
    assert [word.text for word in the_only(f"run a --b 2{end}").words] == ["run", "a", "--b", "2"]


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

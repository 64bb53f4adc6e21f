"""Searches that are kept: never run twice, never taken for others, and the same however many run at a time."""

from __future__ import annotations

import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import UsageError
from benchmarks.search import courses
from benchmarks.search.__main__ import main
from benchmarks.search.arms import ARMS, Arm
from benchmarks.search.courses import OF_OURS, OF_PEERS, ROOT, Kept, key_of, sources
from benchmarks.search.models import Known
from benchmarks.search.replay import Course
from benchmarks.search.running import searched
from benchmarks.search.world import World
from tests.support.synthetic_table import KNOBS, on_disk, table

FEW = {**KNOBS, "logprob_rows": (1, 2), "logprob_token_chunk": (256,)}
GIVEN = Namespace(seeds=3, trials=4)


@pytest.fixture(scope="module")
def world() -> World:
    return World(table(knobs=FEW, top=5))


def run(world: World, *arms: str, kept: Kept | None = None, jobs: int = 1) -> list[Course]:
    found, broken = searched([world], [Known()], [ARMS[name] for name in arms], GIVEN, kept, jobs)
    assert broken == []
    return found


def failing(*_: Any) -> Any:
    raise AssertionError("it was run again")


def test_what_is_kept_is_not_run_again(world: World, tmp_path: Path) -> None:
    path = tmp_path / "kept.jsonl"
    first = run(world, "random", "tpe", kept=Kept(path))
    assert len(first) == 6
    again = [replace(ARMS[name], begin=failing) for name in ("random", "tpe")]
    assert searched([world], [Known()], again, GIVEN, Kept(path)) == (first, [])
    more = Namespace(seeds=4, trials=4)
    with pytest.raises(AssertionError, match="run again"):
        searched([world], [Known()], again[:1], more, Kept(path))


def test_a_search_that_was_broken_off_goes_on_where_it_was(world: World, tmp_path: Path) -> None:
    path, begun = tmp_path / "kept.jsonl", []

    def stops_at_the_third(where: World, known: Known, seed: int) -> Any:
        if seed == 2 and len(begun) < 3:
            begun.append(seed)
            raise KeyboardInterrupt
        begun.append(seed)
        return ARMS["random"].begin(where, known, seed)

    arm = Arm("random", stops_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        searched([world], [Known()], [arm], GIVEN, Kept(path))
    path.write_text(path.read_text() + '{"key":"of a line that was cut')
    found, _ = searched([world], [Known()], [arm], GIVEN, Kept(path))
    assert begun == [0, 1, 2, 2]
    assert found == run(world, "random")
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_two_at_a_time_find_what_one_finds(world: World, tmp_path: Path) -> None:
    names = ("random+filter", "tpe", "start")
    alone = run(world, *names)
    assert run(world, *names, jobs=2) == alone
    kept = Kept(tmp_path / "kept.jsonl")
    assert run(world, *names, kept=kept, jobs=2) == alone
    assert run(world, *names, kept=Kept(tmp_path / "kept.jsonl"), jobs=2) == alone


def breaks(*_: Any) -> Any:
    raise ValueError("inside")


def test_a_peer_that_breaks_beside_others_loses_its_own_line_only(world: World) -> None:
    arms = [Arm("smac", breaks, ("smac",)), ARMS["random"]]
    found, broken = searched([world], [Known()], arms, GIVEN, jobs=2)
    assert {course.arm for course in found} == {"random"}
    assert broken == ["broke off: smac on synthetic: ValueError: inside"]


def test_whatever_changes_a_search_changes_its_key(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    arm = ARMS["tpe"]
    plain = key_of(world, arm, 0, 4)
    other = World(table(knobs=FEW, top=5, seed=1))
    assert key_of(World(world.table), arm, 0, 4) == plain
    changed = [key_of(other, arm, 0, 4), key_of(world, ARMS["gp"], 0, 4), key_of(world, arm, 1, 4)]
    changed += [key_of(world, arm, 0, 5), key_of(world, replace(arm, filtered=True), 0, 4)]
    monkeypatch.setattr(courses, "_versions", lambda: (("optuna", "0"),))
    changed.append(key_of(world, arm, 0, 4))
    assert len({plain, *changed}) == len(changed) + 1


def test_what_an_arm_is_made_of_is_there() -> None:
    assert all((ROOT / path).exists() for path in (*OF_PEERS, *OF_OURS))
    assert sources(OF_PEERS) != sources(OF_OURS)


@pytest.mark.parametrize("text", ["no JSON\n", '{"key":"x"}\n', '{"key":"x","course":{"arm":"tpe"}}\n', "[]\n"])
def test_another_file_is_refused_and_left_alone(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"notes\.txt, line 1: that is no course"):
        Kept(path)
    assert path.read_text() == text
    made = on_disk(table(knobs=FEW, top=5), tmp_path)
    assert main(["--table", str(made), "--arms", "random", "--keep", str(path)]) == 2
    assert capsys.readouterr().err.startswith("error: --keep ")
    with pytest.raises(UsageError, match="--keep"):
        Kept(tmp_path)

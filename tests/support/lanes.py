"""Which files have a test of a lane, by their text: to import all 450 takes each worker 20 seconds of computing."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

UNIT = tuple(Path(__file__).parents[1] / name for name in ("unit", "contracts"))
"""What is below these is of the unit lane, unless it has one of ``OTHERS``."""
OTHERS = frozenset({"trl", "slow", "full", "gpu", "frameworks"})
LANES = OTHERS | {"unit", "alone"}
ALSO = {"gpu": {"full", "alone"}, "frameworks": {"full", "alone"}}
"""A GPU, and the memory of a trial of another framework, are there once."""

_OF_A_FILE = re.compile(r"^pytestmark = (.*?)(?=^\S|\Z)", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"\bpytest\.mark\.(\w+)")


def all_of(marks: Iterable[str]) -> frozenset[str]:
    """The marks, and those they bring along."""
    given = set(marks) & LANES
    return frozenset(given.union(*(ALSO.get(mark, ()) for mark in given)))


def is_unit(file: Path, marks: Iterable[str]) -> bool:
    """Whether a test in ``file`` with ``marks`` is of the unit lane."""
    return not OTHERS & set(marks) and any(folder in file.parents for folder in UNIT)


@cache
def marks_in(file: Path) -> tuple[frozenset[str], frozenset[str]]:
    """The marks that every test of ``file`` has, and those that one may have."""
    text = file.read_text(encoding="utf-8")
    whole = _OF_A_FILE.search(text)
    every = all_of(_MARK.findall(whole[1]) if whole else ())
    one = all_of([*_MARK.findall(text), *(["gpu"] if "tests.gpu.device" in text else [])])
    return every, one | {"unit"} if is_unit(file, every) else one


def may_have(file: Path, expression: str) -> bool:
    """Whether ``-m`` with ``expression`` may select a test of ``file``; any, if it is not just marks and ``not``."""
    terms = [term.split() for term in expression.split(" and ")]
    if not all(term[-1:] and term[-1] in LANES and term[:-1] in ([], ["not"]) for term in terms):
        return True
    every, one = marks_in(file)
    return all(term[-1] not in every if term[:-1] else term[-1] in one for term in terms)

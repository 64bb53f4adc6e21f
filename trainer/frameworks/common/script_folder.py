"""Finds the folders of a shell script: its own, and the one it trains in. Pure except for the current folder."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator

from trainer.frameworks.common.config_entries import problem

_ITSELF = r'"?\$(?:0|BASH_SOURCE|\{(?:0|BASH_SOURCE(?:\[0\])?)(?::-\$(?:0|\{0\}))?\})"?'
_PATH = rf'(?:{_ITSELF}|"?\$\(\s*(?:realpath|readlink\s+-f)\s+(?:--\s+)?{_ITSELF}\s*\)"?)'
_DIRNAME = rf"dirname\s+(?:--\s+)?{_PATH}"
_THERE = rf'"?\$\(\s*{_DIRNAME}\s*;?\s*\)(?P<below>(?:/[\w.-]+)*)/?"?'
_AND_SAY = r"(?:>\s*/dev/null(?:\s+2>&1)?\s*|&>\s*/dev/null\s*)?(?:&&|;)\s*pwd(?:\s+-P)?\s*;?"
_OWN_FOLDER = (
    re.compile(rf"\s*{_DIRNAME}\s*;?\s*"),
    re.compile(rf"\s*cd\s+(?:-P\s+)?(?:--\s+)?{_THERE}\s*{_AND_SAY}\s*"),
    re.compile(rf"\s*(?:realpath|readlink\s+-f)\s+(?:--\s+)?{_THERE}\s*"),
)
"""Commands by which a script looks up its own folder, or one ``below`` it."""
CUT_OFF = re.compile(r"\$\{(?:0|BASH_SOURCE(?:\[0\])?)%/\*\}")
"""Expansion that gives a script's own folder without a program."""
_FINDS_ITSELF = re.compile(rf"{_DIRNAME}|{CUT_OFF.pattern}")


def folder_of(name: str) -> str:
    """Returns the absolute folder of the script ``name``, relative to the current folder."""
    return os.path.dirname(os.path.abspath(name))


def own_folder(command: str, folder: str) -> str | None:
    """Returns the output of a ``command`` that prints the script's own ``folder`` or one below; else ``None``."""
    found = next((found for pattern in _OWN_FOLDER if (found := pattern.fullmatch(command))), None)
    below = found.groupdict().get("below") if found is not None else None
    return None if found is None else posixpath.normpath(f"{folder}{below}") if below else folder


def finds_itself(text: str) -> bool:
    """Tells whether the script looks up its own folder, so that a copy elsewhere would find other files."""
    return _FINDS_ITSELF.search(text) is not None


def gone_to(place: str, folder: str | None) -> str | None:
    """Returns the folder after ``cd place`` in ``folder``; ``None`` if unknown, empty for the starting folder."""
    if place.startswith("~") or (folder is None and not place.startswith("/")):
        return None
    found = posixpath.normpath(posixpath.join(folder or "", place))
    return "" if found in (".", os.getcwd()) else found


def placed(path: str, folder: str | None) -> str:
    """Returns ``path`` relative to the start, for a command that runs in ``folder``."""
    return posixpath.join(folder or "", path)


def moved(name: str, folder: str | None) -> Iterator[str]:
    """Yields a note if the script ``name`` trains in another ``folder``."""
    if folder != "":
        place = "a folder that only a shell knows" if folder is None else folder
        said = f"cd: the script trains in {place}; paths of a trial begin in the folder that autotune is started in"
        yield str(problem(name, 0, said))

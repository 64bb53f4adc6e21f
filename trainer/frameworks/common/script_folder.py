"""Finds the folders of a shell script: its own, and its training's. Pure except for the current folder."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator

from trainer.frameworks.common.config_entries import problem

_FINDS_ITSELF = re.compile(
    r"(?:dirname|realpath|readlink)\b[^\n|;]*\$\{?(?:0|BASH_SOURCE)\b|\$\{(?:0|BASH_SOURCE)[^}]*%"
)


def folder_of(name: str) -> str:
    """Returns the absolute folder of the script ``name``, relative to the current folder."""
    return os.path.dirname(os.path.abspath(name))


def finds_itself(text: str) -> bool:
    """Tells whether the script looks up its own folder, so that a copy elsewhere would find other files."""
    return _FINDS_ITSELF.search(text) is not None


def gone_to(place: str, folder: str | None) -> str | None:
    """Returns the working directory after ``cd place`` in ``folder``; ``None`` if unknown."""
    if place.startswith("~") or (folder is None and not place.startswith("/")):
        return None
    return posixpath.normpath(posixpath.join(folder or "", place))


def in_folder(path: str, folder: str | None) -> str:
    """Returns ``path``, as written for a command in ``folder``, relative to the folder in which the script starts."""
    return posixpath.join(folder or "", path)


def folder_notes(name: str, folder: str | None) -> Iterator[str]:
    """Yields a note if the script ``name`` trains in another ``folder`` than the one it starts in."""
    if folder != "":
        place = "a folder that only a shell knows" if folder is None else folder
        said = f"cd: the script trains in {place}; paths of a trial begin in the folder that autotune is started in"
        yield str(problem(name, 0, said))

"""Texts to copy from a page: an export's files and command, and the configuration."""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune.documents.study import configuration_json
from autotune.domain import Configuration, Study, Trial
from autotune.recommendation.export import README, Exported, readme, seam_sentence, shell_line
from autotune.wording.text import clean, clean_line

HERE = Path("exported")
"""Stands for the folder the files will be in."""
EPOCH = (1980, 1, 1, 0, 0, 0)
"""Of every file in an archive, so that the same export is always the same bytes."""


@dataclass(frozen=True)
class Copy:
    """A text with a button beside it."""

    id: str
    """Unique on the page."""
    name: str
    text: str


def text_of(written: str) -> str:
    """A text line by line without what could steer a reader's eye or terminal."""
    return "\n".join(clean_line(line) for line in written.split("\n"))


def copies(
    study: Study,
    configuration: Configuration,
    exported: Exported | str,
    command: str,
    prefix: str = "copy",
    further: Sequence[tuple[str, str]] = (),
) -> tuple[Copy, ...]:
    """The command first, then each file, then ``further`` commands, then the knobs as JSON.

    Args:
        exported: its files, or why there are none.
        command: of this program that writes them.
        prefix: of the ids, where a page has several of these lists.
    """
    document = json.dumps(configuration_json(configuration), indent=2, ensure_ascii=False)
    named = [*further, ("configuration.json", document)]
    if not isinstance(exported, str):
        line = shell_line(exported.export, exported.framework.names.run, HERE)
        files = files_of(study, exported).items()
        named = [("the command that trains", line), ("with this program", command), *files, *named]
    return tuple(Copy(f"{prefix}-{i}", name, text_of(text)) for i, (name, text) in enumerate(named))


def files_of(study: Study, exported: Exported) -> Mapping[str, str]:
    """Name -> text of everything but the prompts."""
    return {**exported.export.files, README: readme(exported, study)}


def archive(study: Study, exported: Exported) -> bytes:
    """The files as a ZIP; the same export always gives the same bytes."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for name, text in sorted(files_of(study, exported).items()):
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.external_attr = (0o755 if name.endswith(".sh") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(entry, text)
    return stream.getvalue()


def export_command(study: Study, *, row: int = 1, trial: int | None = None) -> str:
    """``autotune export NAME --trial 7``."""
    what = f" --trial {trial}" if trial is not None else f" --row {row}" if row != 1 else ""
    return f"autotune export {shlex.quote(clean(study.spec.name))}{what}"


def commands_of(study: Study, trial: Trial) -> list[tuple[str, str]]:
    """Commands for a trial in a terminal: retry it if it ended, read its log if it started."""
    name = shlex.quote(clean(study.spec.name))
    again = [("run it again", f"autotune retry {trial.number} {name}")] if trial.state.is_finished else []
    follow = "" if trial.state.is_finished else " -f"
    return [*again, *([("its log", f"autotune logs {trial.number} {name}{follow}")] if trial.attempt else [])]


def launcher_words(exported: Exported | str) -> str:
    """Why an export has a launcher; empty if it has none."""
    return "" if isinstance(exported, str) else clean(seam_sentence(exported))

"""Texts to copy from a page: an export's files and command, and the configuration."""

from __future__ import annotations

import io
import json
import shlex
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace

from autotune.documents.study import configuration_json
from autotune.domain import Configuration, Study
from autotune.recommendation.export import Exported, missing_prompts, seam_sentence, texts_of
from autotune.wording.text import clean, clean_line

EPOCH = (1980, 1, 1, 0, 0, 0)
"""Date of every file in an archive, so that the same export always has the same bytes."""


@dataclass(frozen=True)
class Copy:
    """A text with a copy button."""

    id: str
    """Identifier, unique on the page."""
    name: str
    text: str


def text_of(raw: str) -> str:
    """Removes characters from each line of a text that could mislead a reader or a terminal."""
    return "\n".join(clean_line(line) for line in raw.split("\n"))


def copies(
    study: Study,
    configuration: Configuration,
    exported: Exported | str,
    command: str,
    name: str,
    prefix: str = "copy",
) -> tuple[Copy, ...]:
    """Returns the command first, then each file, then the knobs as JSON.

    Args:
        exported: the files, or the reason why the configuration cannot be exported.
        command: command of this program that writes them.
        name: name of the files' archive.
        prefix: prefix of the ids, for a page with several of these lists.
    """
    document = json.dumps(configuration_json(configuration), indent=2, ensure_ascii=False)
    named = [("configuration.json", document)]
    if not isinstance(exported, str):
        files = files_of(study, exported).items()
        named = [("the command that trains", unpacked(exported, name)), ("with this program", command), *files, *named]
    return tuple(Copy(f"{prefix}-{i}", title, text_of(text)) for i, (title, text) in enumerate(named))


def files_of(study: Study, exported: Exported) -> Mapping[str, str]:
    """Returns the text of each file by its name, without the prompts."""
    return texts_of(replace(exported, prompts=None), study)


def archive(study: Study, exported: Exported, name: str) -> bytes:
    """Returns the files as a ZIP with one folder ``name``, with the export's prompts if any; the same export gives the
    same bytes. Raises ``UsageError`` if the prompts cannot be read."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as made:
        for file, text in sorted(texts_of(exported, study).items()):
            entry = zipfile.ZipInfo(f"{name}/{file}", EPOCH)
            entry.external_attr = (0o755 if file.endswith(".sh") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(entry, text)
    return stream.getvalue()


def archive_name(study: Study, *, row: int = 1, trial: int | None = None) -> str:
    """Names the folder in the archive; the archive itself has this name with ``.zip``."""
    return f"study-{study.id}-" + (f"row-{row}" if trial is None else f"trial-{trial}")


def unpacked(exported: Exported, name: str) -> str:
    """Returns shell commands that unpack the downloaded archive and train; by Python, as ``unzip`` may be missing."""
    unpack = f"python3 -m zipfile -e {name}.zip . && "
    server = f"sh {name}/server.sh  # in a terminal of its own, before the other\n" if exported.export.server else ""
    return f"{unpack}{server}sh {name}/{exported.framework.names.run}"


def export_command(study: Study, *, row: int = 1, trial: int | None = None) -> str:
    """Returns the export command, such as ``autotune export NAME --trial 7``."""
    what = f" --trial {trial}" if trial is not None else f" --row {row}" if row != 1 else ""
    return f"autotune export {shlex.quote(clean(study.spec.name))}{what}"


def prompt_words(exported: Exported | str) -> str:
    """States whether the archive contains the required prompts; empty if it needs none."""
    if isinstance(exported, str) or not exported.export.prompts:
        return ""
    missing = missing_prompts(exported)
    return f"Without the prompts: put them into {missing}" if missing else "With the study's prompts"


def launcher_words(exported: Exported | str) -> str:
    """Explains why an export has a launcher; empty if it has none."""
    return "" if isinstance(exported, str) else clean(seam_sentence(exported))

"""``autotune export --url``: the files come from a server, and are written here."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.cli import console
from autotune.cli.screens.text import clean, clean_line, rate
from autotune.errors import MachineError, UsageError
from autotune.settings import HomePaths

if TYPE_CHECKING:
    from api.client import Client
    from api.schemas.exports import Export as Sent
    from autotune.cli.commands.export import Format
    from trainer.frameworks.common.exported import Export

RUN = "run.sh"
"""The script of every framework's export."""


def export(
    client: Client,
    *,
    study: str | None = None,
    row: int = 1,
    trial: int | None = None,
    form: Format | None = None,
    native_only: bool = False,
    output: Path | None = None,
    force: bool = False,
    as_json: bool = False,
    **_: Any,
) -> None:
    """Write the files of a configuration, and say what trains with them."""
    from autotune.recommendation.export import put

    if trial is not None and native_only:
        raise UsageError("--trial names one configuration, so --native-only cannot choose another; give one of them")
    number = client.find(study)
    found = client.export(number, row=row, trial=trial, native_only=native_only)
    suffix = form.value if form is not None else "trl"
    name = f"{HomePaths(Path()).study(number, found.study).name}-{suffix}"
    folder = (output or Path(name)).absolute()
    texts = {plain_name(file.name): file.text for file in found.files}
    files = put(texts, folder, force=force)
    for file in found.files:
        if file.executable:
            (folder / file.name).chmod(0o755)
    made = _export(found, texts)
    if as_json:
        console.document(_document(made, found, folder, files))
    else:
        _tell(made, found, folder)


def plain_name(name: str) -> str:
    """A file's name as it is. Raises ``MachineError`` for one that would lie elsewhere: servers are not trusted."""
    if name != Path(name).name or name in ("", ".", "..") or not name.isprintable() or "\\" in name or len(name) > 100:
        raise MachineError(f"the server sent a file named {clean(name)[:100]!r}, which is no name of a file")
    return name


def _export(found: Sent, texts: dict[str, str]) -> Export:
    """The export as the framework's own room made it."""
    from trainer.frameworks.common.exported import Command, Export

    command = Command(tuple(found.command.argv), found.command.folder, found.command.environment)
    return Export(texts, command, found.seams, (), found.prompts is not None, found.diff or "", found.server)


def _document(made: Export, found: Sent, folder: Path, files: tuple[Path, ...]) -> dict[str, Any]:
    from autotune.recommendation.export import command_of, shell_line

    words, place, environment = command_of(made, folder)
    sent = found.model_dump(mode="json")
    return {
        "study": sent["study"],
        "row": sent["row"],
        "folder": str(folder),
        "files": [str(path.relative_to(folder)) for path in files],
        "command": {"argv": list(words), "folder": place or None, "environment": environment},
        "shell": shell_line(made, RUN, folder),
        "seams": sent["seams"],
        "launcher": sent["launcher"],
        "native_only": sent["native"],
        "diff": sent["diff"],
        "missing": sent["prompts"],
    }


def _tell(made: Export, found: Sent, folder: Path) -> None:
    from autotune.recommendation.export import shell_line

    row = found.row
    for line in (found.diff or "").splitlines():
        console.line(clean_line(line))
    sure = "confirmed" if row.confirmed else "not confirmed"
    value, low, high = (
        "?" if figure is None else rate(figure)
        for figure in (row.tokens_per_hour, row.tokens_per_hour_low, row.tokens_per_hour_high)
    )
    console.line(f"figure   {value} tokens/hour ({low} to {high}, {sure})")
    for place, change in enumerate(row.changes):
        console.line(f"{'' if place else 'change':<9}{clean(change)}")
    console.line(f"folder   {clean(folder)}")
    console.line(f"files    {', '.join(sorted(made.files))}")
    if found.launcher:
        console.line(f"launcher {clean(found.launcher)}")
        console.line(f"         {clean(found.native_sentence or '')}")
    if found.prompts:
        console.line(f"missing  {clean(found.prompts)}: the study's prompts stay where it ran; put them there")
    if found.server:
        console.line(f"first    sh {clean(folder / 'server.sh')}")
    console.line("train    " + clean_line(shell_line(made, RUN, folder)))
    console.say("paths in it are those of the machine the study ran on")

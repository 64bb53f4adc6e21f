"""A configuration as the framework's own files, with the command that trains with them."""

from __future__ import annotations

from pydantic import Field

from api.schemas.answers import Row
from api.schemas.base import Knob, Shape


class File(Shape):
    """One file of an export."""

    name: str = Field(description="Without a folder.", examples=["grpo.yaml"])
    text: str
    executable: bool


class Command(Shape):
    """The command that trains. `{here}` stands for the folder with the files."""

    argv: list[str]
    folder: str = Field(description="Where it runs; empty: wherever it is started.")
    environment: dict[str, str] = Field(description="`PYTHONPATH` goes in front of the caller's own.")


class Export(Shape):
    """All files except the prompts. Interpreter, model and data have their paths on the study's machine."""

    study: str
    row: Row = Field(description="What is exported, with its evidence.")
    files: list[File]
    command: Command
    seams: dict[str, Knob] = Field(description="Knobs the framework has no key for; the launcher sets them.")
    launcher: str | None = Field(description="Why there is one, in a sentence.")
    native: Row | None = Field(description="The best that needs no launcher, where this one does.")
    native_sentence: str | None
    diff: str | None = Field(description="Against the user's own configuration, where the study began with one.")
    prompts: str | None = Field(description="File the command needs that is not sent: the study's prompts.")
    server: bool = Field(description="A rollout server has to be started first, by `server.sh`.")

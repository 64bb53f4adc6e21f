"""Makes a model folder with only the first layers of a model: smaller, with real weights, for a slow machine.

The output of such a model is useless, but its layers take the same time. The format of the weights is safetensors:
eight bytes with the length of a JSON header, the header (name -> type, shape, offsets), then the tensors' bytes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import tempfile
from pathlib import Path
from typing import Any

from autotune.errors import UsageError

WEIGHTS = "model.safetensors"
COUNT = "num_hidden_layers"
CHUNK = 1 << 24
_LAYER = re.compile(r"\.layers\.(\d+)\.")


def layers_of(model: Path) -> int:
    """Returns the number of layers of a folder's model; 0 if unknown, or if the model cannot be cut."""
    try:
        found = json.loads((model / "config.json").read_text(encoding="utf-8"))[COUNT]
    except (OSError, ValueError, KeyError, TypeError):
        return 0
    return found if isinstance(found, int) and (model / WEIGHTS).is_file() else 0


def first_layers(model: Path, layers: int, folder: Path) -> Path:
    """Makes ``folder`` with the first ``layers`` of ``model`` unless it exists; returns it. Raises ``UsageError``."""
    if (folder / "config.json").is_file():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".cutting-") as place:
        made = Path(place) / "model"
        made.mkdir()
        for path in model.iterdir():
            if path.is_file() and path.suffix != ".safetensors" and path.name != "config.json":
                shutil.copyfile(path, made / path.name)
        _cut_weights(model / WEIGHTS, layers, made / WEIGHTS)
        config = json.loads((model / "config.json").read_text(encoding="utf-8"))
        (made / "config.json").write_text(json.dumps(_cut_config(config, layers), indent=2) + "\n", encoding="utf-8")
        os.replace(made, folder)
    return folder


def _cut_config(config: dict[str, Any], layers: int) -> dict[str, Any]:
    """Returns a model's configuration for fewer layers; lists with an entry for each layer are cut too."""
    whole = config[COUNT]
    cut = {k: v[:layers] if isinstance(v, list) and len(v) == whole else v for k, v in config.items()}
    return {**cut, COUNT: layers}


def _cut_weights(source: Path, layers: int, target: Path) -> None:
    try:
        with source.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header: dict[str, Any] = json.loads(stream.read(length))
            extra = header.pop("__metadata__", None)
            kept = {k: v for k, v in header.items() if (n := _LAYER.search(k)) is None or int(n[1]) < layers}
            if len(kept) == len(header):
                raise UsageError(f"{source} holds no numbered layers beyond {layers}, so it cannot be cut")
            _write(stream, 8 + length, kept, extra, target)
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise UsageError(f"{source} cannot be cut to {layers} layers: {error}") from None


def _write(stream: Any, begin: int, kept: dict[str, Any], extra: Any, target: Path) -> None:
    order = sorted(kept, key=lambda name: kept[name]["data_offsets"])
    placed, end = {}, 0
    for name in order:
        first, last = kept[name]["data_offsets"]
        placed[name] = {**kept[name], "data_offsets": [end, end + last - first]}
        end += last - first
    text = json.dumps({**({"__metadata__": extra} if extra else {}), **placed}).encode()
    text += b" " * (-len(text) % 8)
    with target.open("wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            first, last = kept[name]["data_offsets"]
            stream.seek(begin + first)
            left = last - first
            while left:
                part = stream.read(min(CHUNK, left))
                if not part:
                    raise ValueError(f"the file ends within {name}")
                out.write(part)
                left -= len(part)

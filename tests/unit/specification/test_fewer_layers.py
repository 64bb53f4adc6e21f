"""A model cut to its first layers keeps exactly those weights."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from autotune.errors import UsageError
from autotune.specification.fewer_layers import first_layers, layers_of

TENSORS = {
    "model.layers.10.mlp.weight": b"ten.",
    "model.embed_tokens.weight": b"embedded",
    "model.layers.1.mlp.weight": b"one.",
    "model.layers.0.mlp.weight": b"zero",
    "model.norm.weight": b"norm",
    "model.layers.2.mlp.weight": b"two.",
}


def _model(folder: Path, tensors: dict[str, bytes] = TENSORS, layers: int = 11) -> Path:
    folder.mkdir()
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [end, end + len(data)]}
        end += len(data)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(tensors.values()))
    config = {"num_hidden_layers": layers, "hidden_size": 8, "layer_types": ["full_attention"] * layers}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    return folder


def _read(path: Path) -> dict[str, bytes]:
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    header = json.loads(whole[8 : 8 + length])
    assert header.pop("__metadata__") == {"format": "pt"}
    body = whole[8 + length :]
    assert max(one["data_offsets"][1] for one in header.values()) == len(body), "nothing is left over"
    return {name: body[slice(*one["data_offsets"])] for name, one in header.items()}


def test_the_first_layers_and_what_is_no_layer_stay_as_they_are(tmp_path: Path) -> None:
    cut = first_layers(_model(tmp_path / "whole"), 2, tmp_path / "models" / "cut")
    kept = {n: d for n, d in TENSORS.items() if ".layers." not in n or ".0." in n or ".1." in n}
    assert _read(cut / "model.safetensors") == kept
    config = json.loads((cut / "config.json").read_text())
    assert config == {"num_hidden_layers": 2, "hidden_size": 8, "layer_types": ["full_attention"] * 2}
    assert (cut / "tokenizer.json").read_text() == "{}"
    assert (layers_of(tmp_path / "whole"), layers_of(cut)) == (11, 2)


def test_a_model_that_was_cut_before_is_taken_as_it_is(tmp_path: Path) -> None:
    whole, folder = _model(tmp_path / "whole"), tmp_path / "models" / "cut"
    first = first_layers(whole, 2, folder) / "model.safetensors"
    stamp = first.stat().st_mtime_ns
    assert first_layers(whole, 2, folder) == folder
    assert first.stat().st_mtime_ns == stamp
    assert [p.name for p in folder.parent.iterdir()] == ["cut"], "nothing half made is left"


@pytest.mark.parametrize("break_it", ["no layers", "short", "no header"])
def test_what_cannot_be_cut_is_refused_and_leaves_nothing(tmp_path: Path, break_it: str) -> None:
    tensors = {"model.norm.weight": b"norm"} if break_it == "no layers" else TENSORS
    whole = _model(tmp_path / "whole", tensors)
    weights = whole / "model.safetensors"
    if break_it == "short":
        weights.write_bytes(weights.read_bytes()[:-26])
    elif break_it == "no header":
        weights.write_bytes(b"\x05")
    with pytest.raises(UsageError, match=r"model\.safetensors .*cut"):
        first_layers(whole, 2, tmp_path / "models" / "cut")
    assert not list((tmp_path / "models").iterdir())


def test_a_folder_that_is_no_such_model_has_no_layers_to_cut(tmp_path: Path) -> None:
    assert layers_of(tmp_path) == 0
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 4}')
    assert layers_of(tmp_path) == 0, "its weights are not one file of safetensors"

"""Facts of a model come from its files alone."""

from __future__ import annotations

import json
import struct
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from trainer.child.contract import ContractError
from trainer.child.model_facts import model_facts, refuse_broken, stored_parameters


def write_weights(path: Path, shapes: dict[str, list[int]]) -> None:
    entries: dict[str, Any] = {n: {"dtype": "BF16", "shape": s, "data_offsets": [0, 0]} for n, s in shapes.items()}
    header = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header)


@pytest.fixture
def config(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The model's configuration, as a transformers that the test provides would read it."""
    values: dict[str, Any] = {}
    module = types.ModuleType("transformers")
    answer = types.SimpleNamespace(to_dict=lambda: values)
    module.AutoConfig = types.SimpleNamespace(from_pretrained=lambda model: answer)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformers", module)
    return values


def test_llama_like(tmp_path: Path, config: dict[str, Any]) -> None:
    config.update(num_hidden_layers=30, hidden_size=576, num_attention_heads=9, num_key_value_heads=3, vocab_size=49152)
    write_weights(tmp_path / "model-1.safetensors", {"a": [10, 3], "b": [5]})
    write_weights(tmp_path / "model-2.safetensors", {"c": [2, 2, 2], "scalar": []})
    assert model_facts(str(tmp_path)) == {
        "layers": 30,
        "hidden_size": 576,
        "attention_heads": 9,
        "key_value_heads": 3,
        "vocabulary": 49152,
        "max_positions": None,
        "head_size": None,
        "parameters": 44,
    }


def test_text_part_of_a_multimodal_model_and_older_names(tmp_path: Path, config: dict[str, Any]) -> None:
    config.update(text_config={"n_layer": 12, "n_embd": 768, "n_head": 12, "n_positions": 1024}, vocab_size=5)
    facts = model_facts(str(tmp_path))
    assert (facts["layers"], facts["key_value_heads"], facts["max_positions"], facts["vocabulary"]) == (12, 12, 1024, 5)
    assert facts["parameters"] is None


def test_packed_weights_are_not_counted(tmp_path: Path, config: dict[str, Any]) -> None:
    config.update(quantization_config={"bits": 4})
    write_weights(tmp_path / "model.safetensors", {"packed": [100]})
    assert model_facts(str(tmp_path))["parameters"] is None


@pytest.mark.parametrize(
    "content", [b"", b"short", b"\xff" * 64, struct.pack("<Q", 4) + b"nope", struct.pack("<Q", 2) + b"[]"]
)
def test_what_is_no_weight_file_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(ContractError, match=r"model\.safetensors is not a safetensors file"):
        stored_parameters(tmp_path)


@pytest.mark.parametrize("lost", [1, 7, 59])
def test_weights_that_are_cut_off_are_named_before_a_trial_loads_them(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "model.safetensors"
    header = json.dumps({"a": {"dtype": "BF16", "shape": [10, 3], "data_offsets": [0, 60]}}).encode()
    whole = struct.pack("<Q", len(header)) + header + bytes(60)
    path.write_bytes(whole)
    refuse_broken(tmp_path)
    assert stored_parameters(tmp_path) == 30
    path.write_bytes(whole[:-lost])
    with pytest.raises(ContractError, match=rf"model.safetensors is cut off: it has \d+ bytes of {len(whole)}"):
        refuse_broken(tmp_path)


@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_positions_that_are_scaled_at_run_time_are_no_limit(tmp_path: Path, config: dict[str, Any], key: str) -> None:
    config.update({"max_position_embeddings": 4096, key: {"rope_type": "default", "factor": 1.0}})
    assert model_facts(str(tmp_path))["max_positions"] == 4096
    config[key] = {"rope_type": "yarn", "factor": 4.0}
    assert model_facts(str(tmp_path))["max_positions"] is None

"""Parameters counted from a configuration, against the published counts of the same models."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import UsageError
from autotune.forecast.architecture import architecture
from autotune.forecast.model_file import TABLE, model_at
from tests.support.imports import of
from tests.support.published_models import LLAMA, MIXTRAL, PUBLISHED, QWEN3_30B_A3B


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_dense_model_has_as_many_parameters_as_were_published(name: str) -> None:
    config, count = PUBLISHED[name]
    found = architecture(config)
    assert (found.parameters, found.active, found.notes) == (count, count, ())


def test_of_experts_all_are_held_and_some_are_active() -> None:
    found = architecture(MIXTRAL)
    assert found.parameters == 46_702_792_704
    assert found.active == 12_879_925_248
    found = architecture(QWEN3_30B_A3B)
    assert found.parameters == 30_532_122_624
    assert 3.2e9 < found.active < 3.5e9


def test_the_text_part_of_a_vision_model_is_that_model() -> None:
    text = {**PUBLISHED["Qwen3-8B"][0], "model_type": "qwen3_vl_text"}
    outer = {"model_type": "qwen3_vl", "text_config": text, "vision_config": {"depth": 27, "hidden_size": 1152}}
    found = architecture(outer)
    assert found.parameters == PUBLISHED["Qwen3-8B"][1]
    assert "only its text part is counted" in found.notes[0]
    older = {**PUBLISHED["Qwen2.5-7B"][0], "model_type": "qwen2_5_vl", "vision_config": {"depth": 32}}
    assert architecture(older).parameters == PUBLISHED["Qwen2.5-7B"][1]


def test_an_unknown_family_is_counted_as_llamas_and_says_so() -> None:
    found = architecture({**LLAMA, "model_type": "somebody"})
    assert found.parameters == architecture(LLAMA).parameters
    assert "somebody is counted as if its layers were Llama's" in found.notes[0]


@given(key=st.sampled_from(["hidden_size", "intermediate_size", "num_hidden_layers", "vocab_size"]))
def test_more_of_anything_is_more_parameters(key: str) -> None:
    larger = architecture({**LLAMA, key: 2 * LLAMA[key], "head_dim": 128})
    assert larger.parameters > architecture({**LLAMA, "head_dim": 128}).parameters


@pytest.mark.parametrize(("change", "said"), of("what_cannot_be_counted_is_one_sentence"))
def test_what_cannot_be_counted_is_one_sentence(change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said) as caught:
        architecture({**LLAMA, **change}, "mine/config.json")
    assert str(caught.value).startswith("mine/config.json")
    assert "\n" not in str(caught.value)


def test_a_file_a_folder_and_the_cache_are_the_same_model(tmp_path: Path) -> None:
    file = tmp_path / "hub" / "models--org--name" / "snapshots" / "abc" / "config.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(LLAMA))
    environ = {"HF_HUB_CACHE": str(tmp_path / "hub")}
    found = [model_at(str(file), {}), model_at(str(file.parent), {}), model_at("org/name", environ)]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"a": NaN', "\x00"])
def test_a_file_that_is_no_configuration_is_one_sentence(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.json"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"is not a model's config\.json"):
        model_at(str(file))


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("org/absent", r"could not be asked \(HF_HUB_OFFLINE or HF_ENDPOINT forbids it\); download its"),
        ("Qwen/Qwen2.5-7B-Instrct", "did you mean Qwen/Qwen2.5-7B-Instruct; else download"),
        ("./absent", "cannot be read"),
        (".", "it has no config.json"),
    ],
)
def test_a_model_that_is_not_here_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=said):
        model_at(word, {"HF_HOME": str(tmp_path), "HF_HUB_OFFLINE": "1"})


def test_every_model_of_the_table_has_the_parameters_that_the_hub_states() -> None:
    table = yaml.safe_load(TABLE.read_text())
    for name, shape in table["shapes"].items():
        assert architecture(shape, name).parameters == shape["parameters"], name
    nowhere = {"HF_HOME": "/nonexistent", "HF_ENDPOINT": "file:///etc"}
    found = {name: model_at(name, nowhere) for name in table["models"]}
    assert found["Qwen/Qwen2.5-7B"].max_positions == 131072
    assert all(one.max_positions and not one.notes for one in found.values())


class Hub(BaseHTTPRequestHandler):
    """Has one public model, and one that redirects elsewhere; remembers the tokens that it was shown."""

    shown: ClassVar[list[tuple[str, str | None]]] = []

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def do_GET(self) -> None:
        self.shown.append((self.path, self.headers["Authorization"]))
        self.send_response({"/o": 200, "/m": 302}.get(self.path[:2], 401))
        self.send_header("Location", "/o/there")
        self.end_headers()
        self.wfile.write(json.dumps(LLAMA).encode() if self.path.startswith("/o") else b"")


def test_the_hub_is_asked_for_one_file_and_a_token_goes_nowhere_else(tmp_path: Path) -> None:
    with HTTPServer(("127.0.0.1", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HOME": str(tmp_path), "HF_TOKEN": "hf_x"}
        assert model_at("org/name", hub) == model_at("moved/name", hub) == architecture(LLAMA)
        with pytest.raises(UsageError, match=r"the hub shows no such model \(a gated one needs \$HF_TOKEN\)"):
            model_at("gated/name", hub)
        server.shutdown()
    file = "/resolve/main/config.json"
    asked = [(f"/{name}{file}", "Bearer hf_x") for name in ("org/name", "moved/name", "gated/name")]
    assert Hub.shown == [*asked[:2], ("/o/there", None), asked[2]]

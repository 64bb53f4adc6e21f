"""The import that opens a GPU is named; a file stands in for the device."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.child.preload import GpuOpenWatch, uses_gpu

MODULES = ("gpu_watch_outer", "gpu_watch_inner", "gpu_watch_calm")


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A device that ``gpu_watch_inner`` opens, which ``gpu_watch_outer`` imports after a calm one."""
    place = tmp_path / "device"
    (tmp_path / "gpu_watch_calm.py").write_text("ready = True\n")
    (tmp_path / "gpu_watch_inner.py").write_text(f"open({str(place)!r}, 'w').close()\n")
    (tmp_path / "gpu_watch_outer.py").write_text("import gpu_watch_calm\nimport gpu_watch_inner\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield place
    for name in MODULES:
        sys.modules.pop(name, None)


def test_the_innermost_import_is_named(device: Path) -> None:
    with GpuOpenWatch(device.exists, there=True) as watch:
        import gpu_watch_outer  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    assert watch.culprit == "gpu_watch_inner, imported by gpu_watch_outer,"


@pytest.mark.parametrize("then", ["", "import wave\n"])
def test_a_function_that_is_called_does_not_hide_who_calls_it(device: Path, tmp_path: Path, then: str) -> None:
    """``torch.cuda`` imports things in functions of its own when it opens a GPU."""
    (tmp_path / "gpu_watch_calm.py").write_text(
        f"def opens():\n    open({str(device)!r}, 'w').close()\n    import sndhdr\n"
    )
    (tmp_path / "gpu_watch_inner.py").write_text(f"import gpu_watch_calm\ngpu_watch_calm.opens()\n{then}")
    with GpuOpenWatch(device.exists, there=True) as watch:
        import gpu_watch_outer  # noqa: F401, PLC0415
    assert watch.culprit == ("gpu_watch_inner" if then else "gpu_watch_inner, imported by gpu_watch_outer,")


def test_an_import_that_fails_after_opening_is_named_too(device: Path, tmp_path: Path) -> None:
    with (tmp_path / "gpu_watch_inner.py").open("a") as stream:
        stream.write("raise ImportError('no driver')\n")
    with GpuOpenWatch(device.exists, there=True) as watch, pytest.raises(ImportError):
        import gpu_watch_outer  # noqa: F401, PLC0415
    # A module that fails is taken out of ``sys.modules`` again, so the one that imported it is named.
    assert "gpu_watch" in watch.culprit


def test_nothing_is_named_where_nothing_opens(device: Path) -> None:
    with GpuOpenWatch(device.exists, there=True) as watch:
        import gpu_watch_calm  # type: ignore[import-not-found]  # noqa: F401, PLC0415
    assert watch.culprit == ""


@pytest.mark.parametrize("there", [False, True])
def test_the_import_statement_is_put_back(device: Path, there: bool) -> None:
    before = builtins.__import__
    with GpuOpenWatch(device.exists, there=there):
        assert (builtins.__import__ is not before) is there
    assert builtins.__import__ is before


def test_this_process_has_opened_no_gpu() -> None:
    assert not uses_gpu()

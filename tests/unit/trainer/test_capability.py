"""An import that asks torch for the compute capability opens no GPU; a made-up torch, driver and device stand in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from trainer.child import preload
from trainer.child.preload import CapabilityByDriver, GpuOpenWatch, driver_capability

ASKS = "capability_asks"


class Driver:
    """NVML with GPUs of these capabilities; ``broken`` is the function that fails."""

    def __init__(self, *capabilities: tuple[int, int], broken: str = "") -> None:
        self._capabilities, self._broken, self.opened = capabilities, broken, 0

    def _done(self, name: str) -> int:
        return 999 if name == self._broken else 0

    def nvmlInit_v2(self) -> int:  # noqa: N802
        self.opened += self._broken != "init"
        return self._done("init")

    def nvmlShutdown(self) -> int:  # noqa: N802
        self.opened -= 1
        return 0

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:  # noqa: N802
        count._obj.value = len(self._capabilities)
        return self._done("count")

    def nvmlDeviceGetHandleByIndex_v2(self, index: int, handle: Any) -> int:  # noqa: N802
        handle._obj.value = index + 1
        return self._done("handle")

    def nvmlDeviceGetCudaComputeCapability(self, handle: Any, major: Any, minor: Any) -> int:  # noqa: N802
        major._obj.value, minor._obj.value = self._capabilities[handle.value - 1]
        return self._done("capability")


@pytest.mark.parametrize(
    ("driver", "capability"),
    [
        (Driver((9, 0)), (9, 0)),
        (Driver((8, 9), (8, 9)), (8, 9)),
        (Driver((8, 0), (9, 0)), None),
        (Driver(), None),
        *((Driver((9, 0), broken=broken), None) for broken in ("init", "count", "handle", "capability")),
    ],
)
def test_the_driver_tells_the_capability_of_gpus_that_are_alike(
    driver: Driver, capability: tuple[int, int] | None
) -> None:
    assert driver_capability(lambda _: driver) == capability
    assert driver.opened == 0, "it is closed again"


def test_without_a_driver_or_with_one_that_lacks_the_function_nothing_is_told() -> None:
    def none(_: str) -> Any:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    assert driver_capability(none) is None
    assert driver_capability(lambda _: SimpleNamespace()) is None


@pytest.fixture
def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file that a made-up ``torch.cuda`` opens when it is asked; ``capability_asks`` asks as it is imported."""
    place, torch = tmp_path / "device", tmp_path / "torch"
    (torch / "utils").mkdir(parents=True)
    (tmp_path / "triton.py").touch()
    (torch / "__init__.py").write_text("from . import cuda\n")
    (torch / "utils" / "__init__.py").touch()
    opens = f"    open({str(place)!r}, 'w').close()\n    return (8, 0)\n"
    (torch / "cuda.py").write_text(
        f"def get_device_capability(device=None):\n{opens}\n\ndef is_initialized():\n    return False\n"
    )
    (torch / "utils" / "_triton.py").write_text(f"def has_triton():\n{opens}")
    asks = "import torch\nfrom torch.cuda import get_device_capability as kept\n"
    asks += "from torch.utils._triton import has_triton\ntriton = has_triton()\n"
    (tmp_path / f"{ASKS}.py").write_text(asks + "found = torch.cuda.get_device_capability()\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    names = ("torch", "torch.cuda", "torch.utils", "torch.utils._triton", ASKS)
    before = {name: sys.modules.pop(name, None) for name in names}
    yield place
    for name in names:
        sys.modules.pop(name, None)
        if before[name] is not None:
            sys.modules[name] = before[name]  # type: ignore[assignment]


def brought_in(
    capability: tuple[int, int] | None, device: Path, monkeypatch: pytest.MonkeyPatch, kind: str = "cuda"
) -> Any:
    """What was imported, and the import said to have opened the device."""
    monkeypatch.setattr(preload, "driver_capability", lambda: capability)
    monkeypatch.setattr(preload, "GpuOpenWatch", lambda after: GpuOpenWatch(device.exists, there=True, after=after))
    framework: Any = SimpleNamespace(bring_in_ahead=lambda _: __import__(ASKS))
    culprit = preload.import_ahead(framework, SimpleNamespace(device=kind))
    return sys.modules[ASKS], culprit


def test_an_import_that_asks_is_answered_by_the_driver(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, culprit = brought_in((9, 0), device, monkeypatch)
    assert asked.found == (9, 0)
    assert asked.triton is True
    assert not device.exists()
    assert culprit == ""


def test_triton_is_for_gpus_that_it_compiles_for(device: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert brought_in((6, 1), device, monkeypatch)[0].triton is False
    assert not device.exists()


def test_afterwards_torch_answers_itself_whoever_kept_the_function(
    device: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, _ = brought_in((9, 0), device, monkeypatch)
    assert asked.kept() == (8, 0)
    assert asked.torch.cuda.get_device_capability.__module__ == "torch.cuda"
    assert asked.torch.cuda.get_device_capability(device=0) == (8, 0)
    assert not hasattr(asked.torch.cuda.get_device_capability, "__wrapped__")
    assert asked.has_triton() == (8, 0)
    assert asked.torch.utils._triton.has_triton.__module__ == "torch.utils._triton"


@pytest.mark.parametrize(("capability", "kind"), [(None, "cuda"), ((9, 0), "cpu")])
def test_where_the_driver_does_not_say_torch_does_and_the_import_is_named(
    device: Path, monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int] | None, kind: str
) -> None:
    asked, culprit = brought_in(capability, device, monkeypatch, kind)
    assert asked.found == (8, 0)
    assert culprit.startswith(ASKS)


def test_what_was_never_put_is_taken_back_without_harm() -> None:
    CapabilityByDriver((9, 0)).take_back()

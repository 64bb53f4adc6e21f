"""The parts of vLLM's start, timed at a made-up vLLM: on each platform its own worker, and no other is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from trainer.child.frameworks.trl import engine_start

BASE = "class Worker:\n    def load_model(self):\n        return 'loaded'\n"
CPU = """from vllm.v1.worker.gpu_worker import Worker
class CPUWorker(Worker):
    def init_device(self):
        pass
"""


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """A package with a worker of each platform; importing the CPU's leaves a mark, as the real one does in torch."""
    workers = tmp_path / "vllm" / "v1" / "worker"
    workers.mkdir(parents=True)
    for folder in (workers, workers.parent, workers.parent.parent):
        (folder / "__init__.py").write_text("")
    (workers / "gpu_worker.py").write_text(BASE)
    (workers / "cpu_worker.py").write_text("import sys\nsys.modules['vllm'].spoiled = True\n" + CPU)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        monkeypatch.delitem(sys.modules, name)
    package = __import__("vllm")
    package.spoiled = False
    yield package
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]


def on(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    platforms = ModuleType("vllm.platforms")
    platforms.current_platform = SimpleNamespace(is_cpu=lambda: platform == "cpu")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vllm.platforms", platforms)


def test_on_a_gpu_the_cpus_worker_is_never_imported(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its import replaces ``torch.cuda.Event`` by one that measures nothing, and every engine that compiles fails."""
    on("cuda", monkeypatch)
    with engine_start.timed() as seconds:
        worker = sys.modules["vllm.v1.worker.gpu_worker"].Worker()
        assert worker.load_model() == "loaded"
    assert list(seconds) == ["weights"]
    assert not vllm.spoiled
    assert "vllm.v1.worker.cpu_worker" not in sys.modules


def test_on_a_cpu_the_steps_of_both_are_told(vllm: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    on("cpu", monkeypatch)
    with engine_start.timed() as seconds:
        worker = sys.modules["vllm.v1.worker.cpu_worker"].CPUWorker()
        worker.init_device()
        worker.load_model()
    assert sorted(seconds) == ["device", "weights"]
    assert vllm.spoiled


def test_without_vllm_nothing_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    with engine_start.timed() as seconds:
        pass
    assert seconds == {}
    assert "vllm" not in sys.modules

"""Runs a trial and counts who waits for the device: run by the training interpreter.

``python tests/gpu/watched_trial.py DIR [BYTES]`` runs the trial of DIR, its process having no more than BYTES of
the GPU, and writes ``DIR/synchronised.json``: calls of ``torch.cuda.synchronize`` that come from our own code,
inside cycles and outside of them. On a CPU there is nothing to wait for, and the counts are of a stand-in.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


class Counter:
    """Stands for ``torch.cuda.synchronize``."""

    def __init__(self, package: str, synchronize: Any) -> None:
        self.inside: list[str] = []
        self.outside = 0
        self.cycles = 0
        self.in_cycle = False
        self._package = package
        self._synchronize = synchronize

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        callers = [name for name in self._callers() if name.startswith(self._package)]
        if callers and self.in_cycle:
            self.inside.append(callers[0])
        self.outside += int(bool(callers) and not self.in_cycle)
        return None if self._synchronize is None else self._synchronize(*args, **kwargs)

    @staticmethod
    def _callers() -> list[str]:
        """Modules of the two frames above: called by us, not by a framework that we called."""
        frames = [sys._getframe(2), sys._getframe(3)]
        return [str(frame.f_globals.get("__name__", "")) for frame in frames]


def load_child() -> ModuleType:
    path = Path(__file__).resolve().parents[2] / "trainer" / "child" / "start.py"
    spec = importlib.util.spec_from_file_location("start_of_child", path)
    assert spec is not None
    assert spec.loader is not None
    start = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start)
    start.load_package()
    return start


def mark_cycles(meter_class: Any, counter: Counter) -> None:
    """A cycle is what lies between the meter's ``begin`` and ``end``; their own waiting is outside."""
    begin, end = meter_class.begin, meter_class.end

    def begun(self: Any, *args: Any, **options: Any) -> Any:
        result = begin(self, *args, **options)
        counter.in_cycle = True
        return result

    def ended(self: Any) -> Any:
        counter.in_cycle = False
        counter.cycles += 1
        return end(self)

    meter_class.begin, meter_class.end = begun, ended


def main(directory: str, device_bytes: str = "") -> None:
    import torch  # noqa: PLC0415

    start = load_child()
    worker = importlib.import_module(f"{start.PACKAGE}.worker")
    contract = importlib.import_module(f"{start.PACKAGE}.contract")
    meter = importlib.import_module(f"{start.PACKAGE}.meter")
    cuda = torch.cuda.is_available()
    if device_bytes and cuda:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(int(device_bytes) / total)
    counter = Counter(start.PACKAGE, torch.cuda.synchronize if cuda else None)
    torch.cuda.synchronize = counter
    mark_cycles(meter.Meter, counter)
    if not cuda:
        meter.HostTimer.settle = lambda _: torch.cuda.synchronize()  # where a device's timer would wait
    paths = contract.RunPaths(Path(directory))
    ok = worker.run(paths, worker.ResultClaim(paths)).ok
    found = {"inside": counter.inside, "outside": counter.outside, "cycles": counter.cycles}
    (paths.root / "synchronised.json").write_text(json.dumps(found))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main(*sys.argv[1:])

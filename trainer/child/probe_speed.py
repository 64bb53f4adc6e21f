"""Measures the speed of one device: matrix products, copies and small kernels. One command of ``start.py``.

Needs torch only. ``config.json`` may hold ``{"seconds": 12.0}``, the limit of all measurements after torch is imported,
``{"device": "cpu"}``, to ignore a GPU, and ``{"sustained": true}``, for the speed during the load of other processes
instead of the best. Other keys only distinguish requests. Nothing is read from disk, and at most ``LARGEST`` bytes are
allocated at a time.
"""

from __future__ import annotations

import json
import os
import platform
import time
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Tuple

from .contract import Result, RunPaths, dumps, write_atomic
from .failures import classify

SECONDS = 12.0
"""Default limit of all measurements together, in seconds."""
PART = 1.2
"""Longest time of one measurement, in seconds."""
LEAST = 0.02
"""Shortest timed run in seconds, so that clocks and launches do not matter; work is doubled until a run takes them."""
LARGEST = 1 << 28
CHAIN = 200
"""Tiny kernels in one run of ``launching``."""

Work = Callable[[], Any]
Clock = Callable[[], float]
Timer = Callable[[Work, Work, float], float]
"""Returns the seconds of one run of a work, measured for at most a limit of seconds: ``fastest`` or ``average``."""


def main(directory: Path) -> Result:
    """Measures the first device that torch sees, or the CPU without a GPU or on request.

    ``Result.data``: ``device`` (``cpu`` or ``cuda``), ``name``, ``threads``, ``flops`` (type -> FLOP/s), ``bandwidth``
    (bytes/s read and written), ``kernel_s``; for a GPU also ``memory`` (bytes) and ``host_link``, with a second GPU
    ``link`` (bytes/s one way); ``seconds`` of the measurement. A figure that could not be measured is absent.
    """
    paths = RunPaths(directory)
    try:
        seconds, device, sustained = read_question(paths.config)
        result = Result(ok=True, data=measure(seconds, device, average if sustained else fastest))
    except Exception as error:
        result = classify(error, None)
    write_atomic(paths.result, dumps(result))
    return result


def read_question(path: Path) -> Tuple[float, str, bool]:
    """Returns the seconds, within bounds, the device (``cpu``, or empty for any) and whether averages are wanted."""
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    wanted = found if isinstance(found, dict) else {}
    value = wanted.get("seconds")
    seconds = float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else SECONDS
    device = "cpu" if wanted.get("device") == "cpu" else ""
    return min(SECONDS, max(0.05, seconds)), device, wanted.get("sustained") is True


def fastest(work: Work, finish: Work, limit: float, clock: Clock = time.perf_counter) -> float:
    """Returns the seconds of the fastest run of ``work``; starts runs for ``limit`` seconds, at least two.

    The first run, which includes set-up, counts only if it is the only one.
    """
    began = clock()
    found: List[float] = []
    while len(found) < 3 or clock() - began < limit:
        start = clock()
        work()
        finish()
        found.append(clock() - start)
        if len(found) >= 2 and clock() - began >= limit:
            break
    return max(min(found[1:]), 1e-9)


def average(work: Work, finish: Work, limit: float, clock: Clock = time.perf_counter) -> float:
    """Returns the mean seconds of one run of ``work`` over ``limit`` seconds, at least two runs.

    Among other processes a run may have the device to itself, or wait; training has both. The first run, which includes
    set-up, does not count.
    """
    work()
    finish()
    began, runs = clock(), 0
    while runs < 2 or clock() - began < limit:
        work()
        finish()
        runs += 1
    return max((clock() - began) / runs, 1e-9)


def largest_that_fits(seconds_of: Callable[[int], float], first: int, last: int, least: float = LEAST) -> int:
    """Returns the smallest of ``first``, 2 ``first``, ... whose run takes ``least`` seconds; at most ``last``."""
    size = first
    while size < last and seconds_of(size) < least:
        size *= 2
    return min(size, last)


def measure(limit: float, device: str = "", timed: Timer = fastest) -> Dict[str, Any]:
    """Returns all speeds of the device, within about ``limit`` seconds; figures without time left are absent.

    Args:
        device: ``cpu`` ignores a GPU.
        timed: ``fastest`` or ``average``; on a GPU it applies to products, copies and kernels on the device.
    """
    import torch

    cuda = device != "cpu" and torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    finish: Work = torch.cuda.synchronize if cuda else lambda: None  # a CPU has finished when the call returns
    began = time.perf_counter()
    data: Dict[str, Any] = {
        "device": device,
        "name": torch.cuda.get_device_name(0) if cuda else "cpu %s" % platform.machine(),
        "threads": torch.get_num_threads(),
        "cores": len(os.sched_getaffinity(0)),
        "torch": torch.__version__,
        "flops": {},
    }
    if cuda:
        data["memory"] = int(torch.cuda.get_device_properties(0).total_memory)
    parts = _parts(torch, device, finish, timed)
    for place, (key, part) in enumerate(parts):
        left = limit - (time.perf_counter() - began)
        if left <= 0:
            break
        _keep(data, key, part, min(PART, left / (len(parts) - place)))
    data["seconds"] = time.perf_counter() - began
    return data


def _keep(data: Dict[str, Any], key: str, part: Callable[[float], float], limit: float) -> None:
    """Stores figure ``key``; omits a figure that the device or torch cannot measure."""
    try:
        value = part(limit)
    except (RuntimeError, AttributeError, NotImplementedError, TypeError, ValueError):
        return
    if key.startswith("flops."):
        data["flops"][key[len("flops.") :]] = value
    else:
        data[key] = value


def _parts(torch: Any, device: str, finish: Work, timed: Timer) -> List[Tuple[str, Callable[[float], float]]]:
    kinds: Mapping[str, Any] = {"bf16": torch.bfloat16, "fp32": torch.float32, "fp16": torch.float16}
    if device == "cpu":
        # A CPU without instructions for bf16 takes seconds for one product: it goes last.
        kinds = {"fp32": torch.float32, "bf16": torch.bfloat16}
    parts: List[Tuple[str, Callable[[float], float]]] = [
        ("bandwidth", lambda limit: copying(torch, device, finish, limit, timed)),
        ("kernel_s", lambda limit: launching(torch, device, finish, limit, timed)),
    ]
    parts += [("flops.%s" % k, partial(multiplying, torch, device, t, finish, timed=timed)) for k, t in kinds.items()]
    if device == "cuda":
        parts.append(("flops.tf32", lambda limit: tf32(torch, finish, limit)))
        if torch.cuda.get_device_capability(0) >= (8, 9):
            parts.append(("flops.fp8", lambda limit: fp8(torch, finish, limit)))
        parts.append(("host_link", lambda limit: to_host(torch, finish, limit)))
        if torch.cuda.device_count() > 1:
            parts.append(("link", lambda limit: to_neighbour(torch, finish, limit)))
    return parts


def multiplying(torch: Any, device: str, kind: Any, finish: Work, limit: float, timed: Timer = fastest) -> float:
    """Returns the FLOP/s of a square matrix product, of a size that takes ``LEAST`` seconds.

    For a CPU's average, the product is as small as a model's, so that its threads wait for one another as in training.
    """

    def seconds_of(size: int) -> float:
        a, b = (torch.rand((size, size), device=device).to(kind) for _ in range(2))
        return fastest(lambda: torch.mm(a, b), finish, 0.0)

    thin = timed is average and device == "cpu"
    size = 256 if thin else largest_that_fits(seconds_of, 512, 16384 if device == "cuda" else 4096)
    a, b = (torch.rand((size, size), device=device).to(kind) for _ in range(2))
    return 2.0 * size**3 / timed(lambda: torch.mm(a, b), finish, limit)


def tf32(torch: Any, finish: Work, limit: float) -> float:
    """Returns the FLOP/s of a single-precision product on TF32 tensor cores."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        return multiplying(torch, "cuda", torch.float32, finish, limit)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def fp8(torch: Any, finish: Work, limit: float) -> float:
    """Returns the FLOP/s of an FP8 (E4M3) product with bfloat16 output."""
    size = 8192
    a = torch.ones((size, size), device="cuda").to(torch.float8_e4m3fn)
    b = torch.ones((size, size), device="cuda").to(torch.float8_e4m3fn).t()
    one = torch.ones((), device="cuda")
    seconds = fastest(lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16), finish, limit)
    return 2.0 * size**3 / seconds


def copying(torch: Any, device: str, finish: Work, limit: float, timed: Timer = fastest) -> float:
    """Returns the bytes/s, read and written, of a copy too large for any cache."""
    source = torch.ones(LARGEST // 4, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2.0 * (LARGEST // 4) / timed(lambda: target.copy_(source), finish, limit)


def launching(torch: Any, device: str, finish: Work, limit: float, timed: Timer = fastest) -> float:
    """Returns the seconds of one tiny kernel in a long sequence."""
    value = torch.ones(16, device=device)

    def chain() -> None:
        for _ in range(CHAIN):
            value.mul_(1.0)

    return timed(chain, finish, limit) / CHAIN


def to_host(torch: Any, finish: Work, limit: float) -> float:
    """Returns the bytes/s from pinned host memory to the device."""
    source = torch.ones(LARGEST // 4, dtype=torch.uint8).pin_memory()
    target = torch.empty(LARGEST // 4, dtype=torch.uint8, device="cuda")
    return LARGEST // 4 / fastest(lambda: target.copy_(source, non_blocking=True), finish, limit)


def to_neighbour(torch: Any, finish: Work, limit: float) -> float:
    """Returns the bytes/s from the first GPU to the second."""
    source = torch.ones(LARGEST // 4, dtype=torch.uint8, device="cuda:0")
    target = torch.empty(LARGEST // 4, dtype=torch.uint8, device="cuda:1")
    return LARGEST // 4 / fastest(lambda: target.copy_(source), finish, limit)

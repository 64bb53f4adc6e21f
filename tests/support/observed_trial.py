"""Runs trials with an observer of its own beside the meter: run by the training interpreter.

``python tests/support/observed_trial.py DIR...`` runs the trial of each DIR, one after another in this process,
and writes ``DIR/spans.jsonl``: what it saw by wrapping the frameworks' classes, sharing no code with
the meter. Times are ``time.time()``, as ``CycleRecord.started`` is.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

SPANS: list[dict[str, Any]] = []


def observe(owner: type, name: str, label: str, condition: Any = lambda: True) -> None:
    inner = getattr(owner, name)

    @functools.wraps(inner)
    def observed(*args: Any, **kwargs: Any) -> Any:
        if not condition():
            return inner(*args, **kwargs)
        started = time.time()
        try:
            return inner(*args, **kwargs)
        finally:
            SPANS.append({"label": label, "started": started, "ended": time.time()})

    setattr(owner, name, observed)


def count_tokens(generation_mixin: type) -> None:
    """Completion tokens straight from what ``generate`` returns: up to and with the first end of sequence."""
    inner = generation_mixin.generate

    @functools.wraps(inner)
    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = inner(self, *args, **kwargs)
        width = kwargs["input_ids"].shape[1]
        for row, mask in zip(output.tolist(), kwargs["attention_mask"].tolist(), strict=True):
            completion = row[width:]
            tokens = completion.index(1) + 1 if 1 in completion else len(completion)
            SPANS.append({"label": "row", "started": time.time(), "tokens": tokens, "prompt": sum(mask)})
        return output

    generation_mixin.generate = counted


def watch_forward(trainer_class: type) -> None:
    """Rows and padded width of each update's forward pass, from the attention mask it is given."""
    inner = trainer_class._get_per_token_logps_and_entropies

    @functools.wraps(inner)
    def watched(self: Any, model: Any, ids: Any, mask: Any, keep: Any, *args: Any, **kwargs: Any) -> Any:
        import torch  # noqa: PLC0415  (the training interpreter only)

        rows, width = mask.shape
        span = {"label": "forward", "started": time.time(), "rows": rows, "width": width, "full": int(mask.sum())}
        span.update(grad=torch.is_grad_enabled(), chunk=kwargs.get("batch_size"))
        SPANS.append(span)
        return inner(self, model, ids, mask, keep, *args, **kwargs)

    trainer_class._get_per_token_logps_and_entropies = watched


def watch_waits(meter: type, name: str) -> None:
    """How often a hook of the meter waits: for a disk, a lock, a device."""
    inner = getattr(meter, name)

    @functools.wraps(inner)
    def watched(*args: Any, **kwargs: Any) -> Any:
        started, before = time.time(), resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        try:
            return inner(*args, **kwargs)
        finally:
            waits = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
            SPANS.append({"label": "hook", "name": name, "started": started, "ended": time.time(), "waits": waits})

    setattr(meter, name, watched)


def install() -> None:
    import torch  # noqa: PLC0415
    from accelerate import Accelerator  # noqa: PLC0415
    from accelerate.optimizer import AcceleratedOptimizer  # noqa: PLC0415
    from transformers import Trainer  # noqa: PLC0415
    from transformers.generation import GenerationMixin  # noqa: PLC0415
    from trl import GRPOTrainer  # noqa: PLC0415

    count_tokens(GenerationMixin)
    watch_forward(GRPOTrainer)
    observe(GRPOTrainer, "_generate", "generate")
    observe(GRPOTrainer, "_calculate_rewards", "reward")
    observe(GRPOTrainer, "_get_per_token_logps_and_entropies", "logprob", condition=lambda: not torch.is_grad_enabled())
    observe(GRPOTrainer, "compute_loss", "update")
    observe(Accelerator, "backward", "update")
    observe(Trainer, "_clip_grad_norm", "update")
    observe(AcceleratedOptimizer, "step", "update")


def main(directories: list[str]) -> None:
    path = Path(__file__).resolve().parents[2] / "trainer" / "child" / "start.py"
    spec = importlib.util.spec_from_file_location("start_of_child", path)
    start = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(start)
    start.load_package()
    worker = importlib.import_module(f"{start.PACKAGE}.worker")
    contract = importlib.import_module(f"{start.PACKAGE}.contract")
    install()
    meter = importlib.import_module(f"{start.PACKAGE}.meter").Meter
    for name in ("push", "pop", "look"):
        watch_waits(meter, name)
    ok = True
    for directory in directories:
        SPANS.clear()
        paths = contract.RunPaths(Path(directory))
        ok = worker.run(paths, worker.ResultClaim(paths)).ok and ok
        (paths.root / "spans.jsonl").write_text("".join(json.dumps(span) + "\n" for span in SPANS))
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Loss, gradient and weights of each update, whatever holds them: run by the training interpreter."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any


class Capture:
    """Watches one trainer. The gradient is read when it is complete, before it is clipped."""

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._loss = 0.0
        self._losses: list[float] = []
        self._gradients: list[Any] = []
        self._before = self._weights()

    def install(self) -> None:
        trainer = self._trainer
        compute, clip = trainer.compute_loss, trainer.accelerator.clip_grad_norm_

        @functools.wraps(compute)
        def compute_loss(*args: Any, **kwargs: Any) -> Any:
            loss = compute(*args, **kwargs)
            self._loss += loss.detach().double().item()
            return loss

        @functools.wraps(clip)
        def clip_grad_norm(*args: Any, **kwargs: Any) -> Any:
            self._update(lambda parameter: parameter.grad)
            return clip(*args, **kwargs)

        trainer.compute_loss = compute_loss
        if trainer.is_deepspeed_enabled:
            trainer.add_callback(_at_the_start(self._watch_deepspeed))
        else:
            trainer.accelerator.clip_grad_norm_ = clip_grad_norm

    def _watch_deepspeed(self) -> None:
        """DeepSpeed steps inside ``backward``; its gradients are in pieces until they are asked for."""
        from deepspeed.utils import safe_get_full_grad  # noqa: PLC0415

        engine = self._trainer.model_wrapped
        step = engine.step

        @functools.wraps(step)
        def observed(*args: Any, **kwargs: Any) -> Any:
            if engine.is_gradient_accumulation_boundary():
                self._update(safe_get_full_grad)
            return step(*args, **kwargs)

        engine.step = observed

    def save(self, path: Path) -> None:
        """One row for each update; every rank calls it, the first one writes."""
        import numpy  # noqa: PLC0415

        after = self._weights()
        if self._trainer.accelerator.process_index == 0:
            numpy.savez(
                path,
                losses=numpy.array(self._losses),
                gradients=numpy.stack(self._gradients).astype(numpy.float32),
                step=(after - self._before).astype(numpy.float32),
            )

    def _update(self, gradient: Any) -> None:
        import torch  # noqa: PLC0415

        losses = self._trainer.accelerator.gather(torch.tensor([self._loss], dtype=torch.float64))
        self._losses.append(float(losses.mean()))
        self._loss = 0.0
        parts = [gradient(parameter) for _, parameter in self._named()]
        self._gradients.append(torch.cat([part.detach().double().flatten() for part in parts]).cpu().numpy())

    def _weights(self) -> Any:
        import torch  # noqa: PLC0415

        with whole(self._named()):
            return torch.cat([p.detach().double().flatten() for _, p in self._named()]).cpu().numpy()

    def _named(self) -> list[tuple[str, Any]]:
        model = self._trainer.accelerator.unwrap_model(self._trainer.model)
        return sorted(model.named_parameters())


def _at_the_start(act: Any) -> Any:
    """A callback that calls ``act`` when the trainer has wrapped its model."""
    from transformers import TrainerCallback  # noqa: PLC0415

    class Start(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            act()

    return Start()


def whole(named: Any) -> Any:
    """Parameters that ZeRO-3 has cut up, put together for the while; others as they are."""
    import contextlib  # noqa: PLC0415

    if not any(hasattr(parameter, "ds_id") for _, parameter in named):
        return contextlib.nullcontext()
    import deepspeed  # noqa: PLC0415

    return deepspeed.zero.GatheredParameters([parameter for _, parameter in named])

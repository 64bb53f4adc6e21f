"""Where the gradient is clipped: in methods of the trainer since transformers 5, before that in accelerate."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from trainer.child.contract import Phase
from trainer.child.frameworks.hf_trainer.clipping import METHODS, wrap_clipping


class Meter:
    """Says which phase a call was counted as."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Phase]] = []

    def wrap(self, function: Any, phase: Phase) -> Any:
        def wrapped() -> Any:
            self.seen.append((function(), phase))

        return wrapped


@pytest.mark.parametrize("own", [METHODS, ()], ids=["transformers-5", "transformers-4"])
def test_clipping_is_a_part_of_the_update_once(own: tuple[str, ...]) -> None:
    meter: Any = Meter()
    accelerator = SimpleNamespace(clip_grad_norm_=lambda: "accelerate's")
    trainer = SimpleNamespace(accelerator=accelerator, **{name: lambda name=name: name for name in own})
    wrap_clipping(trainer, meter)
    for name in own:
        getattr(trainer, name)()
    accelerator.clip_grad_norm_()
    assert meter.seen == [(name, Phase.UPDATE) for name in own or ["accelerate's"]]

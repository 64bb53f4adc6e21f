"""Replaces pycosat if it could not be compiled, so that the rest of reasoning-gym can be imported."""

from __future__ import annotations

from typing import Any, NoReturn


def _missing(*_: Any, **__: Any) -> NoReturn:
    raise ImportError("this task needs pycosat, which needs a C compiler: install one, then pip install pycosat")


solve = itersolve = _missing

"""Pages of a list by keyset: a cursor says after what to go on, so nothing is missed or shown twice as rows arrive."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from fastapi.exceptions import RequestValidationError

Item = TypeVar("Item")
Key = tuple[float, ...]


def page(
    items: Sequence[Item], key: Callable[[Item], Key], limit: int, cursor: str | None
) -> tuple[Sequence[Item], str | None]:
    """Up to ``limit`` items after ``cursor``, and the cursor of what follows (``None`` at the end).

    Args:
        items: sorted by ``key``.
        key: no two items have the same.
        limit: at least 1.
        cursor: as returned here before.

    Raises:
        RequestValidationError: it is no cursor of this list.
    """
    rest = list(items)
    if cursor is not None:
        after = _decoded(cursor, len(key(rest[0])) if rest else None)
        rest = [item for item in rest if key(item) > after]
    shown = rest[:limit]
    return shown, _encoded(key(shown[-1])) if len(rest) > limit else None


def _encoded(key: Key) -> str:
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode().rstrip("=")


def _decoded(cursor: str, length: int | None) -> Key:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        values = json.loads(text, parse_constant=_refused)
    except (ValueError, binascii.Error, RecursionError):
        raise _bad(cursor) from None
    numbers = isinstance(values, list) and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    if not numbers or (length is not None and len(values) != length):
        raise _bad(cursor)
    return tuple(values)


def _refused(word: str) -> float:
    raise ValueError(word)


def _bad(cursor: str) -> RequestValidationError:
    message = "this is no cursor of this list; take `next_cursor` of the page before"
    return RequestValidationError([{"type": "cursor", "loc": ("query", "cursor"), "msg": message, "input": cursor}])

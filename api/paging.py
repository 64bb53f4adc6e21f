"""Pages of a list by keyset: a cursor holds the last item's key, so new rows cause no gaps or repeats."""

from __future__ import annotations

import base64
import binascii
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from fastapi import Request
from fastapi.exceptions import RequestValidationError

Item = TypeVar("Item")
Key = tuple[float, ...]


def page(
    items: Sequence[Item], key: Callable[[Item], Key], limit: int, cursor: str | None, order: str = ""
) -> tuple[Sequence[Item], str | None]:
    """Returns up to ``limit`` items after ``cursor``, and the cursor of the next page (``None`` at the end).

    Args:
        items: sorted by ``key``.
        key: unique for each item, always of the same length.
        limit: at least 1.
        order: name of the order; a cursor of another order is refused.

    Raises:
        RequestValidationError: the cursor is not of this list.
    """
    rest = after(items, key, cursor, order)
    shown = rest[:limit]
    return shown, cursor_of(key(shown[-1]), order) if len(rest) > limit else None


def after(items: Sequence[Item], key: Callable[[Item], Key], cursor: str | None, order: str = "") -> Sequence[Item]:
    """Returns the items after ``cursor``; arguments and errors as for ``page``."""
    if cursor is None:
        return items
    return items[bisect_right(items, _decoded(cursor, len(key(items[0])) if items else None, order), key=key) :]


def cursor_of(key: Key, order: str = "") -> str:
    """Returns the cursor to the items after the item with this key."""
    value: list[object] = [order, *key] if order else list(key)
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def next_link(request: Request, cursor: str | None) -> dict[str, str]:
    """Returns the ``Link`` header to the next page (RFC 8288); empty without one."""
    if cursor is None:
        return {}
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {"Link": f'<{request.url.path}?{urlencode([*kept, ("cursor", cursor)])}>; rel="next"'}


def _decoded(cursor: str, length: int | None, order: str) -> Key:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        values = json.loads(text, parse_constant=_refused)
    except (ValueError, binascii.Error, RecursionError):
        raise _bad(cursor) from None
    if not isinstance(values, list) or (order and values[:1] != [order]):
        raise _bad(cursor)
    numbers = values[1:] if order else values
    if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in numbers):
        raise _bad(cursor)
    if length is not None and len(numbers) != length:
        raise _bad(cursor)
    return tuple(numbers)


def _refused(word: str) -> float:
    raise ValueError(word)


def _bad(cursor: str) -> RequestValidationError:
    message = "this is no cursor of this list; take `next_cursor` of the page before"
    return RequestValidationError([{"type": "cursor", "loc": ("query", "cursor"), "msg": message, "input": cursor}])

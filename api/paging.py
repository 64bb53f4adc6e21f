"""Pages of a list: a cursor names the last item of the previous page, so new items cause no gaps or repeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import urlencode

from fastapi import Request
from fastapi.exceptions import RequestValidationError

Item = TypeVar("Item")


def page(
    items: Sequence[Item], name: Callable[[Item], object], limit: int, cursor: str | None
) -> tuple[Sequence[Item], str | None]:
    """Returns up to ``limit`` items after ``cursor``, and the cursor of the next page (``None`` at the end).

    Raises:
        RequestValidationError: no item has this name.
    """
    rest = after(items, name, cursor)
    return rest[:limit], str(name(rest[limit - 1])) if len(rest) > limit else None


def after(items: Sequence[Item], name: Callable[[Item], object], cursor: str | None) -> Sequence[Item]:
    """Returns the items after the one that ``cursor`` names; arguments and errors as for ``page``."""
    if cursor is None:
        return items
    place = next((at for at, item in enumerate(items) if str(name(item)) == cursor), None)
    if place is None:
        message = "this is no cursor of this list; take `next_cursor` of the page before"
        error = {"type": "cursor", "loc": ("query", "cursor"), "msg": message, "input": cursor}
        raise RequestValidationError([error])
    return items[place + 1 :]


def next_link(request: Request, cursor: str | None) -> dict[str, str]:
    """Returns the ``Link`` header to the next page (RFC 8288); empty without one."""
    if cursor is None:
        return {}
    query = [(name, value) for name, value in request.query_params.multi_items() if name != "cursor"]
    return {"Link": f'<{request.url.path}?{urlencode([*query, ("cursor", cursor)])}>; rel="next"'}

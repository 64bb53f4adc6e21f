"""Another tag for a process that was forked, not started: where the kernel shows the environment from.

``/proc/PID/environ`` shows the memory the process was given at its start, whatever ``os.environ`` holds by now.
So the tag is written into that memory, in the room the tag of the start leaves.
"""

from __future__ import annotations

import ctypes
import os

from .began import stat_fields
from .contract import TAG_VARIABLE

ENV_START, ENV_END = 47, 48
"""Of what ``stat_fields`` gives: ``env_start`` and ``env_end`` of proc(5)."""


class NoRoomError(ValueError):
    """The tag cannot be written where it would be looked for."""


def retag(tag: str) -> None:
    """Let this process, and all it starts, carry ``tag``.

    Raises:
        NoRoomError: the process was started without a tag, or with one shorter than this.
    """
    fields = stat_fields(os.getpid())
    start, end = (int(fields[ENV_START]), int(fields[ENV_END])) if len(fields) > ENV_END else (0, 0)
    if not 0 < start < end:
        raise NoRoomError("the kernel does not say where the environment is")
    name = b"\0" + TAG_VARIABLE.encode() + b"="
    memory = b"\0" + ctypes.string_at(start, end - start)
    at = memory.find(name)
    if at < 0:
        raise NoRoomError("this process was started without a tag")
    value = at + len(name)
    room = memory.index(b"\0", value) - value
    new = tag.encode()
    if len(new) > room:
        raise NoRoomError("the tag %r is longer than the %d bytes there are" % (tag, room))
    ctypes.memmove(start + value - 1, new + b"\0" * (room - len(new)), room)
    os.environ[TAG_VARIABLE] = tag

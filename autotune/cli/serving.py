"""``autotune serve``: the REST API and the page, until Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from autotune.cli import console
from autotune.cli.options import HomeOption, settings_for


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="Exactly this port, 0 for any free one; else 7788 or the next free one.", metavar="N"),
    ] = None,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token readers need, instead of $AUTOTUNE_TOKEN.", metavar="FILE")
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further host name readers may use; may be repeated.", metavar="NAME")
    ] = None,
    allow_control: Annotated[
        bool, typer.Option("--allow-control", help="Let readers pause, stop and retry by POST; needs a token.")
    ] = False,
    home: HomeOption = None,
) -> None:
    """Serve the studies as a page and as JSON, until Ctrl-C.

    Read-only, and only on this machine unless --host says otherwise; then readers need a token: programs send
    it, a browser is let in by a code that is printed here and works once. Any number of readers, while a study
    runs or afterwards. The address is printed first.

    \b
    Examples:
      autotune serve
      autotune serve --port 9000
      AUTOTUNE_TOKEN=... autotune serve --host 0.0.0.0
      curl http://127.0.0.1:7788/api/v1/studies
      autotune best --url http://127.0.0.1:7788
    """
    room = import_module("api.serving")
    settings = settings_for(home)
    with ending_quietly():
        address = room.Address(host, port, token_file, tuple(allow_host or ()), allow_control)
        opened = room.Serving(settings, console.say, address)
        try:
            console.line(opened.url)
            console.say(f"serving the studies in {settings.home.root}; Ctrl-C ends")
            opened.invite()
            if not import_module("api.access").is_loopback(host):
                console.say("the token and the figures travel unencrypted; beyond a trusted network use a TLS proxy")
            opened.wait()
        finally:
            opened.close()


class _EndedError(Exception):
    """A signal asked for the end."""


@contextmanager
def ending_quietly() -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP end the block without a word: that is how a server is stopped."""

    def end(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal's shape
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise _EndedError

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    ignored = [n for n in numbers if signal.getsignal(n) is signal.SIG_IGN]  # by nohup
    before = {number: signal.signal(number, end) for number in numbers if number not in ignored}
    try:
        yield
    except _EndedError:
        return
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""``autotune serve``: serves the REST API and the page, until Ctrl-C."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli import console
from autotune.cli.options import HomeOption, settings_for
from autotune.cli.stopping import handling
from autotune.settings import Settings

if TYPE_CHECKING:
    from api.serving import Address

NICE = 10
"""Niceness of a separate server: trials get about 90 % of a contended core, and the pages 10 %."""


def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.", metavar="ADDRESS")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(help="Port; 0 is any free one. Default: 7788, or the next free one.", metavar="N"),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with the access token of readers, instead of $AUTOTUNE_TOKEN.", metavar="FILE"),
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="Another host name that readers use; may be repeated.", metavar="NAME")
    ] = None,
    allow_control: Annotated[
        bool, typer.Option("--allow-control", help="Let readers pause, stop and retry by POST; needs a token.")
    ] = False,
    nice: Annotated[
        int,
        typer.Option(
            min=0, max=19, help="Raise the server's niceness to at least N; 0 leaves it unchanged.", metavar="N"
        ),
    ] = NICE,
    home: HomeOption = None,
) -> None:
    """Serves the studies as a web page and as JSON, until Ctrl-C.

    Prints its address first. It is read-only, and listens on this machine only unless --host names an address.
    With --host, readers need a token: programs send it, and a browser uses a one-time code that is printed here.
    Any number of readers may connect, during a study or afterwards. The server runs at a low priority (--nice).

    \b
    Examples:
      autotune serve
      autotune serve --port 9000
      AUTOTUNE_TOKEN=... autotune serve --host 0.0.0.0
      curl http://127.0.0.1:7788/api/v1/studies
      autotune best --url http://127.0.0.1:7788
    """
    from api.serving import Address

    give_way(nice)
    _serve(settings_for(home), Address(host, port, token_file, tuple(allow_host or ()), allow_control))


def _serve(settings: Settings, address: Address) -> None:
    from api.listening import is_loopback
    from api.serving import Serving

    with ending_quietly():
        opened = Serving(settings, console.say, address)
        try:
            console.line(opened.url)
            place = settings.home.root if settings.own_database else settings.database_shown
            console.say(f"serving the studies in {place}; Ctrl-C ends")
            opened.invite()
            if not is_loopback(address.host):
                console.say("the token and the figures travel unencrypted; beyond a trusted network use a TLS proxy")
            opened.wait()
        finally:
            opened.close()


def give_way(least: int) -> None:
    """Raises the niceness of this process and its later threads to at least ``least`` (0 to 19), if the platform has
    one. Not for processes that start trials, which would inherit the niceness."""
    if hasattr(os, "nice"):
        os.nice(max(0, least - os.nice(0)))


class _EndedError(Exception):
    """Raised by a signal handler to end the server."""


@contextmanager
def ending_quietly() -> Iterator[None]:
    """Ends the block without a message at SIGINT, SIGTERM or SIGHUP, which stop a server."""

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def end(*_: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise _EndedError

    heard = [n for n in numbers if signal.getsignal(n) is not signal.SIG_IGN]  # as nohup has it
    with suppress(_EndedError), handling(end, heard):
        yield

"""Serves the studies of a home folder, beside a tuner or separately. Heavy packages are imported only then."""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path

from autotune.errors import AutotuneError, MachineError
from autotune.settings import DEBUG_VARIABLE, Settings
from trainer.child.contract import write_atomic

LOOPBACK = "127.0.0.1"
LINGER_S = 15.0
"""Most seconds that a study's server stays up for open pages after the study has ended."""

Talk = Callable[[str], None]


@dataclass(frozen=True)
class Address:
    """Address to listen on, and the rules of access."""

    host: str = LOOPBACK
    port: int | None = None
    """Exactly this port, or any free one for 0; ``None``: 7788 or the next free one."""
    token_file: Path | None = None
    names: tuple[str, ...] = ()
    """Further host names that the server answers to."""
    allow_control: bool = False
    """True if readers may send requests to a running tuner; needs a token, on loopback too."""


@contextmanager
def serving(settings: Settings, talk: Talk, port: int | None = None) -> Iterator[str | None]:
    """Yields the URL of the server that ``page_server`` starts."""
    with page_server(settings, talk, port) as server:
        yield None if server is None else server.url


@contextmanager
def page_server(settings: Settings, talk: Talk, port: int | None = None) -> Iterator[Serving | None]:
    """Serves the page beside a running study, on loopback: yields the server, or ``None`` if there can be none.

    Errors of the server never reach the block; the server ends with the block.

    Args:
        settings: the home folder and database, read through a separate connection.
        talk: receives one line on why there is no page.
        port: this port, or any free one for 0; ``None``: 7788 or the next free one.
    """
    try:
        opened = Serving(settings, talk, Address(port=port))
    except (AutotuneError, ImportError, OSError, RuntimeError) as error:
        talk(f"no page is served: {error}")
        yield None
        return
    try:
        opened.invite()
        yield opened
    finally:
        opened.close()


class Serving:
    """A server that answers from its creation until ``close``."""

    def __init__(self, settings: Settings, talk: Talk, address: Address) -> None:
        """Starts the server. Raises ``UsageError`` (address or token), ``MachineError`` (missing package)."""
        require_packages()
        from api.app import create_app
        from api.cache import StudyCache
        from api.guard.access import access_for
        from api.guard.codes import Codes
        from api.listening import listen, url_of
        from api.server import ThreadServer
        from autotune.wiring import open_to_read

        access = access_for(address.host, os.environ, address.token_file, address.names, control=address.allow_control)
        bound = listen(address.host, address.port)
        self.url = url_of(bound, address.host)
        self._cache = StudyCache(settings, partial(open_to_read, settings))
        crashed = Crashes(settings, talk)
        self._needs_code = access.token is not None
        self._codes = Codes(lambda code: talk(self._invitation(code)))
        app = create_app(
            self._cache, access, crashed, version(), allow_control=address.allow_control, codes=self._codes
        )
        self._server = ThreadServer(app, bound)
        self._server.start()

    def invite(self) -> None:
        """Announces a code for a browser if one is needed; the login page announces later ones."""
        if self._needs_code:
            self._codes.invite()

    def _invitation(self, code: str) -> str:
        from api.guard.codes import LIFE_S

        minutes = round(LIFE_S / 60)
        return f"log in at {self.url}/login with the code {code} (once, within {minutes} minutes)"

    def wait(self) -> None:
        """Waits until the server has ended by itself."""
        self._server.wait()

    def linger(self, most_s: float = LINGER_S) -> None:
        """Waits until each page that follows a study has received its end and closed its stream."""
        end = time.monotonic() + most_s
        while self._cache.followers() and time.monotonic() < end:
            time.sleep(0.1)

    def close(self) -> None:
        """Stops the server, within a few seconds; a second call does nothing."""
        self._server.stop()
        self._cache.close()


class Crashes:
    """Saves the first unexpected error as a crash file and reports it once: a polling page would repeat it."""

    def __init__(self, settings: Settings, talk: Talk) -> None:
        self._settings = settings
        self._talk = talk
        self._said = False

    def __call__(self, error: Exception) -> None:
        if self._said:
            return
        self._said = True
        self._talk(f"the page met an unexpected {type(error).__name__}; {saved(error, self._settings)}")


def saved(error: Exception, settings: Settings) -> str:
    """Saves the traceback of an unexpected error as a crash file, and returns a sentence with its path."""
    path = settings.home.crash_file()
    try:
        write_atomic(path, "".join(traceback.format_exception(error)))
    except OSError as problem:
        return f"the details could not be saved ({problem.strerror or problem}); {DEBUG_VARIABLE}=1 shows them"
    return f"the details are in {path}"


def require_packages() -> None:
    """Raises ``MachineError`` that names a missing package and the command to install it."""
    for name in ("fastapi", "uvicorn", "jinja2"):
        try:
            import_module(name)
        except ImportError as error:
            raise MachineError(
                f"the page needs {name} ({error}); `pip install {name}` into the tool's environment"
            ) from None


def version() -> str:
    """Returns the version of the installed distribution."""
    try:
        return metadata.version("grpo-autotune")
    except metadata.PackageNotFoundError:
        return "not installed (run from its source)"

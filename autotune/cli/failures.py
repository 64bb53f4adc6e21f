"""Converts every error to one line on stderr and an exit code; by default never shows a traceback."""

from __future__ import annotations

import errno
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path

from autotune.cli import console, exit_codes
from autotune.cli.options import forget_settings, settings_in_use
from autotune.errors import AutotuneError, FaultsError, MachineError, UsageError
from autotune.settings import Settings, read_settings
from autotune.wording.text import bounded, clean
from search_spaces.errors import SpaceError

_FULL = (MachineError, "no space is left on the disk; free some, or name another folder")
_MENDABLE: Mapping[int | None, tuple[type[AutotuneError], str]] = {
    errno.ENAMETOOLONG: (UsageError, "a file's name may have 255 bytes at most"),
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: (UsageError, "you may not read or write it; name another folder, or ask its owner"),
    errno.EROFS: (MachineError, "the disk can only be read; name another folder"),
    errno.EIO: (MachineError, "the disk failed (Input/output error); mend it, or name another folder"),
}
"""Error number -> error class and sentence for the user."""


def exit_code_of(run: Callable[[], None]) -> int:
    """Runs a command line, and returns the exit code of its error, if any.

    Our own errors have a code; ``SpaceError`` has that of ``UsageError``. Any other error is a fault of the program:
    its traceback goes to a crash file.
    """
    forget_settings()
    try:
        run()
    except SystemExit as ended:
        return _code(ended)
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except AutotuneError as error:
        return _expected(error, error.exit_code)
    except SpaceError as error:
        return _expected(error, UsageError.exit_code)
    except OSError as error:
        return _of_the_files(error)
    except Exception as error:
        return _unexpected(error)
    return 0


def _code(ended: SystemExit) -> int:
    if ended.code is None:
        return 0
    if isinstance(ended.__context__, BrokenPipeError):  # `| head` reads no further
        return exit_codes.SIGNAL + signal.SIGPIPE
    if isinstance(ended.code, int):
        return ended.code
    console.say(f"autotune: {clean(ended.code)}")
    return exit_codes.INTERNAL


def _expected(error: Exception, code: int) -> int:
    if _settings().debug:
        traceback.print_exception(error, file=sys.stderr)
    if isinstance(error, FaultsError):
        console.say(f"autotune: {clean(error.name)} has {len(error.sentences)} faults:")
        for sentence in error.sentences:
            console.say(f"  {bounded(clean(sentence))}")
        return code
    console.say(f"autotune: {bounded(clean(error)) or type(error).__name__}")
    return code


def _of_the_files(error: OSError) -> int:
    """Reports a file error and returns its exit code; errors outside ``_MENDABLE`` are unexpected."""
    if error.errno == errno.ENOENT and os.readlink("/proc/self/cwd").endswith(" (deleted)"):
        return _expected(UsageError("the folder that this runs in is gone; change to another"), UsageError.exit_code)
    if error.errno not in _MENDABLE:
        return _unexpected(error)
    kind, sentence = _MENDABLE[error.errno]
    return _expected(kind(f"{sentence}: {error.filename or _settings().home.root}"), kind.exit_code)


def _unexpected(error: Exception) -> int:
    from api.serving import saved

    settings = _settings()
    if settings.debug:
        traceback.print_exception(error, file=sys.stderr)
    where = saved(error, settings)
    console.say(f"autotune: unexpected {type(error).__name__}: {clean(error) or 'no message'}; {where}")
    return exit_codes.INTERNAL


def _settings() -> Settings:
    """Returns the settings in use; if the environment's are invalid, those of a home folder in the temporary folder."""
    try:
        return settings_in_use()
    except UsageError:
        return read_settings(environ={}, home=Path(tempfile.gettempdir()) / "autotune")

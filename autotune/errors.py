"""Every error a user can meet. The docstring says when; the message says what to do about it."""

from __future__ import annotations


class AutotuneError(Exception):
    """Base of all errors that are ours; the CLI prints its message and exits with ``exit_code``."""

    exit_code = 1


class UsageError(AutotuneError):
    """Bad input: a file, line or key that is not what was expected."""

    exit_code = 2


class StudyDiffersError(UsageError):
    """A study of this name exists with another specification."""


class MachineError(AutotuneError):
    """This machine lacks something a trial needs: an interpreter, a package, disk, a free GPU."""

    exit_code = 5


class StoreError(AutotuneError):
    """The database could not be read or written."""

    exit_code = 6


class UnfitDatabaseError(StoreError):
    """The database that was named is none that can be used; nothing was done."""

    exit_code = 2


class NotFoundError(StoreError):
    """No such study or trial."""

    exit_code = 2


class AlreadyExistsError(StoreError):
    """A study of this name exists."""


class FinishedTrialError(StoreError):
    """A finished trial never changes."""


class StudyBusyError(AutotuneError):
    """Another tuner is running this study."""

    exit_code = 5

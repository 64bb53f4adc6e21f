"""Every error a user can meet. The docstring says when; the message says what to do about it."""

from __future__ import annotations

from collections.abc import Sequence


class AutotuneError(Exception):
    """Base of all errors that are ours; the CLI prints its message and exits with ``exit_code``."""

    exit_code = 1


class UsageError(AutotuneError):
    """Bad input: a file, line or key that is not what was expected."""

    exit_code = 2


class StudyDiffersError(UsageError):
    """A study of this name exists with another specification."""


class FaultsError(UsageError):
    """A file of the user has several faults, each of which has a sentence."""

    def __init__(self, name: str, sentences: Sequence[str]) -> None:
        super().__init__(" ".join(sentence if sentence.endswith(".") else f"{sentence}." for sentence in sentences))
        self.name = name
        self.sentences = tuple(sentences)


class MachineError(AutotuneError):
    """This machine lacks something a trial needs: an interpreter, a package, disk, a free GPU."""

    exit_code = 5


class StoreError(AutotuneError):
    """The database could not be read or written."""

    exit_code = 6


class UnfitDatabaseError(StoreError):
    """The database that was named is none that can be used; nothing was done."""

    exit_code = 2


class NoDatabaseError(UnfitDatabaseError):
    """The database that was named is not there, or holds none of our tables; `autotune start` may make it yet."""


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

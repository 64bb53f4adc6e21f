"""Errors that a user can meet. The docstring states the cause; the message states the remedy."""

from __future__ import annotations

from collections.abc import Sequence


class AutotuneError(Exception):
    """Base of all errors of the tuner; the CLI prints the message and exits with ``exit_code``."""

    exit_code = 1


class UsageError(AutotuneError):
    """Raised for bad input: a file, line or key without the expected value."""

    exit_code = 2


class StudyDiffersError(UsageError):
    """Raised if a study of this name exists with another specification."""


class FaultsError(UsageError):
    """Raised for a user's file with several faults, with one sentence for each."""

    def __init__(self, name: str, sentences: Sequence[str]) -> None:
        super().__init__(" ".join(sentence if sentence.endswith(".") else f"{sentence}." for sentence in sentences))
        self.name = name
        self.sentences = tuple(sentences)


class MachineError(AutotuneError):
    """Raised if this machine lacks something that a trial needs: an interpreter, a package, disk, a free GPU."""

    exit_code = 5


class StoreError(AutotuneError):
    """Raised if the database could not be read or written."""

    exit_code = 6


class UnfitDatabaseError(StoreError):
    """Raised if the named database cannot be used; nothing was done."""

    exit_code = 2


class NoDatabaseError(UnfitDatabaseError):
    """Raised if the named database does not exist, or has none of autotune's tables; `autotune start` may create it."""


class NotFoundError(StoreError):
    """Raised if there is no such study or trial."""

    exit_code = 2


class AlreadyExistsError(StoreError):
    """Raised if a study of this name exists."""


class FinishedTrialError(StoreError):
    """Raised for a change of a finished trial, which never changes."""


class StudyBusyError(AutotuneError):
    """Raised if another tuner is running this study."""

    exit_code = 5

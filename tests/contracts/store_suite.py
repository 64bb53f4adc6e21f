"""What every ``Store`` must do, whatever database is under it.

A test class inherits ``StoreSuite`` and provides the fixture ``store``: an empty, open store, closed
afterwards. ``store_machine`` plays random histories; ``store_processes`` has what takes several processes.
"""

from __future__ import annotations

from tests.contracts.store_records import CopyTests, EventTests, EvidenceTests, LedgerTests, LockTests
from tests.contracts.store_studies import StudyTests
from tests.contracts.store_trials import MeasurementTests, TrialTests

__all__ = ["StoreSuite"]


class StoreSuite(
    StudyTests, TrialTests, MeasurementTests, EventTests, LedgerTests, EvidenceTests, LockTests, CopyTests
):
    """All of it."""

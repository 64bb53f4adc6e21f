"""verl's figures from outside: its own file logger, read into the record types. Not yet run on a GPU."""

from .fields import describe_fields
from .metrics import LIMITS, MetricsError, Plan, cycle_of, read_log, records

__all__ = ["LIMITS", "MetricsError", "Plan", "cycle_of", "describe_fields", "read_log", "records"]

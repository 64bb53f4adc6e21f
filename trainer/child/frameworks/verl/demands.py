"""Finds resources that verl requests and Ray lacks, in the log of Ray's monitor: verl would wait for them for ever.

The monitor writes its whole state every five seconds (``ray/autoscaler/_private/util.py``, ``format_info_string``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Optional

PATIENCE_S = 120.0
"""Seconds after which a pending demand counts as unmet."""
LOOK_EVERY_S = 5.0
TAIL_BYTES = 1 << 15
_STATUS = "Autoscaler status:"
_USE = re.compile(r"^ ([\d.]+)/([\d.]+) (\w+)", re.MULTILINE)
_ASKED = re.compile(r"'(\w+)': ([\d.]+)")


def unmet(log: str) -> str:
    """Returns the demands that free resources cannot meet, and the resources, by the last state in ``log``; else empty.

    Ray is about to meet a demand that free resources cover.
    """
    last = log.rpartition(_STATUS)
    usage, _, demands = last[2].partition("Pending Demands:")
    if not last[1] or not demands:
        return ""
    total = {name: float(whole) for _, whole, name in _USE.findall(usage)}
    free = {name: float(whole) - float(used) for used, whole, name in _USE.findall(usage)}
    waiting = [line.strip() for line in demands.splitlines() if line.startswith(" {") and _exceeds(line, free)]
    if not waiting:
        return ""
    there = " and ".join("%g %s" % (total.get(name, 0.0), name) for name in ("CPU", "GPU"))
    return "%s; Ray counts %s" % (", ".join(waiting), there)


def _exceeds(line: str, free: Dict[str, float]) -> bool:
    wanted = [(name, float(amount)) for name, amount in _ASKED.findall(line)]
    return any(amount > free.get(name, 0.0) for name, amount in wanted)


@dataclass
class RayDemands:
    """Follows one Ray's monitor."""

    folder: Path
    """Ray's ``_temp_dir``."""
    _said: str = ""
    _since: float = 0.0
    _looked: float = float("-inf")

    def stuck(self, now: float) -> str:
        """Returns the part of a sentence on a demand pending for over ``PATIENCE_S``; empty if there is none.

        ``now`` is in monotonic seconds.
        """
        if now - self._looked < LOOK_EVERY_S:
            return ""
        self._looked = now
        said = unmet(_end_of(self._log()))
        if said != self._said:
            self._said, self._since = said, now
        return said if said and now - self._since >= PATIENCE_S else ""

    def _log(self) -> Optional[Path]:
        found: List[Path] = sorted(self.folder.glob("session_[0-9]*/logs/monitor.log"))
        return found[-1] if found else None


def _end_of(path: Optional[Path]) -> str:
    """Returns the last ``TAIL_BYTES`` of a file; empty without a file."""
    if path is None:
        return ""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return stream.read().decode("utf-8", "replace")
    except OSError:
        return ""

"""Limits wrong tokens and codes by address. Only the server's event loop uses it."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

BURST = 10
"""Wrong tries that an address has at once."""
EVERY_S = 6.0
"""Seconds after which an address has one more try."""
ROUNDING_S = 1e-3
MOST_ADDRESSES = 1024
"""Most addresses that are remembered; the longest unseen is dropped first."""


class Throttle:
    """The generic cell rate algorithm (ITU-T I.371) for each address, which stores only one time for each."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, host: str) -> float:
        """Returns the seconds until the address may try again; 0 if it may now."""
        now = self._clock()
        wait = self._due.get(network_of(host), now) - now - (BURST - 1) * EVERY_S
        return wait if wait > ROUNDING_S else 0.0

    def strike(self, host: str) -> float:
        """Records a wrong attempt; returns ``wait_s`` from before it. Attempts during a wait do not extend it."""
        wait = self.wait_s(host)
        if wait == 0:
            address, now = network_of(host), self._clock()
            self._due[address] = max(now, self._due.pop(address, now)) + EVERY_S
            while len(self._due) > MOST_ADDRESSES:
                self._due.popitem(last=False)
        return wait


def network_of(host: str) -> str:
    """Returns the network of an address: itself, for IPv6 its 64-bit network; other text unchanged."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False))
    return str(found)

"""Limits wrong tokens and codes by address. Only the server's event loop uses it."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

BURST = 10
"""Wrong attempts that an address may make at once."""
EVERY_S = 6.0
"""Seconds after which an address may make one more wrong attempt."""
ROUNDING_S = 1e-3
MOST_ADDRESSES = 1024
"""Most addresses that are remembered; the least recently seen is dropped first."""


class Throttle:
    """Rate limit by address: the generic cell rate algorithm (ITU-T I.371), which stores one time for each address."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: OrderedDict[str, float] = OrderedDict()

    def wait_s(self, host: str) -> float:
        """Returns the seconds until the address may try again; 0 if it may now."""
        now = self._clock()
        wait = self._due.get(network_of(host), now) - now - (BURST - 1) * EVERY_S
        return wait if wait > ROUNDING_S else 0.0

    def strike(self, host: str) -> float:
        """Records a wrong attempt; returns ``wait_s`` before it. Attempts during a wait do not extend the wait."""
        wait = self.wait_s(host)
        if wait == 0:
            address, now = network_of(host), self._clock()
            self._due[address] = max(now, self._due.pop(address, now)) + EVERY_S
            while len(self._due) > MOST_ADDRESSES:
                self._due.popitem(last=False)
        return wait


def network_of(host: str) -> str:
    """Returns the part of an address that is limited: an IPv6 /64 network, a mapped IPv4 address, else ``host``."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv6Address):
        return str(found.ipv4_mapped or ipaddress.IPv6Network((found, 64), strict=False))
    return str(found)

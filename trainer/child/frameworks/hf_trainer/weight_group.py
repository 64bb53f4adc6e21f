"""Sets up the process group in which a trial's trainer sends weights to its rollout server."""

from __future__ import annotations

import functools
import os
from typing import Any

from .around import replace

LOOPBACK = "127.0.0.1"
PORT_VARIABLE = "AUTOTUNE_TRIAL_GROUP_PORT"
"""Environment variable with the port, for a trainer that has no setting for a port."""


def meet_at_home(extension: Any) -> None:
    """Makes the process group of a worker extension listen on the loopback, whatever address its client names.

    TRL 0.18's and ms-swift 4.6's clients name 0.0.0.0, and any client of the group's store can load pickles.
    """

    def at_home(init: Any, self: Any, host: str, port: int, world_size: int) -> None:
        del host
        init(self, LOOPBACK, port, world_size)

    replace(extension, "init_communicator", at_home)


def client_at_port(client: Any) -> Any:
    """Passes this trial's ``group_port`` to TRL's ``VLLMClient``; returns the class unchanged if none is set."""
    port = os.environ.get(PORT_VARIABLE)
    return client if port is None else functools.partial(client, group_port=int(port))

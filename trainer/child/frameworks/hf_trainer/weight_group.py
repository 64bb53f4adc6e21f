"""Process group in which a trial's trainer passes weights to its rollout server."""

from __future__ import annotations

import functools
import os
from typing import Any

LOOPBACK = "127.0.0.1"
PORT_VARIABLE = "AUTOTUNE_TRIAL_GROUP_PORT"
"""Variable that names the port to a trainer that has no setting for it."""


def meet_at_home(extension: Any) -> None:
    """The worker extension's group listens on the loopback, whatever address its client names.

    The clients of TRL 0.18 and ms-swift 4.6 name 0.0.0.0, and who reaches the group's store has its pickles loaded.
    """
    own = extension.init_communicator

    @functools.wraps(own)
    def init_communicator(self: Any, host: str, port: int, world_size: int) -> None:
        del host
        own(self, LOOPBACK, port, world_size)

    extension.init_communicator = init_communicator


def client_at_port(client: Any) -> Any:
    """The client's class with the group's port of this trial, where one is told."""
    port = os.environ.get(PORT_VARIABLE)
    return client if port is None else functools.partial(client, group_port=int(port))

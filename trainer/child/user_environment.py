"""The environment variables of the user's own configuration (TRL's ``env:`` mapping)."""

from __future__ import annotations

import os
from typing import Any, Mapping

from .contract import TAG_VARIABLE
from .failures import IllegalSettingError

ENVIRONMENT_KEY = "env"


def put_environment(passthrough: Mapping[str, Any]) -> None:
    """Set them; to be called before the framework is imported, which reads some only then.

    Raises:
        IllegalSettingError: it is no mapping of names to values, or sets what the trial is found by.
    """
    variables = passthrough.get(ENVIRONMENT_KEY) or {}
    if not isinstance(variables, dict):
        raise IllegalSettingError("env: expected a mapping of names to values, got %r" % (variables,))
    for name, value in variables.items():
        if name == TAG_VARIABLE or isinstance(value, (dict, list)):
            raise IllegalSettingError("env: %s cannot be set to %r" % (name, value))
    os.environ.update({str(name): str(value) for name, value in variables.items()})


def meet_on_loopback() -> None:
    """Gloo of ranks on one machine speaks there; to be called before torch is imported.

    By default it listens on whatever the host's name resolves to, or fails if it does not.
    """
    here = os.environ.get("GROUP_WORLD_SIZE", "1") == "1" or os.environ.get("MASTER_ADDR", "").startswith("127.")
    if "LOCAL_RANK" in os.environ and here:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def restore_environment(before: Mapping[str, str]) -> None:
    """``os.environ`` as it was."""
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)

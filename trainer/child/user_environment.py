"""The environment variables of the user's own configuration (TRL's ``env:`` mapping)."""

from __future__ import annotations

import json
import os
from typing import Any, Mapping

from .contract import TAG_VARIABLE, TrialSpec
from .failures import IllegalSettingError

ENVIRONMENT_KEY = "env"


def put_environment(passthrough: Mapping[str, Any]) -> None:
    """Sets the user's variables; call it before the framework is imported, because some are read at import only.

    Raises IllegalSettingError for no mapping of names to values, or a variable that identifies the trial.
    """
    variables = passthrough.get(ENVIRONMENT_KEY) or {}
    if not isinstance(variables, dict):
        raise IllegalSettingError("env: expected a mapping of names to values, got %r" % (variables,))
    for name, value in variables.items():
        if name == TAG_VARIABLE or isinstance(value, (dict, list)):
            raise IllegalSettingError("env: %s cannot be set to %r" % (name, value))
    os.environ.update({str(name): str(value) for name, value in variables.items()})


def import_key(spec: TrialSpec, *more: Any) -> str:
    """Returns a key that is equal for specs with the same imports; ``more`` is the framework's own part."""
    uses_vllm, environment = bool(spec.settings.get("use_vllm")), spec.passthrough.get(ENVIRONMENT_KEY) or {}
    return json.dumps((spec.framework, spec.device, uses_vllm, more, environment), sort_keys=True, default=str)


def put_trial_environment(spec: TrialSpec) -> None:
    """Sets the variables that transformers and Gloo read. Raises IllegalSettingError as ``put_environment``."""
    put_environment(spec.passthrough)
    os.environ["HF_HUB_OFFLINE"] = "1"  # a folder or a cached commit needs no hub; one that is down must not matter
    if spec.device == "cpu":
        meet_on_loopback()


def meet_on_loopback() -> None:
    """Makes Gloo use the loopback between ranks on one machine; call it before torch is imported.

    By default Gloo listens at the address of the host's name, or fails if the name has none.
    """
    here = os.environ.get("GROUP_WORLD_SIZE", "1") == "1" or os.environ.get("MASTER_ADDR", "").startswith("127.")
    if "LOCAL_RANK" in os.environ and here:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")


def restore_environment(before: Mapping[str, str]) -> None:
    """Restores ``os.environ`` to ``before``."""
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)

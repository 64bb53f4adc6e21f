"""Questions to the training interpreter before a study: child commands, with answers cached between starts."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Any, Protocol

from autotune.domain import RewardSpec
from autotune.errors import MachineError, UsageError
from autotune.frameworks.environments import TRL, Environment
from autotune.machine.clock import SystemClock
from autotune.running.local import home_tag
from autotune.running.tool import run_tool
from trainer.child.contract import (
    ContractError,
    FailureReason,
    Result,
    RunPaths,
    dumps,
    encode,
    read_result,
    write_atomic,
)

PROBE_TIMEOUT_S = 180.0
SPEED_TIMEOUT_S = 60.0
"""Time limit of the hardware probe in seconds; it measures for 12 s and first imports torch."""
PRESENT_SPEED_S = 3.0
"""Seconds that the probe of the present speed measures."""
PREPARE_TIMEOUT_S = 600.0
DOWNLOAD_TIMEOUT_S = 6 * 3600.0
"""Time limit in seconds of a preparation that may download a model or a dataset; it is outside the budget."""

BAD_INPUT = (FailureReason.ILLEGAL, FailureReason.REWARD_ERROR)


class Describes(Protocol):
    """Lists the keys that a framework takes."""

    def known_fields(self, framework: str = "trl") -> Mapping[str, Any] | None:
        """Returns the framework's keys as ``Interpreter.known_fields`` does."""

    def describe(self, keys: Mapping[str, Any], framework: str = "trl") -> Result:
        """Describes the framework's keys as ``Interpreter.describe`` does."""


@dataclass(frozen=True)
class Interpreter:
    """A training interpreter, and the home folder in which its answers are cached."""

    python: str
    home: Path

    def probe(
        self, rewards: Sequence[RewardSpec] = (), packages: Sequence[str] = (), environment: Environment = TRL
    ) -> Result:
        """Returns packages and hardware of the interpreter. Raises ``MachineError`` if it cannot run a trial."""
        result = self._sound(self.ask("probe", _questions(rewards, packages, environment)), self._another())
        version, packages_there = str(result.data.get("python", "")), result.data.get("packages") or {}
        why = environment.problem(self.python, version, packages_there)
        if why:
            raise MachineError(why + self._another())
        return result

    def describe(self, keys: Mapping[str, Any], framework: str = "trl") -> Result:
        """Returns the framework's keys; not ok with reason ILLEGAL if it refuses these. Raises ``MachineError``."""
        of = _framework(framework)
        result = self.ask("describe", {"config": dict(keys), **of}, PREPARE_TIMEOUT_S)
        if "fields" not in result.data:
            return self._sound(result)
        known = Result(ok=True, data={"fields": result.data["fields"]})
        write_atomic(RunPaths(self._directory("describe", of)).result, dumps(known))
        return result if result.reason is FailureReason.ILLEGAL else self._sound(result)

    def known_fields(self, framework: str = "trl") -> Mapping[str, Any] | None:
        """Returns the framework's keys from an earlier ``describe``; ``None`` without one."""
        found = self._kept(self._directory("describe", _framework(framework)))
        return None if found is None else found.data["fields"]

    def speed(self, hardware: Mapping[str, Any], device: str = "") -> Result:
        """Measures the speed of the first device (``Result.data`` of the child's ``probe_speed``); cached.

        Args:
            hardware: description of the machine; another one is measured again.
            device: ``cpu`` measures the CPU even if there is a GPU.

        Returns:
            A result that is not ok if the speed cannot be measured; only the forecast of times suffers.
        """
        return self.ask("probe_speed", self._speed(hardware, device), SPEED_TIMEOUT_S)

    def present_speed(self, device: str = "") -> Result:
        """Measures the present speed of the first device, with other programs running: means over seconds, not cached.

        Args:
            device: ``cpu`` measures the CPU even if there is a GPU.
        """
        payload = {"device": device, "sustained": True, "seconds": PRESENT_SPEED_S}
        return self.ask("probe_speed", payload, SPEED_TIMEOUT_S, keep=False)

    def knows_speed(self, hardware: Mapping[str, Any], device: str = "") -> bool:
        """Tells whether the answer of ``speed`` is cached."""
        return self.kept("probe_speed", self._speed(hardware, device))

    @staticmethod
    def _speed(hardware: Mapping[str, Any], device: str) -> Mapping[str, Any]:
        return {"hardware": dict(hardware), "device": device}

    def prepare(self, payload: Mapping[str, Any], *, keep: bool = True, far: bool = False) -> Result:
        """Writes and measures the prompts, and tries the rewards.

        Args:
            payload: the child's ``Preparation``.
            keep: true if a cached answer to the same question is valid.
            far: true if a model or dataset may have to be downloaded.

        Raises:
            UsageError: model, prompts or rewards cannot be used.
            MachineError: the interpreter cannot do it.
        """
        result = self.ask("prepare", payload, DOWNLOAD_TIMEOUT_S if far else PREPARE_TIMEOUT_S, keep=keep)
        if result.reason in BAD_INPUT:
            raise UsageError(result.message)
        return self._sound(result)

    def kept(self, command: str, payload: Mapping[str, Any]) -> bool:
        """Tells whether the answer to a child command is cached."""
        return self._kept(self._directory(command, payload)) is not None

    def ask(
        self, command: str, payload: Mapping[str, Any], timeout: float = PROBE_TIMEOUT_S, *, keep: bool = True
    ) -> Result:
        """Returns a child command's answer; caches an ok one by its question. Raises ``MachineError``."""
        if which(self.python) is None:
            raise MachineError(f"{self.python} is no interpreter that can be run; `autotune start --python` names one")
        directory = self._directory(command, payload)
        found = self._kept(directory) if keep else None
        if found is not None:
            return found
        result = run_tool(
            self.python, command, directory, payload, timeout, clock=SystemClock(), home=home_tag(self.home)
        )
        if not result.ok:
            (directory / "result.json").unlink(missing_ok=True)
        return result

    def _sound(self, result: Result, also: str = "") -> Result:
        if result.ok:
            return result
        said = result.message or result.detail or "failed"
        raise MachineError((said if said.startswith(self.python) else f"{self.python}: {said}") + also)

    def _another(self) -> str:
        """Returns a hint to name an interpreter, if autotune's own was used because none was named."""
        return "; or name the one of your training environment with --python" if self.python == sys.executable else ""

    def _directory(self, command: str, payload: Mapping[str, Any]) -> Path:
        """Returns the cache's folder; it changes with the interpreter's packages, by their folder's time."""
        sites = Path(self.python).parent.parent.glob("lib/python*/site-packages")
        stamps = sorted(f"{site}:{site.stat().st_mtime_ns}" for site in sites)
        text = "\n".join((command, self.python, dumps(payload), *stamps))
        return self.home / "prepared" / f"{command}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"

    @staticmethod
    def _kept(directory: Path) -> Result | None:
        try:
            result = read_result(RunPaths(directory).result)
        except (OSError, ContractError):
            return None
        paths = [result.data[name] for name in ("prompts", "model_folder") if result.data.get(name)]
        return result if result.ok and all(Path(path).exists() for path in paths) else None


def _framework(name: str) -> dict[str, str]:
    """Returns the framework's name as payload of a question; empty for TRL, the child's default."""
    return {} if name == "trl" else {"framework": name}


def _questions(
    rewards: Sequence[RewardSpec], packages: Sequence[str], environment: Environment, *, load: bool = False
) -> dict[str, Any]:
    asked: dict[str, Any] = {"devices": False, "rewards": encode(list(rewards)), "packages": list(packages)}
    modules = {"modules": dict(environment.modules)} if environment.modules else {}
    return {**asked, **modules, **({"load": True} if load else {})}


def probe(python: str, environment: Environment = TRL) -> Mapping[str, Any]:
    """Returns packages and hardware of a training interpreter (``Result.data`` of the child's ``probe``).

    Raises:
        MachineError: the interpreter cannot be started, or lacks packages of TRL's trials; ``environment`` judges the
            packages of another framework.
    """
    result = check_rewards(python, (), (), environment)
    if not result.ok:
        raise MachineError(f"{python}: {result.message or 'cannot run a trial'}")
    return result.data


def check_rewards(
    python: str, rewards: Sequence[RewardSpec], packages: Sequence[str] = (), environment: Environment = TRL
) -> Result:
    """Checks that an interpreter can load these rewards and has these packages; nothing is scored or cached.

    Returns:
        Ok, or not ok with ``message``: one sentence with the command that repairs it.
    """
    payload = _questions(rewards, packages, environment, load=True)
    with tempfile.TemporaryDirectory(prefix="autotune-rewards-") as folder:
        return run_tool(python, "probe", Path(folder), payload, PROBE_TIMEOUT_S, clock=SystemClock())

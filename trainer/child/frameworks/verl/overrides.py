"""Converts a spec to the overrides of ``python -m verl.trainer.main_ppo``, and writes the files verl reads."""

from __future__ import annotations

import json
import math
import os
import re
import secrets
from pathlib import Path
from typing import Any, Dict, List, Mapping

from ...checks import check_lengths, check_rows
from ...contract import RunPaths, TrialSpec
from ...failures import IllegalSettingError
from ...user_environment import ENVIRONMENT_KEY
from .board import TRIAL_VARIABLE, Places

MODULE = "verl.trainer.main_ppo"
WITHIN = Path(__file__).resolve().parent / "within"
"""Folder on the path of verl's processes, with only the modules that they import."""
LOOP = "autotune"
"""Name of the agent loop."""
ACTOR, ROLLOUT = "actor_rollout_ref.actor.", "actor_rollout_ref.rollout."
MICRO_ROWS = ACTOR + "ppo_micro_batch_size_per_gpu"
PROMPTS, UPDATE_PROMPTS, GENERATIONS = "data.train_batch_size", ACTOR + "ppo_mini_batch_size", ROLLOUT + "n"
WITHOUT_LENGTHS: Mapping[str, str] = {
    ROLLOUT + "multi_turn.enable": "a completion of several turns has no one length",
    "algorithm.filter_groups.enable": "verl generates groups anew until enough of them differ in reward",
}
"""Key -> reason why a trial with it cannot replay recorded lengths."""
WHOLE_FILES = (2, 10)
"""First torch version that never leaves a partial file in its compile cache."""
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")


def settings_of(spec: TrialSpec) -> Dict[str, Any]:
    """Returns verl's keys: the workload's, then the configuration's."""
    passed = {key: value for key, value in spec.passthrough.items() if key != ENVIRONMENT_KEY}
    return {**passed, **spec.settings}


def check(spec: TrialSpec) -> None:
    """Raises ``IllegalSettingError`` for another batch size than the trial's, or completions without set lengths."""
    settings = settings_of(spec)
    check_rows(int(settings[UPDATE_PROMPTS]) * int(settings[GENERATIONS]), spec)
    for key, why in WITHOUT_LENGTHS.items():
        if settings.get(key):
            raise IllegalSettingError("%s: %s, and a trial gives each completion its length" % (key, why))
    check_lengths(spec)


def words(spec: TrialSpec, paths: RunPaths, model: str, steps: int) -> List[str]:
    """Returns the overrides: the user's keys, overridden by the configuration's, then by those for measurement."""
    loops = Places(paths.root).folder / "loops.yaml"  # JSON is YAML
    loops.write_text(json.dumps([{"name": LOOP, "_target_": "autotune_verl_rows.Measured"}]), encoding="utf-8")
    measuring: Dict[str, Any] = {
        "actor_rollout_ref.model.path": model,
        ROLLOUT + "agent.default_agent_loop": LOOP,
        ROLLOUT + "agent.agent_loop_config_path": str(loops),
        "data.train_files": spec.prompts,
        "data.val_files": spec.prompts,  # it asks for some even where nothing is validated
        "data.prompt_key": "prompt",
        "data.shuffle": False,
        "data.custom_cls.path": str(WITHIN / "autotune_verl_prompts.py"),
        "data.custom_cls.name": "Prompts",
        "reward.custom_reward_function.path": str(WITHIN / "autotune_verl_reward.py"),
        "reward.custom_reward_function.name": "compute_score",
        "trainer.project_name": "autotune",
        "trainer.experiment_name": "trial",
        "trainer.logger": ["console", "file"],
        "trainer.total_epochs": 1,
        "trainer.total_training_steps": steps,
        "trainer.save_freq": -1,
        "trainer.test_freq": -1,
        "trainer.val_before_train": False,
        "trainer.resume_mode": "disable",
        "trainer.default_local_dir": str(paths.scratch / "output"),
        "ray_kwargs.ray_init._temp_dir": str(paths.sockets / "ray"),
        "hydra.run.dir": str(paths.scratch / "hydra"),
        "hydra.output_subdir": None,
    }
    found = {**settings_of(spec), **measuring}
    return [override(key, value) for key, value in found.items()]


def environment(paths: RunPaths, own: Mapping[str, str], torch: str = "") -> Dict[str, str]:
    """Returns the environment of verl and its Ray processes: ``own``, with the trial's paths.

    verl makes every engine compile again (``verl/trainer/constants_ppo.py``), because torch before 2.10 could leave a
    partial file in vLLM's cache; with a newer ``torch`` the cache is used. This changes only the start-up.
    """
    path = own.get("PYTHONPATH", "")
    places = Places(paths.root)
    found = {
        **own,
        TRIAL_VARIABLE: str(paths.root),
        "PYTHONPATH": os.pathsep.join([str(WITHIN), *([path] if path else [])]),
        "VERL_FILE_LOGGER_PATH": str(places.log),
        "RAY_TMPDIR": str(paths.sockets),
        "RAY_USAGE_STATS_ENABLED": "0",
        "HYDRA_FULL_ERROR": "1",
        "HF_HUB_OFFLINE": "1",  # a folder or a cached commit needs no hub; one that is down must not matter
        "HF_DATASETS_CACHE": str(paths.scratch / "datasets"),
    }
    found.pop("RAY_ADDRESS", None)  # a Ray of the user's own is not the trial's
    # Without a token of its own Ray would write one into the user's home, and read it in every later Ray.
    found.pop("RAY_AUTH_TOKEN_PATH", None)
    found.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    if tuple(map(int, re.findall(r"\d+", torch)[:2])) >= WHOLE_FILES:
        found.setdefault("VLLM_DISABLE_COMPILE_CACHE", "0")
    return found


def override(key: str, value: Any) -> str:
    """Formats ``key=value``; ``++``, except on Hydra's own keys, allows keys that verl's files lack."""
    return "%s%s=%s" % ("" if key.startswith("hydra.") else "++", key, as_hydra(value))


def as_hydra(value: Any) -> str:
    """Formats ``value`` as Hydra 1.3 reads it (``hydra/grammar/OverrideParser.g4``); text is always quoted.

    Raises IllegalSettingError for a number that is not finite, or a mapping's key that Hydra cannot write.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, (int, float)):
        if isinstance(value, float) and not math.isfinite(value):
            raise IllegalSettingError("expected a finite number, got %r" % value)
        return repr(value)
    if isinstance(value, Mapping):
        return "{%s}" % ",".join("%s:%s" % (_name(key), as_hydra(item)) for key, item in value.items())
    return "[%s]" % ",".join(as_hydra(item) for item in value)


def quoted(text: str) -> str:
    """Returns ``text`` in single quotes; as in Hydra, backslashes are doubled only before a quote."""
    escaped = re.sub(r"(\\*)'", lambda found: found.group(1) * 2 + "\\'", text)
    ending = len(escaped) - len(escaped.rstrip("\\"))
    return "'%s%s'" % (escaped, "\\" * ending)


def _name(key: Any) -> str:
    if not isinstance(key, str) or not _KEY.fullmatch(key) or key.lower() in ("true", "false", "null"):
        raise IllegalSettingError("expected a name as key of a mapping, got %r" % (key,))
    return key

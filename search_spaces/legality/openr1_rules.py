"""Rules of Open-R1 alone, which trains with TRL 0.18 by a recipe.

Shared rules judge whole groups (14 divides 7 x 64 rows and not 8 x 64), at least two completions in a group, replicas
that share the GPUs evenly, and a server's GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from search_spaces.batch import Batch
from search_spaces.knobs import KNOBS, Knob, Reach
from search_spaces.knobs.model import show
from search_spaces.legality.case import Case, Rule, only

FRAMEWORK = "open_r1"
SERVER_OPTIONS: Mapping[str, str] = {
    "gpu_memory_utilization": "--gpu_memory_utilization",
    "max_model_len": "--max_model_len",
    "prefix_caching": "--enable_prefix_caching",
    "enforce_eager": "--enforce_eager",
    "kv_cache_dtype": "--kv_cache_dtype",
    "rollout_dtype": "--dtype",
}
"""Knob -> option of ``trl vllm-serve`` in TRL 0.18; a colocated engine takes only the first."""
REWARDS = (
    *("accuracy", "format", "reasoning_steps", "cosine", "repetition_penalty", "length", "code", "binary_code"),
    *("ioi_code", "cf_code", "code_format", "tag_count", "soft_overlong_punishment"),
)
"""Names in Open-R1's registry (``src/open_r1/rewards.py``, ``get_reward_funcs``)."""


def _keyed(knob: Knob) -> Rule:
    """Makes a rule that keeps a knob at the framework's own value if only a seam could change it."""
    setting = knob.frameworks[FRAMEWORK]

    def judge(case: Case) -> str | None:
        value = case.values.get(knob.name)
        if value is None or not case.acts(knob.name):
            return None
        own = case.values.get(setting.follows) if setting.follows else setting.default
        if setting.reach is not Reach.SEAM:
            return f"precision {value}: Open-R1 has no key for it" if value in setting.by_seam else None
        if value == own or (case.server and knob.name in SERVER_OPTIONS):
            return None
        only = "; only its rollout server takes it" if knob.name in SERVER_OPTIONS else ""
        return f"Open-R1 has no key for {knob.name} {show(value)}{only}"

    followed = {setting.follows} if setting.follows else set()
    reads = frozenset({knob.name, *knob.needs, *followed, "rollout_engine", "rollout_mode"})
    return Rule("openr1_key", reads, (knob.name,), "Open-R1's recipe has a key for what is set.", judge)


def _beyond(knob: Knob) -> bool:
    setting = knob.frameworks.get(FRAMEWORK)
    return setting is not None and (setting.reach is Reach.SEAM or bool(setting.by_seam))


RULES = tuple(only(FRAMEWORK, _keyed(knob)) for knob in KNOBS.values() if _beyond(knob))


def _generation_rows(settings: Mapping[str, Any], batch: Batch) -> str | None:
    """Checks that generations hold whole micro-batches; TRL 0.18 silently rounds the rows down."""
    rows, each = settings.get("generation_batch_size"), batch.ranks * batch.micro
    if not isinstance(rows, int) or rows % each == 0:
        return None
    return (
        f"generation_batch_size {rows} is not divisible by {each} (per_device_train_batch_size {batch.micro} × "
        f"{batch.ranks} processes), and TRL 0.18 would generate {rows // each * each} rows without saying so"
    )


def generation_size(settings: Mapping[str, Any], _: Batch | None = None) -> str | None:
    """Refuses both keys for the size of a generation at once, as TRL does."""
    if settings.get("generation_batch_size") is None or settings.get("steps_per_generation") is None:
        return None
    return "generation_batch_size and steps_per_generation cannot both be set; remove generation_batch_size"


def _evaluation(settings: Mapping[str, Any], batch: Batch) -> str | None:
    rows = settings.get("per_device_eval_batch_size", 8)
    if settings.get("eval_strategy") in (None, "no") or not isinstance(rows, int):
        return None
    if (rows * batch.ranks) % batch.group == 0:
        return None
    product = f"per_device_eval_batch_size {rows} × {batch.ranks} = {rows * batch.ranks}"
    return f"{product} is not divisible by num_generations {batch.group}, which evaluation generates too"


def _model_arguments(settings: Mapping[str, Any], _: Batch) -> str | None:
    if settings.get("model_init_kwargs") is None:
        return None
    return "model_init_kwargs is refused by TRL 0.18 beside a loaded model, which Open-R1 gives it; remove it"


def _two_sided(settings: Mapping[str, Any], _: Batch) -> str | None:
    if settings.get("delta") is None or settings.get("use_liger_loss") is not True:
        return None
    return "use_liger_loss cannot be used with delta; remove one of them"


def _reference_model(settings: Mapping[str, Any], _: Batch) -> str | None:
    if settings.get("sync_ref_model") is not True or settings.get("beta", 0.04) != 0:
        return None
    return "sync_ref_model needs a reference model, so beta above 0"


_SETTINGS: tuple[tuple[str, Callable[[Mapping[str, Any], Batch], str | None]], ...] = (
    ("openr1_generation_rows", _generation_rows),
    ("openr1_generation_size", generation_size),
    ("openr1_evaluation", _evaluation),
    ("openr1_model_arguments", _model_arguments),
    ("openr1_liger_loss", _two_sided),
    ("openr1_reference_model", _reference_model),
)


def broken_settings(settings: Mapping[str, Any], batch: Batch) -> list[tuple[str, str]]:
    """Returns (rule, sentence without its full stop) for the recipe's other keys, given the configuration's batch."""
    return [(name, said) for name, judge in _SETTINGS if (said := judge(settings, batch)) is not None]


def unknown_rewards(names: Sequence[str]) -> list[str]:
    """Returns the names that are not in Open-R1's registry of rewards."""
    return [name for name in names if name not in REWARDS]

"""Rules of Open-R1 alone, which trains with TRL 0.18 by a recipe.

Shared rules check whole groups (14 divides 7 x 64 completions, not 8 x 64), at least two completions in a group,
replicas that share the GPUs evenly, and a server's GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
"""Names in Open-R1's registry of rewards (``src/open_r1/rewards.py``, ``get_reward_funcs``)."""


def _keyed(knob: Knob) -> Rule:
    """Makes a rule that keeps a knob at the framework's own value if only a patch could change it."""
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
    return Rule("openr1_key", reads, (knob.name,), judge)


def _beyond(knob: Knob) -> bool:
    setting = knob.frameworks.get(FRAMEWORK)
    return setting is not None and (setting.reach is Reach.SEAM or bool(setting.by_seam))


RULES = only(lambda c: c.framework == FRAMEWORK, *(_keyed(knob) for knob in KNOBS.values() if _beyond(knob)))


def broken_settings(settings: Mapping[str, Any], batch: Batch) -> list[tuple[str, str]]:
    """Returns (rule, message without full stop) of each rule that the recipe's non-knob keys break with ``batch``."""
    get, each = settings.get, batch.ranks * batch.micro
    rows, evaluated = get("generation_batch_size"), get("per_device_eval_batch_size", 8)
    return rules_broken(
        openr1_generation_rows=isinstance(rows, int)
        and rows % each
        and f"generation_batch_size {rows} is not divisible by {each} (per_device_train_batch_size {batch.micro} × "
        f"{batch.ranks} processes), and TRL 0.18 would generate {rows // each * each} rows without saying so",
        openr1_generation_size=generation_size(settings),
        openr1_evaluation=get("eval_strategy") not in (None, "no")
        and isinstance(evaluated, int)
        and evaluated * batch.ranks % batch.group
        and f"per_device_eval_batch_size {evaluated} × {batch.ranks} = {evaluated * batch.ranks} is not divisible by "
        f"num_generations {batch.group}, which evaluation generates too",
        openr1_model_arguments=get("model_init_kwargs") is not None
        and "model_init_kwargs is refused by TRL 0.18 beside a loaded model, which Open-R1 gives it; remove it",
        openr1_liger_loss=get("delta") is not None
        and get("use_liger_loss") is True
        and "use_liger_loss cannot be used with delta; remove one of them",
        openr1_reference_model=get("sync_ref_model") is True
        and get("beta", 0.04) == 0
        and "sync_ref_model needs a reference model, so beta above 0",
    )


def rules_broken(**rules: object) -> list[tuple[str, str]]:
    """Returns (rule, sentence) of the arguments that are a text; any other value means that the rule holds."""
    return [(name, sentence) for name, sentence in rules.items() if isinstance(sentence, str)]


def generation_size(settings: Mapping[str, Any]) -> str | None:
    """Refuses the two keys for the size of a generation together, as TRL does."""
    if settings.get("generation_batch_size") is None or settings.get("steps_per_generation") is None:
        return None
    return "generation_batch_size and steps_per_generation cannot both be set; remove generation_batch_size"


def unknown_rewards(names: Sequence[str]) -> list[str]:
    """Returns the names that are not in Open-R1's registry of rewards."""
    return [name for name in names if name not in REWARDS]

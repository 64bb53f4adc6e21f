"""Converts a spec to the command line of ``swift rlhf``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from ...checks import MEASURING
from ...contract import TrialSpec
from ...failures import IllegalSettingError
from ...user_environment import ENVIRONMENT_KEY

CONFIG = "config.json"
PROBE = "a question"
CHATML = re.compile(
    r"(<\|im_start\|>system\n(?P<system>.*)<\|im_end\|>\n)?"
    r"<\|im_start\|>user\n" + PROBE + r"<\|im_end\|>\n<\|im_start\|>assistant\n",
    re.DOTALL,
)
"""Matches the text of one message in ms-swift's template ``chatml`` (``swift/template/templates/utils.py``)."""


def added(spec: TrialSpec, folder: str, raw: bool) -> Dict[str, Any]:
    """Returns the arguments that ms-swift needs to load the model in ``folder`` and to use the prompts unchanged.

    Several of its model types may have the same architecture and differ in their templates. The tokenizer's own
    template cannot replace them: ms-swift 4.6 puts the tokens of a completion into a message, which only its own
    templates accept. If the tokenizer's template is ChatML, ms-swift's ChatML template is used, with the same system
    message. Prompts that are plain texts (``raw``) reach the model without a template.

    Raises IllegalSettingError if ms-swift has no equal template.
    """
    found: Dict[str, Any] = {}
    if "model_type" not in spec.passthrough:
        found.update(_kind(folder, raw, "template" in spec.passthrough))
    if raw and "use_chat_template" not in spec.passthrough:
        found["use_chat_template"] = False
    return {key: value for key, value in found.items() if key not in spec.passthrough}


def _kind(folder: str, raw: bool, has_template: bool) -> Dict[str, Any]:
    """Returns model type and template for a model with several of them; ``has_template``: the user names one."""
    from swift.model.model_meta import MODEL_MAPPING, get_matched_model_meta, get_matched_model_types

    if get_matched_model_meta(folder) is not None:
        return {}
    try:
        config = json.loads((Path(folder) / CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise IllegalSettingError("%s: %s cannot be read: %s" % (folder, CONFIG, error)) from error
    kinds = get_matched_model_types(config.get("architectures"))
    if len(kinds) < 2 and not any(len(MODEL_MAPPING[kind].candidate_templates) > 1 for kind in kinds):
        return {}
    own = str(config.get("model_type", ""))
    found = {"model_type": own if own in kinds else kinds[0], "template": "dummy"}
    return found if raw or has_template else {**found, **_chatml(folder)}


def _chatml(folder: str) -> Dict[str, Any]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    text = ""
    if tokenizer.chat_template:
        messages = [{"role": "user", "content": PROBE}]
        text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    found = CHATML.fullmatch(text)
    if found is None:
        raise IllegalSettingError(
            "ms-swift knows several kinds of models of this architecture, and the tokenizer's chat template is not "
            "ChatML: say which of ms-swift's templates it is, by `template`"
        )
    system = found.group("system")
    return {"template": "chatml", **({"system": system} if system else {})}


def command_line(
    spec: TrialSpec,
    folder: str,
    prompts: str,
    rewards: Sequence[str],
    steps: int,
    scratch: Path,
    own: Mapping[str, Any],
) -> List[str]:
    """Builds the command line: the user's arguments, then the configuration's, then those for measurement.

    The schedule is as long as the trial, so a decaying learning rate decays within it; that changes the learning, not
    the time of a step.
    """
    measuring: Dict[str, Any] = {
        **MEASURING,
        "rlhf_type": "grpo",
        "model": folder,
        "dataset": [prompts],
        "split_dataset_ratio": 0.0,
        "load_from_cache_file": False,
        "reward_funcs": list(rewards),
        "max_completion_length": spec.max_completion_length,
        "max_length": spec.max_prompt_length,
        "max_steps": steps,
        "output_dir": str(scratch / "swift"),
        "add_version": False,
        "check_model": False,
        "seed": spec.seed,
    }
    # The folder is of the revision that the user names.
    passed = {k: v for k, v in spec.passthrough.items() if k not in (ENVIRONMENT_KEY, "model_revision")}
    if named := plugins(spec):
        passed["external_plugins"] = named
    if spec.device == "cpu":
        measuring["use_cpu"] = True
    found = {**own, **passed, **spec.settings, **measuring}
    return words_of(found)


def plugins(spec: TrialSpec) -> List[str]:
    """Returns the user's own plugins, resolved from the folder of the user's run."""
    named = spec.passthrough.get("external_plugins") or []
    return [str(Path(folder(spec)) / name) for name in ([named] if isinstance(named, str) else named)]


def folder(spec: TrialSpec) -> str:
    """Returns the folder of the user's run, in which its plugins work; empty without one."""
    return next((reward.path for reward in spec.rewards if reward.kind == "ms_swift" and reward.path), "")


def words_of(arguments: Mapping[str, Any]) -> List[str]:
    """Converts ``arguments`` to command-line words."""
    return [word for key, value in arguments.items() for word in (f"--{key}", *_words(value))]


def _words(value: Any) -> List[str]:
    if isinstance(value, (list, tuple)):
        return [str(item) for item in value]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    return [json.dumps(value) if isinstance(value, dict) else str(value)]

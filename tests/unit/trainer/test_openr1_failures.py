"""What Open-R1, TRL 0.18 and accelerate 1.4 write when a trial cannot be run, and what is then said."""

from __future__ import annotations

import pytest

from tests.support.not_none import not_none
from trainer.child.contract import FailureReason, Pool
from trainer.frameworks.open_r1 import diagnose, suggest
from trainer.frameworks.open_r1.failures import OWN, SUGGESTIONS

TEXTS = {
    "openr1_import": "ModuleNotFoundError: No module named 'open_r1'",
    "openr1_registry": (
        "    reward_funcs = [REWARD_FUNCS_REGISTRY[func] for func in script_args.reward_funcs]\nKeyError: 'acuracy'"
    ),
    "openr1_prompt_column": "ValueError: Dataset Question Field Error: problem is not supported.",
    "openr1_dataset": "ValueError: Either `dataset_name` or `dataset_mixture` must be provided",
    "openr1_callback": "ValueError: Callback foo not found in CALLBACKS.",
    "openr1_sandbox": (
        "ImportError: E2B is not available and required for this provider. Please install E2B with "
        "`pip install e2b-code-interpreter` and add an API key to a `.env` file."
    ),
    "openr1_model_arguments": (
        "ValueError: You passed `model_init_kwargs` to the `GRPOConfig`, but your model is already instantiated. "
        "This argument can only be used when the `model` argument is a string."
    ),
    "openr1_liger_loss": "ValueError: Liger loss does not support two-sided GRPO loss yet.",
    "openr1_no_liger": "ImportError: Liger is required to use `liger_loss` as the GRPO loss.",
    "openr1_groups": (
        "ValueError: The effective train batch size (1 x 4 x 1) must be evenly divisible by the number of generations "
        "per prompt (3). Given the current effective train batch size, the valid values for the number of generations "
        "are: [2, 4]."
    ),
    "openr1_accelerate_fields": (
        "ValueError: When using `deepspeed_config_file`, the following accelerate config variables will be ignored: []."
    ),
    "openr1_server": (
        "ConnectionError: The vLLM server can't be reached at http://0.0.0.0:8000 after 240.0 seconds. Make sure the "
        "server is running by running `trl vllm-serve`."
    ),
}


@pytest.mark.parametrize("name", [sign.name for sign in OWN])
def test_each_text_is_recognised_and_has_an_advice(name: str) -> None:
    found = not_none(diagnose(f"Traceback (most recent call last):\n{TEXTS[name]}\n"))
    assert found.reason is next(sign.reason for sign in OWN if sign.name == name)
    assert found.suggestion == SUGGESTIONS[name] != ""


def test_out_of_memory_is_told_as_everywhere() -> None:
    found = not_none(diagnose("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"))
    assert (found.reason, found.pool) == (FailureReason.OOM, Pool.DEVICE)


def test_a_text_nobody_knows_is_not_guessed() -> None:
    assert diagnose("ValueError: something else\n") is None


def test_no_knob_is_suggested_that_open_r1_has_not() -> None:
    for phase in ("generate", "logprob", "update", "load", "engine"):
        said = suggest(FailureReason.OOM, phase, Pool.DEVICE)
        assert said
        assert "logprob_rows" not in said

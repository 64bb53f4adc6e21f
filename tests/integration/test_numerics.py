"""FP8, the gradient comparison and the quality guard in the training interpreter, on a tiny model."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.trl_trials import ROOT, environment, training_python
from trainer.child.contract import limits

pytestmark = [pytest.mark.slow, pytest.mark.trl]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("numerics") / "found.json"
    script = ROOT / "tests" / "support" / "numerics_checks.py"
    command = [training_python(), str(script), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(path).parent, env=environment())
    assert run.returncode == 0, run.stderr[-3000:]
    return json.loads(path.read_text())


def test_linear_layers_are_converted_and_the_head_is_not(found: Any) -> None:
    made = found["conversion"]
    assert made["told"] == {"layers": 14, "left_out": 1, "emulated": True}
    assert made["head"] == "Linear"
    assert made["odd_sizes"] == {"layers": 8, "left_out": 7, "emulated": True}
    assert made["nothing"] == {}


def test_conversion_changes_products_and_nothing_else(found: Any) -> None:
    """The weights stay those the optimizer holds; what comes out is bf16's up to FP8's rounding, and in bf16."""
    made = found["conversion"]
    assert made["weights_kept"]
    assert made["differs"], "nothing was rounded, so nothing was converted"
    assert made["error"] < 0.1
    assert made["output"] == "torch.bfloat16"
    assert made["without"]
    assert made["with_again"]


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no_hardware", "compute capability 8.9 or later, or fp8_emulate"),
        ("quantised", "quantised model"),
        ("no_layer", "multiples of 16"),
        ("value", "'fp4'"),
        ("no_torchao", "needs the package torchao"),
    ],
)
def test_what_cannot_be_converted_is_refused_in_a_sentence(found: Any, case: str, words: str) -> None:
    said = found["refusals"][case]
    assert words in said
    assert "\n" not in said


def test_adapters_learn_on_converted_layers(found: Any) -> None:
    made = found["adapters"]
    assert made["layers"] == 14
    assert made["gradients"] == 4
    assert made["finite"]
    assert made["base"] == []
    assert made["sampled"]
    assert all("lora_B" in name for name in made["sampled"]), "lora_A has no gradient at the start"
    assert limits.gradient_problem(made["compared"]["cosine"], made["compared"]["ratio"]) is None


def test_the_gradient_of_fp8_is_near_that_of_bf16(found: Any) -> None:
    figures = found["gradients"]["fp8"]
    assert 0.9 < figures["cosine"] < 0.99999, "equal gradients would mean that one thing was computed twice"
    assert 0.8 < figures["ratio"] < 1.2
    assert figures["change"] == "fp8"


def test_looking_at_the_gradient_leaves_the_model_as_it_was(found: Any) -> None:
    made = found["gradients"]
    assert made["left"] == [True, False]
    assert made["forward_back"]
    assert made["dtypes_back"] == ["torch.bfloat16"]


@pytest.mark.parametrize("role", ["INPUT", "WEIGHT", "GRAD_OUTPUT"])
def test_a_scale_off_by_four_breaks_the_limits(found: Any, role: str) -> None:
    """In the gradient alone it keeps the direction, so that only the norm tells."""
    assert found["gradients"]["broken"][role] is not None


def test_other_roundings_are_compared_too_and_bf16_itself_is_not(found: Any) -> None:
    made = found["gradients"]
    assert made["none"] is None
    assert made["bf16_weights"]["change"] == "bfloat16 weights"
    assert made["fp16"]["change"] == "fp16"
    for name in ("bf16_weights", "fp16"):
        assert limits.gradient_problem(made[name]["cosine"], made[name]["ratio"]) is None
        assert made[name]["cosine"] < 0.9999999
    assert "spread over ranks" in made["sharded"]


def test_the_guard_ends_a_broken_gradient_in_the_warm_up_and_only_there(found: Any) -> None:
    made = found["broken_gradient"]
    assert list(made["raised"]) == ["warmup"]
    kind, said = made["raised"]["warmup"]
    assert kind == "QualityError"
    assert "that of bf16" in said
    assert made["notes"] == ["gradient"]


def test_a_rollout_that_agrees_passes(found: Any) -> None:
    guards = found["guards"]
    assert guards["agrees"]["mismatch"] == pytest.approx(1.0)
    assert guards["agrees"]["handed_on"]
    assert guards["near"]["mismatch"] == pytest.approx(1.0513, abs=1e-3)
    assert guards["near"]["raised"] == guards["agrees"]["raised"] == ""


@pytest.mark.parametrize("case", ["stale", "warmup", "huge"])
def test_a_stale_rollout_is_quality_with_its_figure(found: Any, case: str) -> None:
    made = found["guards"][case]
    assert made["raised"] == "QualityError"
    assert "1.1 is the limit" in made["said"]
    assert case == "huge" or made["mismatch"] == pytest.approx(1.4918, abs=1e-3)


def test_without_the_correction_a_pass_of_our_own_is_made_in_the_warm_up_alone(found: Any) -> None:
    """In a timed cycle it would be time the user's run does not spend."""
    assert found["guards"]["warmup"]["passes"] == [2]
    assert found["guards"]["timed"]["passes"] == []
    assert found["guards"]["timed"]["mismatch"] is None
    assert found["guards"]["stale"]["passes"] == []


def test_cut_sampling_is_recorded_and_not_judged(found: Any) -> None:
    made = found["guards"]["cut"]
    assert made["mismatch"] == pytest.approx(1.4918, abs=1e-3)
    assert made["raised"] == ""


def test_an_attention_that_fell_back_is_no_measurement_of_the_one_asked_for(found: Any) -> None:
    """transformers only logs it; the knob's figure would be another attention's."""
    said = found["attention"]
    refused = {pair for pair, words in said.items() if words}
    assert refused == {"eager sdpa", "flash_attention_3 sdpa", "kernels-community/mine eager"}
    assert "flash_attention_3: this model computes with sdpa instead" in said["flash_attention_3 sdpa"]


def test_offloaded_activations_give_the_same_gradient(found: Any) -> None:
    """TRL's hooks around our step; on a CPU they copy within one memory, which is why nobody may ask for it there."""
    made = found["offloading"]
    assert made["same"]
    assert made["moved"] > 10, "no activation was offloaded, so nothing was shown"
    assert made["kept"] > 0, "parameters stay where they are"


def test_activations_are_not_offloaded_on_a_cpu(found: Any) -> None:
    assert "needs a GPU: on a CPU activations are in host memory already" in found["offloading"]["refused"]


def test_log_probs_that_are_not_numbers(found: Any) -> None:
    """A NaN of the rollout's is left out, as TRL leaves it out; with nothing left there is no figure."""
    assert found["guards"]["rollout_nan"]["mismatch"] is None
    assert found["guards"]["rollout_nan"]["raised"] == ""
    assert found["guards"]["trainer_nan"]["mismatch"] is None
    assert found["guards"]["trainer_nan"]["raised"] == "NotFiniteError"

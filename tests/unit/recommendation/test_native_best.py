"""The best without a launcher: if one of these fails, `--native-only` names the wrong configuration."""

from __future__ import annotations

from autotune.domain import Configuration, Trial, TrialKind
from autotune.recommendation.recommend import native_best
from autotune.statistics.evidence import Row
from search_spaces.native import is_native, seam_values
from tests.support import factories as f
from tests.support.not_none import not_none

SPEC = f.study_spec()
BASELINE = f.configuration()
NATIVE = f.configuration(gradient_checkpointing=False)
FASTER = f.configuration(micro_batch_size=4, gradient_accumulation_steps=2, logprob_rows=4)
SEAM = f.configuration(logprob_rows=8)
LEARNING = f.configuration(num_generations=2)


def run(number: int, configuration: Configuration, seconds: float, kind: TrialKind = TrialKind.SEARCH) -> Trial:
    pair = 0 if kind is TrialKind.CONFIRM else None
    return f.finished(number, kind=kind, configuration=configuration, cycle_seconds=seconds, pair=pair)


def test_a_seam_knob_at_the_frameworks_own_value_needs_no_launcher() -> None:
    assert is_native(BASELINE, "trl")  # logprob_rows follows the micro-batch of 2
    assert seam_values(SEAM, "trl") == {"logprob_rows": 8}
    assert seam_values(f.configuration(logprob_token_chunk=4096), "trl") == {}
    assert seam_values(f.configuration(logprob_token_chunk=1024), "trl") == {"logprob_token_chunk": 1024}
    assert seam_values(Configuration({"micro_batch_size": 4}), "trl") == {}


def test_what_rests_needs_no_launcher_and_what_a_key_cannot_say_does() -> None:
    """Most configurations of a space with vLLM in it hold engine knobs that rest."""
    resting = f.configuration(kv_cache_memory_bytes=1 << 30, enforce_eager=True, fp8_emulate=True)
    assert is_native(resting, "trl")
    awake = resting.with_(rollout_engine="vllm")
    assert seam_values(awake, "trl") == {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30}
    server = awake.with_(rollout_mode="server", rollout_gpus=1)
    assert seam_values(server, "trl") == {}  # they are options of its command line
    assert seam_values(f.configuration(precision="fp8"), "trl") == {"precision": "fp8"}
    assert is_native(f.configuration(precision="bf16"), "trl")


def test_on_a_cpu_vllm_and_deepspeed_are_never_trls_own() -> None:
    """There TRL's own weight sync fails and accelerate refuses DeepSpeed, so a native best with them could not run."""
    for helped in (f.configuration(rollout_engine="vllm"), f.configuration(zero_stage=2)):
        assert is_native(helped, "trl", "cuda")
        assert not is_native(helped, "trl", "cpu")
    assert is_native(f.configuration(zero_stage=0), "trl", "cpu")
    trials = [run(0, BASELINE, 10.0, TrialKind.BASELINE), run(1, f.configuration(rollout_engine="vllm"), 4.0)]
    best = not_none(native_best(SPEC, trials))
    assert best.configuration == BASELINE


def test_the_fastest_native_one_beats_the_baseline_but_never_a_seam_or_other_learning() -> None:
    trials = [run(0, BASELINE, 10.0, TrialKind.BASELINE), run(1, SEAM, 4.0), run(2, NATIVE, 8.0), run(3, LEARNING, 5.0)]
    best = not_none(native_best(SPEC, trials))
    assert (best.configuration, best.confirmed, best.trials) == (NATIVE, False, (2,))
    permitted = not_none(native_best(SPEC, trials, Row.PERMITTED))
    assert permitted.configuration == LEARNING


def test_a_confirmed_one_goes_before_a_faster_search_trial_but_the_baseline_before_neither() -> None:
    trials = [
        run(0, BASELINE, 10.0, TrialKind.BASELINE), run(1, NATIVE, 8.0), run(2, FASTER, 7.0),
        run(3, BASELINE, 10.0, TrialKind.CONFIRM), run(4, NATIVE, 8.2, TrialKind.CONFIRM),
    ]  # fmt: skip
    best = not_none(native_best(SPEC, trials))
    assert (best.configuration, best.confirmed) == (NATIVE, True)
    unconfirmed = not_none(native_best(SPEC, [t for t in trials if t.configuration != NATIVE]))
    assert (unconfirmed.configuration, unconfirmed.confirmed) == (FASTER, False)


def test_nothing_faster_is_the_baseline_and_nothing_feasible_is_nothing() -> None:
    slower = [run(0, BASELINE, 10.0, TrialKind.BASELINE), run(1, NATIVE, 12.0)]
    best = not_none(native_best(SPEC, slower))
    assert best.configuration == BASELINE
    assert native_best(SPEC, [f.failed(1, configuration=NATIVE)]) is None
    assert native_best(SPEC, [run(1, SEAM, 4.0)]) is None


def test_one_that_failed_later_is_not_feasible_any_more() -> None:
    trials = [run(0, BASELINE, 10.0, TrialKind.BASELINE), run(1, NATIVE, 8.0), f.failed(5, configuration=NATIVE)]
    best = not_none(native_best(SPEC, trials))
    assert best.configuration == BASELINE

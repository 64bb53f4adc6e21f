"""What becomes of every known failure of verl's: as verl 0.9.1, Hydra 1.3 and Ray 2.60 write them."""

from __future__ import annotations

import re

import pytest

from tests.support.failure_texts import OF_FRAMEWORKS
from tests.support.not_none import not_none
from trainer.child.contract import SIGNS, FailureReason, Phase, Pool, StartupPart
from trainer.frameworks import verl
from trainer.frameworks.verl.failures import SUGGESTIONS, VERL

ILLEGAL, OOM, INFRA = FailureReason.ILLEGAL, FailureReason.OOM, FailureReason.INFRA
MET = OF_FRAMEWORKS["verl"]
EACH = pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in MET.items() for text in texts])


@EACH
def test_a_text_is_known_and_says_what_to_try(name: str, text: str) -> None:
    sign = next(sign for sign in VERL if sign.name == name)
    found = not_none(verl.diagnose(f"step 1\n{text}\n"))
    assert (found.reason, found.pool, found.phase) == (sign.reason, sign.pool, sign.phase)
    assert found.suggestion == SUGGESTIONS[name]
    assert found.message == text.strip()[:400]


@EACH
def test_rays_echo_of_it_does_not_hide_it(name: str, text: str) -> None:
    if name == "ray_killed":
        return
    echo = "ray.exceptions.RayTaskError(ValueError): ray::TaskRunnerV1.run() (pid=7, ip=127.0.0.1)"
    found = not_none(verl.diagnose(f"{text}\n{echo}\n(TaskRunner pid=7) Error executing job with overrides\n"))
    assert found.message == text.strip()[:400]


def test_every_sign_is_met_and_every_text_is_hit_by_what_was_met() -> None:
    assert {sign.name for sign in VERL} == set(MET)
    for sign in VERL:
        for text in sign.texts:
            pattern = ".*".join(re.escape(part) for part in text.split("…"))
            assert any(re.search(pattern, met) for met in MET[sign.name]), text
    assert not {sign.name for sign in VERL} & {sign.name for sign in SIGNS}
    assert {sign.name for sign in VERL} <= set(SUGGESTIONS)


def test_memory_is_still_memory_behind_ray() -> None:
    log = (
        "ray.exceptions.RayTaskError(OutOfMemoryError): ray::WorkerDict.actor_rollout_update_actor() (pid=9)\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    )
    found = not_none(verl.diagnose(log))
    assert (found.reason, found.pool) == (OOM, Pool.DEVICE)
    host = verl.diagnose("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.")
    assert host is not None
    assert (host.reason, host.pool) == (OOM, Pool.HOST)


def test_innocent_lines_say_nothing() -> None:
    for text in ("", "[validate_config] All configuration checks passed successfully!", "step:1 - timing_s/gen:2.0"):
        assert verl.diagnose(text) is None


@pytest.mark.parametrize(
    ("where", "words"),
    [
        (Phase.LOGPROB, "lower logprob_rows"),
        (Phase.UPDATE, "lower micro_batch_size (update_tokens"),
        (Phase.SYNC, "lower gpu_memory_utilization"),
        (StartupPart.ENGINE.value, "lower gpu_memory_utilization"),
    ],
)
def test_out_of_memory_is_answered_by_its_place(where: Phase | str, words: str) -> None:
    assert verl.suggest(OOM, where, Pool.DEVICE).startswith(words)


def test_a_rewards_failure_is_looked_for_inside_generation() -> None:
    assert "inside generation" in verl.suggest(FailureReason.REWARD_ERROR)
    assert verl.suggest(ILLEGAL).startswith("the framework refuses it")
    assert verl.suggest(INFRA)

"""Each framework's own failures are recognised by their texts, as its sources write them, and answered by the place."""

from __future__ import annotations

import re

import pytest

from tests.support.failure_texts import OF_FRAMEWORKS
from tests.support.imports import of
from tests.support.not_none import not_none
from trainer.child.contract import SIGNS, FailureReason, Phase, Pool, Sign, StartupPart
from trainer.frameworks import ms_swift, open_r1, verl
from trainer.frameworks.common.failures import Diagnosis
from trainer.frameworks.ms_swift import OWN_SIGNS as OF_SWIFT
from trainer.frameworks.open_r1 import OWN_SIGNS as OF_OPEN_R1
from trainer.frameworks.verl.failures import SUGGESTIONS, VERL

OOM = FailureReason.OOM
SIGNS_OF: dict[str, tuple[Sign, ...]] = {"ms_swift": OF_SWIFT, "open_r1": OF_OPEN_R1, "verl": VERL}
DIAGNOSE = {"ms_swift": ms_swift.diagnose, "open_r1": open_r1.diagnose, "verl": verl.diagnose}
SUGGEST = {"ms_swift": ms_swift.suggest, "open_r1": open_r1.suggest, "verl": verl.suggest}
SUGGESTIONS_OF = {"ms_swift": ms_swift.SUGGESTIONS, "open_r1": open_r1.SUGGESTIONS, "verl": SUGGESTIONS}
EACH = pytest.mark.parametrize("framework", sorted(SIGNS_OF))
TEXTS = [(of, name, text) for of in sorted(SIGNS_OF) for name, texts in OF_FRAMEWORKS[of].items() for text in texts]
OUT_OF_MEMORY = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB"


def known(framework: str, text: str) -> Diagnosis:
    return not_none(DIAGNOSE[framework](text))


@pytest.mark.parametrize(("framework", "name", "text"), TEXTS)
def test_a_text_is_known_and_says_what_to_try(framework: str, name: str, text: str) -> None:
    sign = next(sign for sign in SIGNS_OF[framework] if sign.name == name)
    found = known(framework, f"step 1\nTraceback (most recent call last):\n{text}\n")
    assert (found.reason, found.pool, found.phase) == (sign.reason, sign.pool, sign.phase)
    assert found.suggestion == SUGGESTIONS_OF[framework][name] != ""
    assert found.message in text


@EACH
def test_every_sign_is_met_and_every_text_of_it_is_hit(framework: str) -> None:
    signs, met = SIGNS_OF[framework], OF_FRAMEWORKS[framework]
    assert {sign.name for sign in signs} == set(met)
    for sign in signs if framework == "verl" else ():
        assert sign.name not in {shared.name for shared in SIGNS}
        for text in sign.texts:
            pattern = ".*".join(re.escape(part) for part in text.split("…"))
            assert any(re.search(pattern, line) for line in met[sign.name]), text


@pytest.mark.parametrize(("name", "text"), [(name, text) for of, name, text in TEXTS if of == "verl"])
def test_rays_echo_of_a_failure_does_not_hide_it(name: str, text: str) -> None:
    if name == "ray_killed":
        return
    echo = "ray.exceptions.RayTaskError(ValueError): ray::TaskRunnerV1.run() (pid=7, ip=127.0.0.1)"
    found = known("verl", f"{text}\n{echo}\n(TaskRunner pid=7) Error executing job with overrides\n")
    assert found.message == text.strip()[:400]


@pytest.mark.parametrize(
    ("framework", "text", "pool"),
    [
        ("open_r1", OUT_OF_MEMORY, Pool.DEVICE),
        ("ms_swift", f"{OUT_OF_MEMORY}\nE1122 torch.distributed.elastic ChildFailedError: exitcode  : 1", Pool.DEVICE),
        ("ms_swift", "torch.distributed.elastic ... exitcode  : -9 (pid: 5)\nSignal 9 (SIGKILL) received", Pool.HOST),
        (
            "verl",
            f"ray.exceptions.RayTaskError(OutOfMemoryError): ray::W.update() (pid=9)\n{OUT_OF_MEMORY}",
            Pool.DEVICE,
        ),
        ("verl", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", Pool.HOST),
    ],
)
def test_memory_is_told_as_everywhere(framework: str, text: str, pool: Pool) -> None:
    found = known(framework, text)
    assert (found.reason, found.pool) == (OOM, pool)


@EACH
@pytest.mark.parametrize("text", of("an_innocent_line_says_nothing"))
def test_an_innocent_line_says_nothing(framework: str, text: str) -> None:
    assert DIAGNOSE[framework](text) is None
    assert not any(sign.found_in(text) for sign in (*SIGNS, *SIGNS_OF[framework]))


@pytest.mark.parametrize(
    ("framework", "where", "pool", "words"),
    [
        ("verl", Phase.LOGPROB, Pool.DEVICE, "lower logprob_rows"),
        ("verl", Phase.UPDATE, Pool.DEVICE, "lower micro_batch_size (update_tokens"),
        ("verl", Phase.SYNC, Pool.DEVICE, "lower gpu_memory_utilization"),
        ("verl", StartupPart.ENGINE.value, Pool.DEVICE, "lower gpu_memory_utilization"),
        ("ms_swift", Phase.LOGPROB, Pool.DEVICE, "lower logprob_rows or micro_batch_size"),
        ("ms_swift", Phase.GENERATE, Pool.ROLLOUT_CACHE, "raise gpu_memory_utilization"),
        ("open_r1", Phase.LOGPROB, Pool.DEVICE, "lower micro_batch_size"),
        ("open_r1", "load", Pool.DEVICE, "set master_weights bf16"),
        ("open_r1", "engine", Pool.DEVICE, "lower gpu_memory_utilization"),
    ],
)
def test_out_of_memory_is_answered_by_its_place(framework: str, where: Phase | str, pool: Pool, words: str) -> None:
    assert SUGGEST[framework](OOM, where, pool).startswith(words)


def test_other_failures_have_an_answer_of_their_own() -> None:
    assert all("logprob_rows" not in open_r1.suggest(OOM, phase, Pool.DEVICE) for phase in Phase), "it has no such knob"
    assert ms_swift.suggest(FailureReason.CANCELLED) == ""
    assert "inside generation" in verl.suggest(FailureReason.REWARD_ERROR)
    assert verl.suggest(FailureReason.ILLEGAL).startswith("the framework refuses it")

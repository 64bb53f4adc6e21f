"""The same, over several ranks, under ZeRO, compiled, and with the completions of other engines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.parity.cases import (
    BATCHED,
    COMPILED,
    ENGINES,
    GENERATED,
    LOGP,
    REFERENCE,
    STALE,
    STARTED,
    TWO_RANKS,
    ZERO,
    tolerance,
)
from tests.parity.comparison import compare
from tests.parity.running import ROWS, Case, Ran, build_model, results
from trainer.child.frameworks.trl.engine import ENGINE_SEAMS

pytestmark = [pytest.mark.trl, pytest.mark.full, pytest.mark.timeout(660)]
ASKED = [case for case in ENGINES if case.ask]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_model(tmp_path_factory.mktemp("parity-model"))


@pytest.fixture(scope="module")
def alone(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    yield from results(built, tmp_path_factory.mktemp("parity-alone"), (REFERENCE, GENERATED, *BATCHED))


@pytest.fixture(scope="module")
def compiled(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    yield from results(built, tmp_path_factory.mktemp("parity-compiled"), (REFERENCE, *COMPILED))


@pytest.fixture(scope="module")
def two_ranks(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    yield from results(built, tmp_path_factory.mktemp("parity-ranks"), TWO_RANKS, ranks=2)


@pytest.fixture(scope="module")
def zero(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    yield from results(built, tmp_path_factory.mktemp("parity-zero"), ZERO, ranks=2)


@pytest.fixture(scope="module")
def engines(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    yield from results(built, tmp_path_factory.mktemp("parity-engines"), (*STALE, *ENGINES))


@pytest.fixture(scope="module", params=STARTED, ids=lambda case: case.name)
def started(request: pytest.FixtureRequest, built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """(a case, what it did in a process of its own)."""
    for ran in results(built, tmp_path_factory.mktemp("parity-started"), (request.param,)):
        yield request.param, ran


def agrees(ran: Ran, case: Case, reference: Ran) -> None:
    difference = compare(ran.update(case.name), reference.update(case.against))
    assert difference.broken(tolerance(case)) == [], difference


@pytest.mark.parametrize("case", COMPILED, ids=lambda case: case.name)
def test_compiled(compiled: Ran, case: Case) -> None:
    agrees(compiled, case, compiled)
    assert compiled.facts(case.name)["torch_compile"] != compiled.facts("reference")["torch_compile"]


def test_started_with_other_variables(started: tuple[Case, Ran], alone: Ran) -> None:
    case, ran = started
    agrees(ran, case, alone)
    found, usual = ran.facts(case.name)["host_allocator"], alone.facts("reference")["host_allocator"]
    assert (found[:26], usual) == ("freed memory is kept: True", "freed memory is kept: False, None")
    assert ("hugetlb" in found) == (case.knobs["host_allocator"] == "keep_huge_pages")


@pytest.mark.parametrize("case", BATCHED, ids=lambda case: case.name)
def test_continuous_batching(alone: Ran, case: Case) -> None:
    """It generates the same, and leaves nothing behind that the update would meet."""
    agrees(alone, case, alone)
    assert alone.rollout(case.name)["completions"] == alone.rollout(case.against)["completions"]


@pytest.mark.parametrize("case", TWO_RANKS, ids=lambda case: case.name)
def test_two_ranks(two_ranks: Ran, alone: Ran, case: Case) -> None:
    agrees(two_ranks, case, alone)
    assert two_ranks.facts(case.name)["ranks"] == 2


@pytest.mark.parametrize("case", ZERO, ids=lambda case: case.name)
def test_zero(zero: Ran, alone: Ran, case: Case) -> None:
    agrees(zero, case, alone)
    seen = zero.facts(case.name)
    assert (seen["ranks"], seen["zero_stage"]) == (2, case.knobs["zero_stage"])


@pytest.mark.parametrize("case", [case for case in ZERO if case.ask], ids=lambda case: case.name)
def test_zero_generates_the_same(zero: Ran, alone: Ran, case: Case) -> None:
    """Weights gathered at once, or layer by layer: the first rank has the first half of each generation."""
    found, whole = zero.rollout(case.name)["completions"], alone.rollout(case.against)["completions"]
    assert found == [rows[: ROWS // 2] for rows in whole]


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.name)
def test_vllm_leaves_the_update_as_it_is(engines: Ran, case: Case) -> None:
    agrees(engines, case, engines)


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.name)
def test_after_each_sync_the_engine_has_the_trainers_weights(engines: Ran, case: Case) -> None:
    seen = engines.rollout(case.name)["mismatch"]
    assert len(seen) == 2
    assert max(seen) <= LOGP, seen


@pytest.mark.parametrize("case", ASKED, ids=lambda case: case.name)
def test_the_engine_was_really_told(engines: Ran, case: Case) -> None:
    """Else every engine would be the same one."""
    engine = engines.facts(case.name)["engine"]
    dtypes = {"fp32": "float32"}
    for knob, argument in ENGINE_SEAMS.items():
        if knob in case.knobs:
            assert engine[argument] == dtypes.get(str(case.knobs[knob]), case.knobs[knob]), knob
    assert engine["max_model_len"] == case.knobs["max_model_len"]


@pytest.mark.parametrize("case", STALE, ids=lambda case: case.name)
def test_a_stale_engine_does_not_pass(engines: Ran, case: Case) -> None:
    """It is right until the weights move, and then far off."""
    first, second = engines.rollout(case.name)["mismatch"]
    assert first <= LOGP
    assert second > 1000 * LOGP

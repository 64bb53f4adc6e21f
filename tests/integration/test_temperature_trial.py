"""Real TRL trials at two temperatures: each has lengths of its own, and the headline keeps the baseline's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autotune.domain import Configuration, Study, Trial, TrialDraft, TrialKind
from autotune.recommendation.recommend import recommend
from autotune.study import protocols
from tests.support import factories as f
from tests.support.trl_trials import (
    OBSERVED,
    PLAIN,
    QUIET,
    Ran,
    build_tiny,
    end,
    launch,
    reward_file,
    tiny_spec,
    write_spec,
)
from trainer.child.contract import CycleKind

pytestmark = pytest.mark.trl

LONGEST = 32
BASELINE = Configuration({"micro_batch_size": 4, "gradient_accumulation_steps": 4, "num_generations": 4})
SPEC = f.study_spec(
    workload=f.workload(rows_per_update=16),
    baseline=BASELINE.with_(temperature=1.0),
    protocol=replace(QUIET, lengths=(), maximum=0),
)
COLD = SPEC.baseline.with_(temperature=0.05)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """The baseline, then a search trial nearly without chance in a study that has recorded other lengths."""
    tiny = build_tiny(tmp_path_factory.mktemp("tiny"))
    study = Study(1, SPEC, f.NOW)
    before = f.finished(0, configuration=SPEC.baseline)
    drafts = {
        "baseline": protocols.baseline_draft(study),
        "cold": TrialDraft(
            TrialKind.SEARCH, COLD, protocols.search_protocol(replace(study, lengths=(5,) * 16), [before], COLD), 16
        ),
    }
    reward, size = reward_file(tiny / "reward", PLAIN), {"max_completion_length": LONGEST}
    folders = {
        name: write_spec(tiny / name, tiny_spec(tiny, reward, draft.protocol, knobs=draft.configuration, **size)).root
        for name, draft in drafts.items()
    }
    end(launch(OBSERVED, list(folders.values()), cwd=tiny))
    return {name: Ran(folder) for name, folder in folders.items()}


def lengths(ran: Ran, kind: CycleKind) -> list[int]:
    return sorted(n for cycle in ran.of(kind) if cycle.accepted for n in cycle.lengths)


def test_each_temperature_is_timed_at_lengths_that_it_drew_itself(ran: dict[str, Ran]) -> None:
    for one in ran.values():
        assert one.result.ok, one.result.detail
        drawn = lengths(one, CycleKind.NATURAL)
        assert one.note("lengths").data["lengths"]
        for cycle in one.of(CycleKind.RECORDED):
            assert sorted(cycle.lengths) == sorted(one.note("lengths").data["lengths"])
            assert set(cycle.lengths) <= set(drawn)
    assert lengths(ran["cold"], CycleKind.NATURAL) != lengths(ran["baseline"], CycleKind.NATURAL)
    assert lengths(ran["cold"], CycleKind.RECORDED) != lengths(ran["baseline"], CycleKind.RECORDED)


def test_the_headline_keeps_the_baselines_temperature_however_fast_the_other_is(ran: dict[str, Ran]) -> None:
    trials = [measured(0, SPEC.baseline, ran["baseline"]), measured(1, COLD, ran["cold"], faster=100.0)]
    found = recommend(SPEC, trials, "")
    assert found is not None
    headline, permitted = found.rows
    assert headline.configuration["temperature"] == 1.0
    assert permitted.title == "If you allow temperature 0.05"
    assert any("completions become longer or shorter" in note for note in found.notes)


def measured(number: int, configuration: Configuration, ran: Ran, faster: float = 1.0) -> Trial:
    cycles = tuple(replace(cycle, seconds=cycle.seconds / faster) for cycle in ran.cycles)
    return f.finished(number, configuration=configuration).with_(cycles=cycles)

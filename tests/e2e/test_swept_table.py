"""A sweep through the command line on a machine with one made-up GPU: rows, processes, repeats, the file, and on again.

Everything of the tuner is real; the driver and the training interpreter are scripts.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from autotune.domain import FailureReason, Pool
from autotune.tables.files import read
from autotune.tables.table import RecordedTable
from search_spaces.knobs.model import Restart
from search_spaces.knobs.restart import restart_between
from tests.support.node import Node
from tests.support.not_none import not_none

pytestmark = pytest.mark.full

SPACE = """\
require: {device: cuda}
knobs:
  rollout_engine: transformers
  micro_batch_size: [1, 2, 4, 8]
  gradient_checkpointing: [true, false]
  attn_implementation: [sdpa, eager]
"""
BATCH = ("--effective-batch", "8", "--max-completion-length", "32", "--set", "num_generations=8")
WORDS = ("--space", "space.yaml", "--repeat-top", "2", "--times", "2", "--export", "t.jsonl.gz", *BATCH)


def sweep(node: Node, *words: str) -> tuple[int, str]:
    workload = ("--model", str(node.model), "--data", "prompts.jsonl", "--reward", "my_reward.py:score")
    done = node.run("sweep", "--python", str(node.python), *workload, "--no-live", *WORDS, *words)
    return done.returncode, done.stdout + done.stderr


def workers(node: Node) -> int:
    """Processes that trials of the rows ran in."""
    return sum(one["argv"][1] == "worker" for one in node.launches())


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Node:
    node = Node(tmp_path_factory.mktemp("node"), [{}])
    (node.folder / "space.yaml").write_text(SPACE)
    code, said = sweep(node, "--rows", "7")
    assert code == 0, said
    assert "7, 0 still to be run" in said
    code, said = sweep(node)
    assert code == 0, said
    (node.folder / "end.txt").write_text(said)
    return node


@pytest.fixture(scope="module")
def table(swept: Node) -> RecordedTable:
    return read(swept.folder / "t.jsonl.gz")


def test_every_legal_combination_is_a_row_whichever_call_recorded_it(swept: Node, table: RecordedTable) -> None:
    assert len(table.rows) == 16
    assert len({row.configuration for row in table.rows}) == 16
    trials = swept.document("trials")["trials"]
    assert Counter(t["kind"] for t in trials) == {"baseline": 1, "search": 15, "verify": 4}


def test_what_does_not_fit_is_a_row_with_where_it_ended(table: RecordedTable) -> None:
    failed = [row for row in table.rows if not row.trial.feasible]
    assert {row.configuration["micro_batch_size"] for row in failed} == {8}
    assert len(failed) == 4
    for row in failed:
        outcome = not_none(row.trial.outcome)
        assert (outcome.reason, outcome.phase, outcome.pool) == (FailureReason.OOM, "update", Pool.DEVICE)
        assert row.trial.seconds


def test_rows_share_a_process_until_a_key_or_a_failure_ends_it(swept: Node, table: RecordedTable) -> None:
    rows = sorted(table.rows, key=lambda row: row.trial.number)
    begun = 1
    for before, row in pairwise(rows):
        other = restart_between(before.configuration, row.configuration) > Restart.NONE
        begun += other or not before.trial.feasible
    again = sum(row.trial.attempt - 1 for row in rows)
    assert again <= 4
    trials = [one for one in swept.launches() if one["argv"][1] == "trial"]
    assert workers(swept) <= begun + again + 1, "one more for the second call"
    assert len(trials) >= 4, "repeats are processes of their own"


def test_a_row_has_phases_peaks_and_start_up(table: RecordedTable) -> None:
    fitting = next(row for row in table.rows if row.trial.feasible)
    cycle = fitting.trial.speed_cycles()[0]
    assert set(cycle.phases) >= {"generate", "update"}
    assert cycle.peaks["cycle"].device_used
    assert fitting.trial.startup["load"] == pytest.approx(0.01)
    assert fitting.worst_case is not None
    assert table.header.lengths == (16,) * 8
    assert table.header.hardware["gpus"]
    assert table.header.probe["bandwidth"] == 2e12


def test_the_device_was_measured_once_for_both_calls(swept: Node) -> None:
    assert sum(one["argv"][1] == "probe_speed" for one in swept.launches()) == 1


def test_the_two_fastest_were_repeated_twice(table: RecordedTable) -> None:
    often = sorted((len(row.repeats) for row in table.rows), reverse=True)
    assert often[:3] == [2, 2, 0]


def test_the_same_command_again_runs_nothing(swept: Node, table: RecordedTable) -> None:
    before = Counter(one["argv"][1] for one in swept.launches())
    code, said = sweep(swept)
    after = Counter(one["argv"][1] for one in swept.launches())
    assert code == 0, said
    assert (after["trial"], after["worker"]) == (before["trial"], before["worker"])
    assert read(swept.folder / "t.jsonl.gz") == table


def test_a_dry_run_says_what_it_would_be(swept: Node) -> None:
    code, said = sweep(swept, "--rows", "9", "--dry-run")
    assert code == 0, said
    assert "9 rows of 16 legal combinations, in at least 2 processes" in said

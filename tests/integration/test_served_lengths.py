"""Recorded lengths through TRL's own client, from the scripted server and from vLLM's own.

The real server is launched on a CPU by the command line trials are launched by; passing weights on needs NCCL and so
two GPUs: that is not yet measured on a GPU.
"""

from __future__ import annotations

import functools
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.ports import Companion, Place
from autotune.running.companion import free_ports
from tests.contracts.runner_suite import tagged
from tests.support.rollout_servers import ASKED, HOME, check_lengths, check_trial, real_server, run, spec_for, trial
from tests.support.scripted_framework import SERVER
from tests.support.trl_trials import LENGTHS, QUIET
from trainer.child.contract import CycleKind, Protocol, StartupPart, StartupRecord, TrialSpec
from trainer.frameworks.common.serving import base_url
from trainer.frameworks.trl import server

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.full, pytest.mark.trl]
NATURAL = Protocol(warmup=1, natural=1, recorded=2, lengths=LENGTHS, outside_cpu_limit=9.0)


def test_trls_client_gets_every_row_as_long_as_told(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    log = tmp_path / "told"
    companion = Companion(
        argv=(sys.executable, str(SERVER), str(port), "scripted", json.dumps({"told": str(log)})),
        spec=spec_for(port, "m"),
        health=f"{base_url(port)}/v1/models",
        answer='"scripted"',
        ready_s=30,
    )
    answers = run(tmp_path / "attempt", companion, ASKED).answers
    check_lengths(answers)
    rows = [[row[0] // 100 for row in answer["completions"]] for answer in answers]
    assert rows == [[p[0] for p in ASKED["prompts"] for _ in range(4)]] * 3, "each row belongs to its own prompt"
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    assert [r["n"] for r in requests if "ignore_eos" not in r] == [4], "natural lengths: TRL's own request"
    assert sum(len(r["prompt"]) for r in requests if r.get("ignore_eos")) == 24
    assert {r["model"] for r in requests} == {"scripted"}


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_whole_trl_trial_beside_a_server(tiny: Path, tmp_path: Path, ranks: int) -> None:
    """Of several ranks one speaks to the server, for all: rows, tokens and weights are counted once."""
    log = tmp_path / "told"

    def launch(spec: TrialSpec, place: Place) -> Companion:
        script = json.dumps({"told": str(log), "vocabulary": 259})
        return Companion(
            argv=(sys.executable, str(SERVER), str(place.port), "scripted", script),
            spec=replace(spec, settings={**spec.settings, **server.trainer_settings(place.port, place.group_port)}),
            health=f"{base_url(place.port)}/v1/models",
            answer='"scripted"',
            ready_s=30,
        )

    # Its log-probs are made up; with top_p TRL's are not compared with the rollout's.
    report, seen = trial(tiny, tmp_path / "attempt", launch, QUIET, ranks, top_p=0.9)
    check_trial(report, seen, ranks)
    requests = [json.loads(line) for line in log.read_text().splitlines()]
    synced = [request for request in requests if request["path"] == "/collective_rpc"]
    cycles = [cycle for cycle in seen.cycles() if cycle.rank == 0]
    assert len(synced) == len(cycles), "weights once for every update"
    rows = sum(len(r["prompt"]) * r["n"] for r in requests if r["path"] == "/v1/completions")
    assert rows == 16 * len(cycles)
    assert all(cycle.completion_tokens == sum(cycle.lengths) and cycle.rows == 16 for cycle in seen.cycles())
    parts = [record.part for record in seen.records if isinstance(record, StartupRecord)]
    assert parts[0] is StartupPart.SERVER
    assert StartupPart.ENGINE in parts


def test_a_whole_trl_trial_beside_vllms_own_server(tiny: Path, tmp_path: Path) -> None:
    """With the same weights on both sides the log-probs of natural cycles agree, or the trial would be QUALITY."""
    launch = functools.partial(real_server, folder=tmp_path)
    report, seen = trial(tiny, tmp_path / "attempt", launch, NATURAL)
    check_trial(report, seen)
    (natural,) = (cycle for cycle in seen.cycles() if cycle.cycle_kind is CycleKind.NATURAL)
    assert natural.rows == 16
    assert natural.preemptions == 0
    assert natural.logp_mismatch < 1.01
    assert tagged(HOME) == []

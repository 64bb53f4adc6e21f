"""verl's Ray: the CPUs it is told of, what it is seen to lack, its token, and where the compiled engine is kept."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from search_spaces.configuration import Configuration
from tests.support.verl_cases import Combination, machine
from trainer.child.contract import RunPaths, StartupPart
from trainer.child.failures import IllegalSettingError
from trainer.child.frameworks.verl import overrides, run
from trainer.child.frameworks.verl.run import PATIENCE_S, RayDemands, unmet
from trainer.frameworks.common.exported import RUN
from trainer.frameworks.verl import export
from trainer.frameworks.verl.hydra import split
from trainer.frameworks.verl.import_config import import_config
from trainer.frameworks.verl.ray import CPUS, SPARE, UNITS, cpus, cpus_of

STATE = """2026-11-27 20:04:42,380	INFO autoscaler.py:408 --
======== Autoscaler status: 2026-11-27 20:04:42.380466 ========
Node status
---------------------------------------------------------------
Active:
 1 node_d36467d6cd1a113a2fa5eda337e6a38898068b5a711841e50a82f606
Pending:
 (no pending nodes)
Recent failures:
 (no failures)

Resources
---------------------------------------------------------------
Total Usage:
 %s/%s CPU
 0.0/1.0 GPU
 0B/15.45GiB memory
 0B/6.62GiB object_store_memory

From request_resources:
 (none)
Pending Demands:
%s
2026-11-27 20:04:42,381	INFO autoscaler.py:469 -- The autoscaler took 0.002 seconds to complete the update iteration.
"""
"""As Ray 2.60 wrote it on two cores, with nine actors of one CPU each."""
ACTORS = " {'CPU': 1.0}: 7+ pending tasks/actors"
POOL = " {'CPU': 3.0, 'GPU': 1.0} * 1 (STRICT_PACK): 1+ pending placement groups"
STUCK = STATE % ("2.0", "2.0", ACTORS)
MET = STATE % ("9.0", "12.0", " (no resource demands)")


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (STUCK, "{'CPU': 1.0}: 7+ pending tasks/actors; Ray counts 2 CPU and 1 GPU"),
        (STATE % ("9.0", "11.0", POOL), f"{POOL.strip()}; Ray counts 11 CPU and 1 GPU"),
        (STATE % ("9.0", "12.0", POOL), ""),
        (STATE % ("0.0", "2.0", ACTORS), ""),
        (MET, ""),
        (MET + STUCK, "{'CPU': 1.0}: 7+ pending tasks/actors; Ray counts 2 CPU and 1 GPU"),
        (STUCK + MET, ""),
        ("Autoscaler has not yet received load metrics. Waiting.", ""),
        ("", ""),
    ],
)
def test_what_ray_lacks_is_what_is_free_cannot_meet(log: str, said: str) -> None:
    assert unmet(log) == said


def monitor(folder: Path) -> Path:
    logs = folder / "session_2026-11-27_20-03-00_000000_7" / "logs"
    logs.mkdir(parents=True)
    return logs / "monitor.log"


def test_a_demand_that_stands_too_long_is_told_and_one_that_is_met_is_not(tmp_path: Path) -> None:
    seen = RayDemands(tmp_path)
    assert seen.stuck(0.0) == ""
    log = monitor(tmp_path)
    log.write_text("x" * (1 << 17) + "\n" + STUCK)
    assert [seen.stuck(10.0 + step) for step in (0.0, 60.0, PATIENCE_S - 1)] == ["", "", ""]
    log.write_text(MET)
    assert seen.stuck(10.0 + PATIENCE_S + 5) == ""
    log.write_text(STUCK)
    sentences = [seen.stuck(200.0 + at) for at in (0.0, 6.0, PATIENCE_S + 1)]
    assert sentences[:2] == ["", ""]
    assert "7+ pending" in sentences[2]


def test_a_start_that_cannot_end_is_illegal_long_before_it_is_a_hang(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The real watch over a verl that runs and says nothing."""
    paths = RunPaths(tmp_path / "trial")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monitor(paths.sockets / "ray").write_text(STUCK)
    places: Any = SimpleNamespace(failed=tmp_path / "none", log=tmp_path / "none")
    tally = SimpleNamespace(look=lambda: False)
    course: Any = SimpleNamespace(places=places, tally=tally, finished=False, generated=False)
    trial: Any = SimpleNamespace(
        paths=paths, part=StartupPart.LOAD, spec=SimpleNamespace(protocol=SimpleNamespace(looks=()))
    )
    watch = run.VerlFollower(trial, course, SimpleNamespace(status=None))  # type: ignore[arg-type]
    clock = itertools.count(0.0, 10.0)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: next(clock), perf_counter=lambda: 0.0))
    assert not any(watch.is_over() for _ in range(int(PATIENCE_S / 10)))
    with pytest.raises(IllegalSettingError, match=r"Ray counts 2 CPU.*num_cpus") as caught:
        any(watch.is_over() for _ in range(2))
    assert "\n" not in str(caught.value)
    trial.part = None
    assert not watch.is_over(), "verl is past its start: what it waits for then is no actor"


@pytest.mark.parametrize(
    ("keys", "gpus", "cores", "expected"),
    [
        ({}, 1, 2, {CPUS: 13}),
        ({}, 1, 12, {CPUS: 13}),
        ({}, 1, 13, {}),
        ({}, 8, 33, {CPUS: 34}),
        ({}, 8, 96, {}),
        ({}, 1, 0, {}),
        ({CPUS: 4}, 1, 96, {CPUS: 13}),
        ({CPUS: 16}, 1, 2, {}),
        ({CPUS: None}, 1, 2, {CPUS: 13}),
        ({UNITS: 1}, 1, 4, {CPUS: 6}),
        ({UNITS: 1}, 1, 6, {}),
    ],
)
def test_ray_is_told_of_more_cpus_only_where_it_would_count_too_few(
    keys: dict[str, Any], gpus: int, cores: int, expected: dict[str, int]
) -> None:
    assert cpus(keys, gpus, cores) == expected
    assert cpus({**keys, **expected}, gpus, cores) == {}, "what it was told is enough"
    assert not expected or expected[CPUS] == cpus_of(keys, gpus) + SPARE


ONE_GPU = Combination(
    Configuration(
        {"micro_batch_size": 4, "gradient_accumulation_steps": 2, "num_generations": 8, "tensor_parallel_size": 1}
    ),
    machine(1),
)


@pytest.mark.parametrize(("cores", "expected"), [(2, 13), (96, None), (0, None)])
def test_an_export_tells_ray_what_its_trials_did(cores: int, expected: int | None) -> None:
    words = export(ONE_GPU.wanted(cores=cores)).command.argv[3:]
    assert dict(map(split, words)).get(CPUS) == expected


def test_a_script_that_tells_ray_of_too_few_is_read_and_said() -> None:
    text = export(ONE_GPU.wanted(passthrough={CPUS: 16}, cores=0)).files[RUN].replace(f"{CPUS}=16", f"{CPUS}=4")
    assert f"{CPUS}=4" in text
    notes = [note for note in import_config(text, RUN).notes if CPUS in note]
    assert len(notes) == 1
    assert "holds 12 CPUs" in notes[0]
    assert f"line {1 + text[: text.index(CPUS)].count(chr(10))}" in notes[0]
    enough = export(ONE_GPU.wanted(passthrough={CPUS: 12}, cores=0)).files[RUN]
    assert not [note for note in import_config(enough, RUN).notes if CPUS in note]


def test_a_trials_ray_has_a_token_of_its_own_and_leaves_none_at_home(tmp_path: Path) -> None:
    own = {"RAY_AUTH_TOKEN_PATH": "/home/me/.ray/auth_token", "RAY_AUTH_MODE": "disabled"}
    first, second = (overrides.environment(RunPaths(tmp_path), own) for _ in range(2))
    assert first["RAY_AUTH_MODE"] == "token"
    assert "RAY_AUTH_TOKEN_PATH" not in first
    assert len(first["RAY_AUTH_TOKEN"]) >= 32
    assert first["RAY_AUTH_TOKEN"] != second["RAY_AUTH_TOKEN"]


@pytest.mark.parametrize(
    ("torch", "own", "expected"),
    [
        ("2.11.0+cu130", {}, "0"),
        ("2.10.0", {}, "0"),
        ("2.9.1", {}, None),
        ("", {}, None),
        ("2.11.0", {"VLLM_DISABLE_COMPILE_CACHE": "1"}, "1"),
    ],
)
def test_what_was_compiled_is_kept_where_torch_writes_it_whole(
    torch: str, own: dict[str, str], expected: str | None, tmp_path: Path
) -> None:
    found = overrides.environment(RunPaths(tmp_path), own, torch)
    assert found.get("VLLM_DISABLE_COMPILE_CACHE") == expected

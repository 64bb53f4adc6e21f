"""What a verl trial tells verl, and what it makes of verl's last words."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.verl_cases import COMPLETION, PROMPT, REWARDS, legal
from tests.support.verl_trials import LENGTHS
from trainer.child.contract import CycleKind, Phase, Protocol, RunPaths, TrialSpec
from trainer.child.failures import IllegalSettingError
from trainer.child.frameworks.hf_trainer.sampling import stretch
from trainer.child.frameworks.verl import overrides, run
from trainer.child.frameworks.verl.board import (
    Board,
    FileTally,
    NewLines,
    Places,
    StepTargets,
    append,
    publish,
    read_board,
)
from trainer.child.frameworks.verl.course import kinds_of
from trainer.child.frameworks.verl.scoring import sampling
from trainer.frameworks import verl
from trainer.frameworks.verl.hydra import split

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,8}", fullmatch=True).filter(
    lambda n: n.lower() not in ("true", "false", "null")
)
TEXTS = st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=12)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))


def spec_of(seed: int, **changes: Any) -> TrialSpec:
    combination = legal(Random(seed))
    arguments: dict[str, Any] = {
        "trial": "1/0",
        "model": "/models/small",
        "prompts": "/studies/1/prompts.jsonl",
        "rewards": REWARDS,
        "rows_per_update": combination.rows,
        "max_prompt_length": PROMPT,
        "max_completion_length": COMPLETION,
        "protocol": Protocol(lengths=LENGTHS),
        "device": "cuda",
        "world_size": combination.resources.gpus,
        "passthrough": {},
    }
    return verl.render(configuration=combination.configuration, **{**arguments, **changes})


@given(value=VALUES)
@example(value=-(10**38))
@example(value=10**3000)
def test_a_value_is_written_as_hydra_reads_it_back(value: Any) -> None:
    """By the reader that verl's own Hydra was compared with."""
    assert split(overrides.override("data.mine", value)) == ("data.mine", value)


@pytest.mark.parametrize("value", [float("nan"), {"a b": 1}, {1: 2}])
def test_what_hydra_has_no_way_to_write_is_refused(value: Any) -> None:
    with pytest.raises(IllegalSettingError):
        overrides.as_hydra(value)


@pytest.mark.parametrize("seed", range(5))
def test_a_trial_says_what_was_rendered_and_measures(seed: int, tmp_path: Path) -> None:
    passed = {"data.mine": "a b", "trainer.total_training_steps": 900, "data.shuffle": True, "env": {"A": "1"}}
    spec = spec_of(seed, passthrough=passed)
    paths = RunPaths(tmp_path)
    Places(tmp_path).folder.mkdir(parents=True)
    argv = overrides.words(spec, paths, "/models/small", 4)
    found = dict(split(word) for word in argv)
    assert len(found) == len(argv)
    assert {key: found[key] for key in spec.settings} == dict(spec.settings)
    assert found["data.mine"] == "a b"
    assert (found["trainer.total_training_steps"], found["data.shuffle"]) == (4, False)
    assert (found["trainer.save_freq"], found["trainer.test_freq"]) == (-1, -1)
    assert found["trainer.val_before_train"] is False
    assert found["ray_kwargs.ray_init.address"] == "local"
    assert "env" not in found
    for key in ("data.custom_cls.path", "reward.custom_reward_function.path"):
        assert Path(found[key]).is_file()
    overrides.check(replace(spec, settings={**spec.settings, "algorithm.filter_groups.enable": False}))


def test_a_trial_is_of_one_process_however_many_gpus_train() -> None:
    spec = next(spec for spec in map(spec_of, range(20)) if spec.settings["trainer.n_gpus_per_node"] > 1)
    assert spec.world_size == 1


@pytest.mark.parametrize("temporary", ["/tmp", "/a/folder/for/temporary/files/of/a/batch/system"])
def test_the_sockets_of_a_ray_have_room(temporary: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", temporary)
    place = RunPaths(tmp_path / ("deep/" * 30)).sockets
    session = "session_2026-11-23_14-00-00_123456_1234567/sockets/plasma_store.1"
    assert len(str(place / "ray" / session)) <= 107
    assert place != RunPaths(tmp_path).sockets


def test_a_place_for_sockets_is_made_anew_and_is_this_users_alone(tmp_path: Path) -> None:
    place = tmp_path / "place"
    place.mkdir()
    (place / "old").touch()
    run.make_sockets(place)
    assert list(place.iterdir()) == []
    assert place.stat().st_mode & 0o777 == 0o700
    link = tmp_path / "link"
    link.symlink_to(place)
    with pytest.raises(FileExistsError) as refused:
        run.make_sockets(link)
    assert refused.value.errno == errno.EEXIST


def test_the_environment_of_verl_is_the_trials_with_its_own_ray() -> None:
    own = {"PATH": "/bin", "PYTHONPATH": "/mine", "RAY_ADDRESS": "10.0.0.1:6379"}
    paths = RunPaths(Path("/studies/1/trials/1/1"))
    found = overrides.environment(paths, own)
    assert "RAY_ADDRESS" not in found
    assert found["PYTHONPATH"].split(os.pathsep)[1:] == ["/mine"]
    assert found["RAY_TMPDIR"] == str(paths.sockets)
    assert found["RAY_USAGE_STATS_ENABLED"] == "0"


TRACE = """(TaskRunnerV1 pid=12, ip=10.0.0.1) step:1 - timing_s/update_actor:3 - timing_s/update_weights:0.1
Traceback (most recent call last):
  File "main_ppo.py", line 100, in run_ppo
ray.exceptions.RayTaskError(%s): ray::TaskRunnerV1.run() (pid=12, ip=10.0.0.1)
  File "trainer_base.py", line 560, in _step_once
%s
%s
"""


@pytest.mark.parametrize(
    ("inner", "phase"),
    [
        ("    batch = self._update_actor(batch, metrics=metrics)", Phase.UPDATE),
        ("    batch = self._compute_old_log_prob(batch, metrics=metrics)", Phase.LOGPROB),
        ("    batch = self._compute_ref_log_prob(batch, metrics=metrics)", Phase.LOGPROB),
        ("    self.checkpoint_manager.update_weights(self.global_steps)", Phase.SYNC),
        ("    self._balance_batch(batch)", None),
    ],
)
def test_a_traceback_tells_the_phase_and_the_metrics_before_it_do_not(inner: str, phase: Phase | None) -> None:
    assert run.place(TRACE % ("ValueError", inner, "ValueError: x")) is phase


def test_without_a_traceback_no_phase_is_told() -> None:
    assert run.place("timing_s/update_actor:3\n") is None


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried"
MISSING = "omegaconf.errors.MissingMandatoryValue: Missing mandatory value: x"


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (TRACE % ("X", "", "ValueError: no such batch"), "ValueError: no such batch"),
        (f"(WorkerDict pid=9) {OOM}\nKeyError: 1\n", OOM),
        ("ray.exceptions.ActorDiedError: The actor died\n", "ray.exceptions.ActorDiedError: The actor died"),
        (f"{MISSING}\n", MISSING),
        ("Error executing job with overrides: ['a=1']\nall is well\n", ""),
        ("", ""),
    ],
)  # fmt: skip
def test_the_telling_line_is_the_cause_without_rays_prefix(said: str, line: str) -> None:
    assert run.telling(said) == line


def test_steps_follow_the_protocol_and_none_is_repeated() -> None:
    protocol = Protocol(warmup=2, natural=1, recorded=2, maximum=1, max_repeats=3)
    assert [kind.value for kind in kinds_of(protocol)] == (
        ["warmup", "warmup", "natural", "recorded", "recorded", "maximum"]
    )
    assert kinds_of(Protocol(warmup=0, recorded=0)) == ()


def test_a_row_is_as_long_as_its_step_says_and_else_as_the_model_likes() -> None:
    own = {"temperature": 0.7, "stop": ["x"]}
    assert sampling(own, StepTargets(CycleKind.NATURAL), 1) == own
    found = sampling(own, StepTargets(CycleKind.RECORDED, (3, 9)), 1)
    assert found == {
        "temperature": 0.7, "max_tokens": 9, "ignore_eos": True, "stop": [], "stop_token_ids": []
    }  # fmt: skip
    assert own["stop"] == ["x"]


@given(prompt=st.lists(st.integers(), min_size=1, max_size=9), length=st.integers(0, 30))
def test_a_prompt_is_stretched_to_its_length_and_keeps_its_end(prompt: list[int], length: int) -> None:
    found = stretch(prompt, length)
    assert len(found) == max(length, len(prompt))
    assert found[-len(prompt) :] == prompt


def test_what_is_told_is_taken_line_by_line_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines = NewLines(path)
    assert lines.take() == []
    path.write_bytes(b"[1]\n[2")
    assert lines.take() == [b"[1]"]
    assert lines.take() == []
    with path.open("ab") as stream:
        stream.write(b"]\n")
    assert lines.take() == [b"[2]"]


def test_the_board_and_the_tally_are_read_as_written(tmp_path: Path) -> None:
    places = Places(tmp_path)
    places.folder.mkdir(parents=True)
    assert read_board(places) is None
    board = Board(
        2, 4, 3, 64, (StepTargets(CycleKind.WARMUP, (9,) * 8, stretched=True), StepTargets(CycleKind.NATURAL))
    )
    publish(places, board)
    assert read_board(places) == board
    append(places.rows, [1, 0, 5, 6])
    append(places.scores, [0, 1.5])
    tally = FileTally(places)
    assert tally.look()
    assert not tally.look()
    assert (tally.rows, tally.scores) == ({1: {0: (5, 6)}}, {0: [1.5]})

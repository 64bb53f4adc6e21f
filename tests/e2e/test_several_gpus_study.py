"""Whole studies through the command line on a machine with four made-up GPUs, from the options to the launch lines.

Everything of the tuner is real; the driver, the training interpreter and the rollout server are scripts. What the
launches do on GPUs is not yet measured on a GPU.
"""

from __future__ import annotations

import functools
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.commands import tagged
from tests.support.node import Node
from tests.support.waiting import PATIENCE_S

pytestmark = pytest.mark.full

FOUR = [{}] * 4
SPACE = """\
require: {device: cuda, gpus: 2}
knobs:
  rollout_engine: vllm
  rollout_mode: [colocate, server]
  rollout_gpus: [1, 2]
  rollout_data_parallel_size: [1, 2]
  gpu_memory_utilization: [0.3, 0.95]
  micro_batch_size: [1, 2, 8]
"""
BATCH = ("--effective-batch", "24", "--max-completion-length", "32")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    """A study of the whole small space, baseline 4 + 0, run once."""
    node = Node(tmp_path_factory.mktemp("node"), FOUR)
    (node.folder / "space.yaml").write_text(SPACE)
    done = node.start("--max-trials", "30", "--space", "space.yaml", "--sampler", "grid", *BATCH)
    assert done.returncode == 0, done.stderr
    (node.folder / "end.txt").write_text(done.stdout + done.stderr)
    return node


def option(argv: list[str], name: str) -> str:
    return argv[argv.index(name) + 1]


@functools.cache
def trials(node: Node) -> list[dict[str, Any]]:
    """Of a study that has ended; asked for once."""
    found: list[dict[str, Any]] = node.document("trials")["trials"]
    return sorted(found, key=lambda t: int(t["number"]))


def trained(node: Node) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(trial, launch of its ranks) in the order they ran; a trial whose server did not fit has none."""
    launches = [one for one in node.launches() if "torch.distributed.run" in one["argv"]]
    ran = [t for t in trials(node) if not server_was_full(t)]
    assert len(launches) == len(ran)
    return list(zip(ran, launches, strict=True))


def served(node: Node) -> list[dict[str, Any]]:
    return [one for one in node.launches() if "vllm.entrypoints.cli.main" in one["argv"]]


def server_was_full(trial: dict[str, Any]) -> bool:
    return trial["outcome"] is not None and str(trial["outcome"]["log_path"]).endswith("server.txt")


def knobs(trial: dict[str, Any]) -> dict[str, Any]:
    configuration: dict[str, Any] = trial["configuration"]
    return configuration


def split(trial: dict[str, Any]) -> tuple[int, int]:
    """(GPUs that train, GPUs of the server)."""
    given = knobs(trial)["rollout_gpus"] if knobs(trial)["rollout_mode"] == "server" else 0
    return 4 - given, given


def test_four_and_none_three_and_one_two_and_two_are_all_tried(node: Node) -> None:
    ended = [t for t in trials(node) if t["outcome"]["ok"]]
    assert {split(t) for t in ended} == {(4, 0), (3, 1), (2, 2)}
    assert split(trials(node)[0]) == (4, 0), "the framework's defaults use all for training"


def test_each_trial_is_launched_on_the_gpus_its_split_says(node: Node) -> None:
    servers = iter([one for one in served(node) if option(one["argv"], "--gpu-memory-utilization") != "0.95"])
    for trial, launch in trained(node):
        training, serving = split(trial)
        assert option(launch["argv"], "--nproc-per-node") == str(training)
        numbers = [str(n) for n in range(4)]
        assert launch["environment"]["CUDA_VISIBLE_DEVICES"].split(",") == numbers[:training]
        assert launch["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        if serving:
            server = next(servers)
            assert server["environment"]["CUDA_VISIBLE_DEVICES"].split(",") == numbers[training:]
            assert server["environment"]["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
            assert server["environment"]["VLLM_HOST_IP"] == launch["environment"]["VLLM_HOST_IP"] == "127.0.0.1"
            assert option(server["argv"], "--host") == "127.0.0.1"
            assert option(server["argv"], "--data-parallel-size") == str(serving)
    assert next(servers, None) is None


def test_an_update_has_the_same_rows_whoever_trains(node: Node) -> None:
    assert {t["rows_per_update"] for t in trials(node)} == {24}
    for trial in trials(node):
        made = split(trial)[0] * knobs(trial)["micro_batch_size"] * knobs(trial)["gradient_accumulation_steps"]
        assert made == 24


def test_what_ran_out_on_one_side_is_known_for_every_other_setting_of_the_other(node: Node) -> None:
    """The server's share of 0.95 does not fit, whatever the trainer is; a micro-batch of 8 on no GPU that trains."""
    full = [t for t in trials(node) if t["outcome"]["reason"] == "OOM"]
    ends = [server_was_full(t) for t in full]
    assert ends.count(True) == 1, [knobs(t) for t in full]
    assert ends.count(False) >= 1
    for trial in full:
        outcome = trial["outcome"]
        assert outcome["pool"] == "device"
        assert (outcome["phase"] == "update") is not server_was_full(trial)
        assert ("spread a replica" if server_was_full(trial) else "lower micro_batch_size") in outcome["suggestion"]
    assert not any(
        knobs(t)["gpu_memory_utilization"] == 0.95 for t in trials(node) if split(t)[1] and t["outcome"]["ok"]
    )
    splits = [split(t) for t in full if not server_was_full(t)]
    assert len(splits) == len(set(splits)), "once for each split"


def test_the_winner_is_a_split_and_its_figure_is_over_all_four_gpus(node: Node) -> None:
    best = node.document("best")["recommendation"]["rows"][0]
    assert best["configuration"]["rollout_mode"] == "server"
    assert best["confirmed"]
    assert best["gpus"] == 4
    assert best["tokens_per_hour_per_gpu"] == pytest.approx(best["tokens_per_hour"] / 4)
    end = (node.folder / "end.txt").read_text()
    assert "for each of 4 GPUs" in end
    assert "rollout_mode" in end


def test_the_fullest_gpu_of_any_rank_is_the_peak(node: Node) -> None:
    peaks = {split(t): t["device_peak_bytes"] >> 30 for t in trials(node) if t["outcome"]["ok"]}
    assert peaks == {(4, 0): 43, (3, 1): 42, (2, 2): 41}, "rank 3's, 2's and 1's"


def test_gpu_hours_are_those_of_every_gpu_held(node: Node) -> None:
    spent = node.document("status")["spent"]
    assert spent["gpu_seconds"] == pytest.approx(4 * spent["wall_seconds"])
    assert "GPU-hours" in node.run("report").stdout


def test_a_trial_says_who_trained_and_who_generated(node: Node) -> None:
    ended = {split(t): t["number"] for t in trials(node) if t["outcome"]["ok"]}
    for gpus, words in {(4, 0): "4 train;", (3, 1): "3 train, 1 generates;", (2, 2): "2 train, 2 generate;"}.items():
        assert words in " ".join(node.run("show", str(ended[gpus])).stdout.split())


def test_the_split_is_exported_as_two_scripts_that_agree(node: Node, tmp_path: Path) -> None:
    done = node.run("export", "-o", str(tmp_path / "tuned"))
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "tuned"
    first, train = (line.split() for line in done.stdout.splitlines() if line.startswith(("first", "train")))
    assert (first[1:], train[1:]) == (["sh", str(folder / "server.sh")], ["sh", str(folder / "run.sh")])
    config = yaml.safe_load((folder / "grpo.yaml").read_text())
    ranks = yaml.safe_load((folder / "accelerate.yaml").read_text())["num_processes"]
    assert (config["use_vllm"], config["vllm_mode"]) == (True, "server")
    assert config["vllm_server_base_url"] == "http://127.0.0.1:8000"
    assert ranks * config["per_device_train_batch_size"] * config["gradient_accumulation_steps"] == 24
    seen = {}
    for name in ("run.sh", "server.sh"):
        before = len(node.launches())
        process = subprocess.Popen(["sh", name], cwd=folder, env=node.environment("4,5,6,7"), stderr=subprocess.DEVNULL)
        assert process.wait(PATIENCE_S) == 0
        seen[name] = node.launches()[before]
    gpus = {name: one["environment"]["CUDA_VISIBLE_DEVICES"].split(",") for name, one in seen.items()}
    assert len(gpus["run.sh"]) == ranks
    assert gpus["run.sh"] + gpus["server.sh"] == ["4", "5", "6", "7"]
    server = seen["server.sh"]["argv"]
    used = int(option(server, "--tensor-parallel-size")) * int(option(server, "--data-parallel-size"))
    assert used == len(gpus["server.sh"])
    assert f"{ranks} training process" in (folder / "README.md").read_text()
    verified = node.run("verify")
    assert verified.returncode == 5, "the made-up server of an exported script ends at once, and verify says so"
    assert "rollout server" in verified.stderr
    assert "Traceback" not in verified.stderr


def test_nothing_is_left_running(node: Node) -> None:
    assert tagged(node.home) == []


@pytest.mark.parametrize("by", [("--rollout-gpus", "1"), ("--server", "serve.sh")])
def test_a_baseline_of_three_and_one_by_option(by: tuple[str, str], tmp_path: Path) -> None:
    """Open-R1's split as the user's own configuration; the study still tries the others."""
    node = Node(tmp_path, FOUR)
    (tmp_path / "grpo.yaml").write_text(
        "use_vllm: true\nvllm_mode: server\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\n"
        "max_completion_length: 32\n"
    )
    (tmp_path / "space.yaml").write_text(SPACE)
    (tmp_path / "serve.sh").write_text("CUDA_VISIBLE_DEVICES=3 trl vllm-serve --model m --kv_cache_dtype fp8 &\n")
    words = ("--config", "grpo.yaml", "--max-trials", "3", "--space", "space.yaml")
    refused = node.start(*words)
    assert refused.returncode == 2
    assert "grpo.yaml, line 2: vllm_mode server: say with --rollout-gpus how many of the 4 GPUs" in refused.stderr
    done = node.start(*words, *by, visible="3,1,0,2")
    assert done.returncode == 0, done.stderr
    first = trials(node)[0]
    assert (split(first), first["rows_per_update"]) == ((3, 1), 24)
    launch = next(one for one in node.launches() if "torch.distributed.run" in one["argv"])
    assert launch["environment"]["CUDA_VISIBLE_DEVICES"] == "3,1,0"
    assert served(node)[0]["environment"]["CUDA_VISIBLE_DEVICES"] == "2"
    assert ("--kv-cache-dtype" in served(node)[0]["argv"]) is (by[0] == "--server")


@pytest.mark.parametrize(
    ("gpus", "words", "code", "said"),
    [
        ([{}, {"name": "Other", "memory": 24 << 30}, {}], (), 0, "a trial uses GPUs of one kind only"),
        ([{}] * 2, ("--rollout-gpus", "2"), 2, "rollout_gpus 2 of 2 GPUs leaves none for training"),
        ([{}] * 2, ("--ranks", "2"), 2, "--ranks is for runs on a CPU"),
    ],
)
def test_what_cannot_be_held_is_said_in_a_sentence(
    tmp_path: Path, gpus: list[dict[str, Any]], words: tuple[str, ...], code: int, said: str
) -> None:
    done = Node(tmp_path, gpus).start("--max-trials", "1", "--dry-run", *words)
    assert done.returncode == code, done.stderr
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_side_by_side_each_trial_names_the_gpu_the_driver_counts(tmp_path: Path) -> None:
    node = Node(tmp_path, FOUR)
    (tmp_path / "space.yaml").write_text("require: {device: cuda, gpus: 1}\nknobs:\n  micro_batch_size: [1, 2]\n")
    batch = ("--effective-batch", "8", "--max-completion-length", "32", "--sampler", "grid")
    wanted = ("--gpus", "1", "--at-once", "2", "--max-trials", "4", "--space", "space.yaml")
    done = node.start(*wanted, *batch, visible="2,3")
    assert done.returncode == 0, done.stderr
    shown = [node.document("show", str(t["number"]))["trial"]["place"] for t in trials(node)]
    assert {place["name"] for place in shown} == {"GPU 2", "GPU 3"}
    for place in shown:
        (gpu,) = place["gpus"]
        assert (place["name"], gpu["uuid"]) == (f"GPU {gpu['index']}", f"GPU-{gpu['index']:08x}")
    assert node.document("status")["places"] == [], "no tuner runs any more"


def test_doctor_tells_of_each_gpu(tmp_path: Path) -> None:
    node = Node(tmp_path, [{}, {}, {"name": "Other", "memory": 24 << 30}])
    found = json.loads(node.run("doctor", "--python", str(node.python), "--json").stdout)["findings"]
    by_name = {f["name"]: f for f in found if f["name"].startswith("GPU")}
    assert set(by_name) == {"GPU 0", "GPU 1", "GPU 2", "GPUs"}
    assert "not used" in by_name["GPU 2"]["detail"]

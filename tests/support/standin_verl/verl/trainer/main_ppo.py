"""Stands in for ``verl.trainer.main_ppo`` 0.9.1, for trials without a GPU: the same words, files and last words.

It loads what it is told to load as verl does (dataset, agent loop, reward), starts daemons in sessions of their own as
Ray does, and writes a line of its file logger for each step. Nothing is trained. What else happens is said by the
variable ``VERL_STANDIN``, a JSON object:

    step_s      seconds a step takes
    fail        "oom_update", "oom_generate", "unknown_key", "killed": how it ends at step ``at``
    at          that step; 0 is before the log is made
    hang        true: it waits for ever at step ``at``
    stubborn    true: SIGTERM is passed over, by its daemon too
    torn        true: the line of step ``at`` is only half written
    lost        true: a completion of step ``at`` is lost, which verl passes over
    daemon_mib  memory the daemon holds
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import json
import mmap
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SCRIPT: dict[str, Any] = json.loads(os.environ.get("VERL_STANDIN", "{}"))
ROLLOUT = "actor_rollout_ref.rollout."
DAEMON = (
    "import signal, sys, time\n"
    "sys.argv[2:] and signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "held = b'x' * (int(sys.argv[1]) << 20)\n"
    "print('up', flush=True)\n"
    "time.sleep(300)"
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB"


def value_of(text: str) -> Any:
    if text.startswith("'"):
        return text[1:-1].replace("\\'", "'")
    return {"true": True, "false": False, "null": None}.get(text, text)


def settings() -> dict[str, Any]:
    words = [word.lstrip("+").partition("=") for word in sys.argv[1:]]
    found = {key: value_of(text) for key, _, text in words}
    return {key: int(value) if isinstance(value, str) and value.isdigit() else value for key, value in found.items()}


def loaded(path: str, name: str) -> Any:
    """As ``verl.utils.import_utils.load_extern_object`` does it."""
    spec = importlib.util.spec_from_file_location(f"custom_module_{abs(hash(path))}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def start_ray(temporary: str) -> socket.socket:
    """A daemon in a session of its own, a session folder with a socket, and an object store."""
    session = Path(temporary) / f"session_2026-01-01_00-00-00_000000_{os.getpid():07}"
    (session / "sockets").mkdir(parents=True)
    served = socket.socket(socket.AF_UNIX)
    served.bind(str(session / "sockets" / "plasma_store"))
    daemon = subprocess.Popen(
        [
            sys.executable,
            "-c",
            DAEMON,
            str(SCRIPT.get("daemon_mib", 0)),
            *(["stubborn"] if SCRIPT.get("stubborn") else []),
        ],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert daemon.stdout is not None
    daemon.stdout.readline()
    (session / "raylet.pid").write_text(str(daemon.pid))
    handle, name = tempfile.mkstemp(dir="/dev/shm", prefix="plasma")
    os.ftruncate(handle, 1 << 20)
    global STORE  # noqa: PLW0603
    STORE = mmap.mmap(handle, 1 << 20)
    os.unlink(name)
    return served


STORE: Any = None


async def generate(given: dict[str, Any], prompts: Any, loop_of: Any, score: Any, step: int) -> list[tuple[int, int]]:
    group, size = given[ROLLOUT + "n"], given["data.train_batch_size"]
    lost = SCRIPT.get("lost") and SCRIPT.get("at") == step

    async def one(row: dict[str, Any], session: int) -> tuple[int, int]:
        loop = loop_of(prompt_length=given["data.max_prompt_length"], response_length=given["data.max_response_length"])
        own = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": False}
        output = await loop.run(own, **{**row, "session_id": session, "global_steps": step, "uid": f"u{row['index']}"})
        text = "".join("a" for _ in output.response_ids)
        truth = row["reward_model"]["ground_truth"]
        score(data_source=row["data_source"], solution_str=text, ground_truth=truth, extra_info=row["extra_info"])
        return len(output.prompt_ids), len(output.response_ids)

    rows = [prompts[(step - 1) * size + number] for number in range(size)]
    tasks = [one(row, session) for row in rows for session in range(group)]
    if lost:
        tasks.pop().close()
    # What fails is logged, and what is left is trained on.
    done = await asyncio.gather(*tasks, return_exceptions=True)
    for error in (each for each in done if isinstance(each, BaseException)):
        print(f"(AgentLoopWorkerTQ pid=7) Error in _run_prompt: {error}", flush=True)
    return [each for each in done if not isinstance(each, BaseException)]


def fail(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "unknown_key":
        sys.stderr.write("Could not override 'actor_rollout_ref.actor.mine'.\nKey 'mine' is not in struct\n")
        sys.exit(1)
    inner = {"oom_update": "update_actor", "oom_generate": "generate_sequences"}[how]
    sys.stdout.write(
        "\x1b[36m(TaskRunnerV1 pid=7)\x1b[0m step:1 - timing_s/update_weights:0.1 - timing_s/old_log_prob:0.2\n"
        "Traceback (most recent call last):\n"
        '  File "/verl/trainer/main_ppo.py", line 100, in run_ppo\n'
        "ray.exceptions.RayTaskError(OutOfMemoryError): "
        f"\x1b[36mray::WorkerDict.actor_rollout_{inner}()\x1b[39m (pid=9)\n"
        f'  File "/verl/workers/engine_workers.py", line 500, in {inner}\n'
        f"{OOM}\n"
    )
    sys.exit(1)


def figures(rows: list[tuple[int, int]], seconds: float) -> dict[str, Any]:
    prompts, answers = [prompt for prompt, _ in rows], [answer for _, answer in rows]
    return {
        "timing_s/step": seconds,
        **{f"timing_s/{name}": share * seconds for name, share in
           (("gen", 0.5), ("old_log_prob", 0.1), ("update_actor", 0.3), ("update_weights", 0.05))},
        "prompt_length/mean": sum(prompts) / len(rows),
        "response_length/mean": sum(answers) / len(rows),
        "response_length/clip_ratio": 0.0,
        "perf/total_num_tokens": sum(prompts) + sum(answers),
        "critic/score/mean": 0.5,
        "actor/loss": 0.1,
        "actor/grad_norm": 1.5,
        "actor/perf/max_memory_allocated_gb": 1.5,
        "actor/perf/max_memory_reserved_gb": 2.0,
    }  # fmt: skip


def train(given: dict[str, Any]) -> None:
    prompts = loaded(given["data.custom_cls.path"], given["data.custom_cls.name"])(given["data.train_files"])
    score = loaded(given["reward.custom_reward_function.path"], given["reward.custom_reward_function.name"])
    loops = json.loads(Path(given[ROLLOUT + "agent.agent_loop_config_path"]).read_text())
    target = next(loop["_target_"] for loop in loops if loop["name"] == given[ROLLOUT + "agent.default_agent_loop"])
    module, _, name = target.rpartition(".")
    loop_of = getattr(importlib.import_module(module), name)
    assert len(prompts) == given["data.train_batch_size"] * given["trainer.total_training_steps"]
    with open(os.environ["VERL_FILE_LOGGER_PATH"], "wb", buffering=0) as log:
        for step in range(1, given["trainer.total_training_steps"] + 1):
            began, here = time.monotonic(), SCRIPT.get("at") == step
            rows = asyncio.run(generate(given, prompts, loop_of, score, step))
            if here:
                stop_here(rows, log)
            time.sleep(SCRIPT.get("step_s", 0.02))
            data = figures(rows, time.monotonic() - began)
            log.write(json.dumps({"step": step, "data": data}).encode() + b"\n")


def stop_here(rows: list[tuple[int, int]], log: Any) -> None:
    if SCRIPT.get("hang"):
        time.sleep(300)
    if SCRIPT.get("torn"):
        log.write(json.dumps({"step": 1, "data": figures(rows, 1.0)}).encode()[:40])
        raise ValueError("the disk is gone")
    if "fail" in SCRIPT:
        fail(SCRIPT["fail"])


def main() -> None:
    if SCRIPT.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    given = settings()
    print("ray init kwargs:", {"address": given["ray_kwargs.ray_init.address"]}, flush=True)
    assert given["ray_kwargs.ray_init.address"] == "local"
    assert given["ray_kwargs.ray_init.include_dashboard"] is False
    assert "RAY_ADDRESS" not in os.environ
    served = start_ray(given["ray_kwargs.ray_init._temp_dir"])
    if SCRIPT.get("at") == 0:
        stop_here([], None)
    train(given)
    served.close()


if __name__ == "__main__":
    main()

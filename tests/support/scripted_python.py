"""A training interpreter that is only made up, for the tuner to launch everything by as it would on a GPU machine.

``tests/support/node.py`` makes an executable of it. It stands in for

    PYTHON .../start.py probe | prepare | describe --directory D     an environment with TRL, vLLM and DeepSpeed
    PYTHON .../start.py probe_speed --directory D                    a GPU's figures
    PYTHON .../start.py trial --directory D                          a trial of one process
    PYTHON .../start.py worker --directory D                         a warm worker with D as its mailbox
    PYTHON -m torch.distributed.run ... --nproc-per-node N ... trial --directory D   a trial of N ranks
    PYTHON -m vllm.entrypoints.cli.main serve MODEL ...              ``tests/support/scripted_server.py``
    PYTHON .../serve.py FRAMEWORK D ...                              the same, for Open-R1 and ms-swift

Each launch is appended to ``launches.jsonl`` in the folder of the variable ``SCRIPTED_PYTHON``: words, and what of the
environment concerns GPUs. A trial reads the settings TRL would get. Nothing is computed; how fast a configuration is
is decided by ``seconds``, and what does not fit by ``MOST_ROWS`` and ``MOST_SHARE``. A file ``pace.json`` beside
``launches.jsonl`` makes a trial meet things: ``cycle_s`` are real seconds of a cycle, ``segment`` names shared memory
that it maps together with a process of a session of its own, as engines do. The package that the variable
``AUTOTUNE_TRIAL_LACKS`` names is not there.
"""

from __future__ import annotations

import atexit
import json
import mmap
import os
import sys
import time
import urllib.request
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from tests.support import scripted_server, swift_fields
from tests.support.trl_fields import RECORDED
from trainer.child.contract import (
    CycleKind,
    CycleRecord,
    FailureReason,
    Mailbox,
    NoteRecord,
    Peaks,
    Phase,
    PhaseMark,
    Pool,
    Result,
    RunPaths,
    StartupPart,
    StartupRecord,
    TrialSpec,
    WorkerReply,
    WorstCaseRecord,
    dumps,
    read_spec,
    write_atomic,
)
from trainer.child.journal import Journal, is_enough

FOLDER = "SCRIPTED_PYTHON"
PACKAGES = {
    "torch": "2.13.0",
    "trl": "1.16.0",
    "transformers": "5.17.0",
    "accelerate": "1.15.0",
    "datasets": "5.2.0",
    "vllm": "0.31.0",
    "deepspeed": "0.19.8",
}
SWIFT = {"swift": "4.6.0", "trl": "0.29.1", "peft": "0.20.0", "msgspec": "0.20.0", "datasets": "4.8.0"}
OPEN_R1 = {
    "trl": "0.18.0",
    "transformers": "4.52.3",
    "accelerate": "1.4.0",
    "vllm": "0.8.5.post1",
    "deepspeed": "0.16.8",
    "math_verify": "0.5.2",
    "latex2sympy2_extended": "1.0.6",
    "async_lru": "2.0.5",
    "aiofiles": "24.1.0",
    "aiohttp": "3.12.0",
}
OF_FRAMEWORK = {"ms_swift": SWIFT, "open_r1": OPEN_R1}
"""Beside ``PACKAGES``, in the environment of the framework that the variable ``SCRIPTED_FRAMEWORK`` names."""
GIB = 1 << 30
MOST_ROWS = 8
"""A micro-batch of so many rows does not fit on a GPU that trains."""
MOST_SHARE = 0.95
"""A server with so large a share of its GPUs does not fit on them."""
GENERATION_S, UPDATE_S = 2.0, 1.0
"""Of one GPU, for the rows of an update."""
SHARED = 8.0
"""Times slower vLLM generates beside the training; transformers, so much more."""


def seconds(settings: dict[str, Any], ranks: int, serving: int) -> dict[str, float]:
    """THE performance formula: of one cycle, by phase."""
    micro = int(settings["per_device_train_batch_size"])
    update = UPDATE_S / ranks * (1 + 1 / micro)
    if serving:
        return {Phase.GENERATE.value: GENERATION_S / serving, Phase.UPDATE.value: update}
    slower = SHARED if settings.get("use_vllm") else 2 * SHARED
    return {Phase.GENERATE.value: GENERATION_S * slower / ranks, Phase.UPDATE.value: update}


class MadeUpTrial:
    """One trial of ``ranks`` ranks, all told by this process."""

    def __init__(self, spec: TrialSpec, paths: RunPaths, ranks: int) -> None:
        self.spec, self.paths, self.ranks = spec, paths, ranks
        self.settings = dict(spec.settings)
        self.serving = self.servers_gpus() if self.settings.get("vllm_mode") == "server" else 0
        self.mark = PhaseMark(paths.phase)
        self.journal = Journal(paths, marks=False)

    def meet(self) -> float:
        """What ``pace.json`` says; real seconds of a cycle."""
        file = Path(os.environ[FOLDER]) / "pace.json"
        pace = json.loads(file.read_text()) if file.exists() else {}
        if "segment" in pace:
            share_memory(f"{pace['segment']}-{os.getpid()}")
        return float(pace.get("cycle_s", 0.0))

    def servers_gpus(self) -> int:
        """How many the server was given; fails as a client does where there is none."""
        port = self.settings.get("vllm_server_port")
        url = self.settings["vllm_server_base_url"] if port is None else f"http://127.0.0.1:{port[0]}"
        with urllib.request.urlopen(f"{url}/v1/models", timeout=10) as answer:  # noqa: S310
            answer.read()
        return len((self.paths.scratch / "gpus").read_text().split(","))

    def run(self) -> Result:
        if self.spec.world_size != self.ranks:
            return Result(False, FailureReason.ILLEGAL, message=f"{self.ranks} ranks of {self.spec.world_size}")
        made = self.ranks * int(self.settings["per_device_train_batch_size"])
        made *= int(self.settings["gradient_accumulation_steps"])
        if made != self.spec.rows_per_update:
            return Result(False, FailureReason.ILLEGAL, message=f"{made} rows instead of {self.spec.rows_per_update}")
        self.record(StartupRecord(StartupPart.LOAD, 0.01))
        cycle_s = self.meet()
        if int(self.settings["per_device_train_batch_size"]) >= MOST_ROWS:
            self.mark.set(Phase.UPDATE.value, 0, CycleKind.WARMUP.value)
            message = "CUDA out of memory. Tried to allocate 2.00 GiB"
            return Result(False, FailureReason.OOM, Phase.UPDATE, Pool.DEVICE, message)
        protocol = self.spec.protocol
        kinds = [CycleKind.WARMUP] * max(1, protocol.warmup) + [CycleKind.NATURAL] * protocol.natural
        kinds += [CycleKind.RECORDED] * protocol.recorded + [CycleKind.MAXIMUM] * protocol.maximum
        for index, kind in enumerate(kinds):
            time.sleep(cycle_s)
            self.cycle(index, kind)
            if index == protocol.warmup and protocol.natural:
                natural = [self.spec.max_completion_length // 2] * self.spec.rows_per_update
                self.record(NoteRecord("lengths", {"lengths": natural}))
            if index == 0:
                rows, longest = int(self.settings["per_device_train_batch_size"]), self.spec.max_completion_length
                self.record(WorstCaseRecord(rows, self.spec.max_prompt_length, longest, 0.05, self.peaks(0)))
            if kind is CycleKind.RECORDED and protocol.looks and is_enough(self.paths, index):
                break
        return Result(True)

    def cycle(self, index: int, kind: CycleKind) -> None:
        rows, longest = self.spec.rows_per_update, self.spec.max_completion_length
        lengths = (longest,) * rows if kind is CycleKind.MAXIMUM else (longest // 2,) * rows
        phases = seconds(self.settings, self.ranks, self.serving)
        phases = {name: part * (1 + 0.002 * (index % 3)) for name, part in phases.items()}
        for rank in range(self.ranks):  # each writes its own, as the real ranks do
            self.record(
                CycleRecord(
                    index=index,
                    cycle_kind=kind,
                    seconds=sum(phases.values()),
                    phases=phases,
                    completion_tokens=sum(lengths),
                    prompt_tokens=8 * rows,
                    rows=rows,
                    updates=1,
                    computed_tokens=rows * (8 + longest),
                    lengths=lengths,
                    peaks={"cycle": self.peaks(rank)},
                    drift=0.0,
                    outside_cpu=0.0,
                    groups=rows // int(self.settings.get("num_generations", 8)),
                    reward_mean=0.5,
                    rank=rank,
                )
            )

    @staticmethod
    def peaks(rank: int) -> Peaks:
        """The last rank's GPU is the fullest."""
        return Peaks(device_used=(40 + rank) * GIB, device_reserved=(39 + rank) * GIB, host=GIB)

    def record(self, record: Any) -> None:
        self.journal.write(record)


def share_memory(name: str) -> None:
    """Mapped here and by a process that outlives this one until somebody ends it; once for a process.

    As Python does it for engines: with a helper that ignores SIGTERM, and unlinks it when both have been killed.
    """
    if shared:
        return
    shared.append(SharedMemory(name, create=True, size=mmap.PAGESIZE))
    atexit.register(shared[0].unlink)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            time.sleep(600)
        os._exit(0)
    os.wait()


shared: list[SharedMemory] = []


def tell(words: list[str]) -> None:
    names = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "VLLM_HOST_IP", "OMP_NUM_THREADS")
    call = {"argv": words, "environment": {name: os.environ.get(name) for name in names}}
    with open(Path(os.environ[FOLDER]) / "launches.jsonl", "a") as stream:
        stream.write(json.dumps(call) + "\n")


def option(words: list[str], *names: str) -> str:
    """The word behind the first of ``names`` that is there."""
    name = next(name for name in names if name in words)
    return words[words.index(name) + 1]


SIZES = ("--tensor-parallel-size", "--tensor_parallel_size", "--vllm_tensor_parallel_size")
REPLICAS = ("--data-parallel-size", "--data_parallel_size", "--vllm_data_parallel_size")
SHARES = ("--gpu-memory-utilization", "--gpu_memory_utilization", "--vllm_gpu_memory_utilization")


def serve(words: list[str]) -> None:
    """A rollout server as far as a trial asks; its own text if its share is too large."""
    Path("gpus").write_text(os.environ["CUDA_VISIBLE_DEVICES"])
    used = int(option(words, *SIZES)) * int(option(words, *REPLICAS))
    if used != len(os.environ["CUDA_VISIBLE_DEVICES"].split(",")):
        sys.exit(f"{used} GPUs are asked for, and {os.environ['CUDA_VISIBLE_DEVICES']} are visible")
    if any(name in words for name in SHARES) and float(option(words, *SHARES)) >= MOST_SHARE:
        sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.00 GiB")
    named = "--served-model-name" in words
    if named or words[0].endswith("serve.py"):  # a trial's; an exported script's has the framework's own port
        name = option(words, "--served-model-name") if named else ""
        scripted_server.main(int(option(words, "--port")), name, {})


def work(mailbox: Mailbox) -> int:
    """A warm worker, as ``trainer.child.warm`` is one."""
    starter, number = os.getppid(), 1
    while os.getppid() == starter:
        letter = mailbox.read_letter(number)
        if letter is None:
            time.sleep(0.01)
            continue
        if (code := trial(["--directory", letter.directory], 1)) != 0:
            return code
        mailbox.reply(number, WorkerReply(floor=GIB))
        number += 1
    return 0


def trial(words: list[str], ranks: int) -> int:
    paths = RunPaths(Path(option(words, "--directory")))
    try:
        result = MadeUpTrial(read_spec(paths.config), paths, ranks).run()
    except OSError as error:
        result = Result(False, FailureReason.CRASH, message=f"{type(error).__name__}: {error}")
    write_atomic(paths.result, dumps(result))
    return 0 if result.ok else 1


def answer(command: str, paths: RunPaths) -> Result:
    wanted = json.loads(paths.config.read_text())
    if command == "probe":
        packages = {**PACKAGES, **OF_FRAMEWORK.get(os.environ.get("SCRIPTED_FRAMEWORK", ""), {})}
        packages.pop(os.environ.get("AUTOTUNE_TRIAL_LACKS", ""), None)
        data = {"python": "3.11.7", "executable": sys.executable, "packages": packages, "trl_supported": True}
        return Result(ok=True, data=data)
    if command == "probe_speed":
        rates = {"bf16": 5e14, "fp32": 5e13}
        return Result(ok=True, data={"device": "cuda", "name": "made up", "flops": rates, "bandwidth": 2e12})
    if command == "describe":
        swift = os.environ.get("SCRIPTED_FRAMEWORK") == "ms_swift"
        return Result(ok=True, data=swift_fields.RECORDED if swift else RECORDED)
    prompts = paths.root / "prompts.jsonl"
    prompts.write_text('{"prompt": "3 + 4"}\n')
    written = {"count": 1, "found": 1, "longest_prompt": 8, "mean_prompt": 8.0, "sha256": "5" * 64}
    model = {"parameters": 500_000_000, "layers": 24, "hidden_size": 896, "attention_heads": 16}
    found = {"columns": ["prompt"], "rewards": ["score"], "model_folder": wanted["model"], "commit": None}
    data = {**written, **found, "prompts": str(prompts), "model": model}
    return Result(ok=True, data=data)


def main(words: list[str]) -> int:
    if words[1:2] == ["preload"]:
        return 2  # it has nothing to import; each trial is started
    tell(words)
    if words[:2] == ["-m", "vllm.entrypoints.cli.main"] or words[0].endswith("serve.py"):
        serve(words)
        return 0
    if words[:2] == ["-m", "torch.distributed.run"]:
        return trial(words, int(option(words, "--nproc-per-node")))
    if words[0] == "-m":
        return 0
    if words[1] == "trial":
        return trial(words, 1)
    if words[1] == "worker":
        return work(Mailbox(Path(option(words, "--directory"))))
    paths = RunPaths(Path(option(words, "--directory")))
    write_atomic(paths.result, dumps(answer(words[1], paths)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

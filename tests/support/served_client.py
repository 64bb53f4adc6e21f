"""TRL's own client of a rollout server, with our lengths: run by the training interpreter as a trial's process.

``python tests/support/served_client.py DIRECTORY``: asks the server of ``config.json``
(``settings["vllm_server_base_url"]``)
by TRL's ``VLLMGeneration`` and leaves ``answers.json`` and ``result.json``. ``passthrough["asked"]`` says what for:
``prompts`` (token ids), ``n``, ``longest``, and a list of ``lengths``, each a list or null for natural ones;
``wait`` seconds to sleep afterwards.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path[0] = str(Path(__file__).resolve().parents[2])


def generation_of(client: Any, asked: Any) -> Any:
    """As much of TRL's own object as generating takes."""
    from trl.generation.vllm_generation import VLLMGeneration  # noqa: PLC0415

    made = VLLMGeneration.__new__(VLLMGeneration)
    vars(made).update(
        mode="server",
        accelerator=SimpleNamespace(is_main_process=True, process_index=0),
        vllm_client=client,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        repetition_penalty=1.0,
        max_completion_length=asked["longest"],
        logprobs=0,
        structured_outputs_regex=None,
        generation_kwargs={},
    )
    return made


def main(directory: str) -> int:
    from trl.generation.vllm_client import VLLMClient  # noqa: PLC0415

    from trainer.child.contract import Result, RunPaths, dumps, read_spec, write_atomic  # noqa: PLC0415
    from trainer.child.frameworks.trl.server_rollout import ServerWatch, install_lengths  # noqa: PLC0415

    paths = RunPaths(Path(directory))
    spec = read_spec(paths.config)
    asked = spec.passthrough["asked"]
    client = VLLMClient(base_url=spec.settings["vllm_server_base_url"], connection_timeout=30)
    wanted: list[Any] = [None]
    install_lengths(client, lambda: wanted[0])
    generation, watch = generation_of(client, asked), ServerWatch(client)
    prompts = [prompt for prompt in asked["prompts"] for _ in range(asked["n"])]
    answers = []
    for lengths in asked["lengths"]:
        wanted[0] = lengths
        watch.begin()
        prompt_ids, completion_ids, logprobs, _ = generation.generate(prompts, None, asked["n"])
        answers.append(
            {"prompts": prompt_ids, "completions": completion_ids, "logprobs": logprobs, "preemptions": watch.end()[0]}
        )
    (paths.root / "answers.json").write_text(json.dumps(answers))
    time.sleep(float(asked.get("wait", 0)))
    write_atomic(paths.result, dumps(Result(True)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

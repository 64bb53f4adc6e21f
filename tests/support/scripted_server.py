"""A stand-in for a rollout server: the same endpoints, no engine, and whatever misbehaviour a test asks for.

``python tests/support/scripted_server.py PORT NAME JSON``; the JSON object says:

    ready     seconds before it answers as a ready server does (default 0; ``null``: never)
    binds     seconds before it takes its port (default 0)
    sleeps    do nothing at all instead of serving
    text      printed at the start
    dies      exit code, at once
    dies_with  file of its working directory: exits with code 1 once it is there
    dies_on   path of a request: says ``text_on`` and exits with code 1 instead of answering
    ignores   true: SIGTERM does nothing
    spawn     list of ``session`` | ``double_fork``: grandchildren that ignore SIGTERM, told in ``pids``
    bytes     memory it takes
    segment   bytes of shared memory it makes, named in ``segment`` (a file of its working directory)
    vocabulary  tokens of the model, for completions a real trainer can train on
    told      file its requests are written to, one JSON object a line

Its port is in ``port``, a file of its working directory. Standard library only.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()
EOS, SPECIAL = 1, 3


class Handler(BaseHTTPRequestHandler):
    """Answers as vLLM's OpenAI server does, as far as a trial asks."""

    def log_message(self, *_: Any) -> None:
        """Nothing: the log is the script's."""

    def do_GET(self) -> None:
        if not self.ready():
            self.answer(503, {})
        elif self.path == "/v1/models":
            self.answer(200, {"object": "list", "data": [{"id": self.server.name}]})
        elif self.path in ("/health", "/health/"):
            self.answer(200, {"status": "ok"})
        elif self.path.startswith("/server_info"):
            self.answer(200, {"vllm_config": {"model_config": {"logprobs_mode": "processed_logprobs"}}})
        else:
            self.answer(404, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
        if "told" in self.script:
            with open(self.script["told"], "a") as stream:
                stream.write(json.dumps({"path": self.path, **body}) + "\n")
        if self.path == self.script.get("dies_on"):
            print(self.script.get("text_on", ""), flush=True)
            os._exit(1)
        if self.path == "/v1/completions":
            self.answer(200, {"choices": completions(body, self.script.get("vocabulary"))})
        elif self.path in ("/collective_rpc", "/reset_prefix_cache"):
            self.answer(200, {"success": True})
        else:
            self.answer(404, {})

    @property
    def script(self) -> dict[str, Any]:
        return self.server.script

    def ready(self) -> bool:
        after = self.script.get("ready", 0)
        return after is not None and time.monotonic() - BEGAN >= after

    def answer(self, code: int, value: Any) -> None:
        data = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def completions(body: dict[str, Any], vocabulary: int | None = None) -> list[dict[str, Any]]:
    """Prompt-major choices of ``max_tokens`` tokens, or of 3 and an end where the model may stop.

    Token ``i`` of a row is ``first token of its prompt x 100 + i``, so that a row tells whose it is; with a
    ``vocabulary`` it is one of its tokens that ends nothing.
    """
    found = []
    for prompt in body["prompt"]:
        for _ in range(int(body.get("n", 1))):
            tokens = [prompt[0] * 100 + i for i in range(int(body["max_tokens"]))]
            if vocabulary is not None:
                tokens = [SPECIAL + token % (vocabulary - SPECIAL) for token in tokens]
            if not body.get("ignore_eos") and len(tokens) > 3:
                tokens = [*tokens[:3], EOS]
            words = [f"token_id:{token}" for token in tokens]
            logprobs = [-0.5 - i for i in range(len(tokens))]
            found.append(
                {
                    "prompt_token_ids": prompt,
                    "token_ids": tokens,
                    "logprobs": {
                        "tokens": words,
                        "token_logprobs": logprobs,
                        "top_logprobs": [{word: value} for word, value in zip(words, logprobs, strict=True)],
                    },
                }
            )
    return found


def grandchild(how: str) -> None:
    if os.fork() != 0:
        return
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
    if how == "double_fork" and os.fork() != 0:
        os._exit(0)
    with open("pids", "a") as stream:
        stream.write(f"{os.getpid()}\n")
    time.sleep(600)
    os._exit(0)


def _die_with(file: Path) -> None:
    while not file.exists():
        time.sleep(0.01)
    os._exit(1)


def _write_whole(name: str, text: str) -> None:
    """A file that whoever looks finds whole or not at all."""
    new = Path(f"{name}.new")
    new.write_text(text)
    new.rename(name)


def main(port: int, name: str, script: dict[str, Any]) -> None:
    print(f"pid {os.getpid()}")
    print(script.get("text", "scripted server"), flush=True)
    if "dies" in script:
        os._exit(int(script["dies"]))
    if script.get("ignores"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for how in script.get("spawn", ()):
        grandchild(how)
    kept = [bytearray(os.urandom(4096) * (int(script.get("bytes", 0)) // 4096))]
    if "segment" in script:
        segment = shared_memory.SharedMemory(create=True, size=int(script["segment"]))
        resource_tracker.unregister(segment._name, "shared_memory")  # as if the tracker had been killed first
        _write_whole("segment", segment.name)
        kept.append(segment)
    if script.get("sleeps"):
        time.sleep(3600)
    time.sleep(script.get("binds", 0))
    _write_whole("port", str(port))
    if "dies_with" in script:
        threading.Thread(target=_die_with, args=(Path(script["dies_with"]),), daemon=True).start()
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.name, server.script = name, script
    server.serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))

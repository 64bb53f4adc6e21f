"""``torchrun`` for scripted children, without torch: one rank on each node, which meets nobody."""

from __future__ import annotations

import os
import sys


def main(words: list[str]) -> None:
    """Becomes the rank that the words ask for; other words are Python's."""
    if words[:2] != ["-m", "torch.distributed.run"]:
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606
    end = words.index("--log-dir") + 2
    options = dict(zip(words[2:end:2], words[3:end:2], strict=True))
    assert options["--nproc-per-node"] == "1"
    ranks = {"RANK": options["--node-rank"], "LOCAL_RANK": "0", "WORLD_SIZE": options["--nnodes"]}
    meeting = {"MASTER_ADDR": options["--master-addr"], "MASTER_PORT": options["--master-port"]}
    os.environ.update({**ranks, **meeting})
    os.execv(sys.executable, [sys.executable, *words[end:]])  # noqa: S606


if __name__ == "__main__":
    main(sys.argv[1:])

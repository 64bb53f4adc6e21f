"""Looks at the remedies for slow first cycles: run by the training interpreter.

``python tests/support/remedies_checks.py FILE`` writes what it found as JSON;
``tests/integration/test_remedies.py`` judges it.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import torch
from numerics_checks import package

FREE = 1000
REFUSED = ("8GiB", "0.95", "nan")


class Cuda:
    """A GPU with ``FREE`` bytes; keeps what is asked of its allocator."""

    def __init__(self, there: bool = True) -> None:
        self.there, self.asked = there, list[tuple[str, int]]()

    def is_available(self) -> bool:
        return self.there

    def mem_get_info(self) -> tuple[int, int]:
        return FREE, 2 * FREE

    def caching_allocator_alloc(self, size: int) -> int:
        self.asked.append(("alloc", size))
        return 77

    def caching_allocator_delete(self, pointer: int) -> None:
        self.asked.append(("delete", pointer))


def refusal(call: Any) -> str:
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main(file: Path) -> None:
    remedies = importlib.import_module(f"{package()}.frameworks.hf_trainer.remedies")
    switched = {}
    for value in ("0", "1"):
        remedies.switch_attention({remedies.CUDNN: value})
        switched[value] = torch.backends.cuda.cudnn_sdp_enabled()
    remedies.switch_attention({remedies.CUDNN: "0"})
    remedies.switch_attention({})
    switched["without"] = torch.backends.cuda.cudnn_sdp_enabled()
    cuda, none = Cuda(), Cuda(there=False)
    found = {
        "switched": switched,
        "reserved": remedies.reserve({remedies.RESERVE: "0.5"}, cuda),
        "asked": cuda.asked,
        "without": remedies.reserve({}, cuda),
        "on a CPU": remedies.reserve({remedies.RESERVE: "0.5"}, none),
        "asked of none": none.asked,
        "refused": [
            refusal(lambda: remedies.switch_attention({remedies.CUDNN: "off"})),
            *(
                refusal(lambda v=value: remedies.reserve({remedies.RESERVE: v}, cuda))
                for value in ("8GiB", "0.95", "nan")
            ),
        ],
    }
    file.write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""Two remedies for slow first cycles on a GPU, switched by variables of the environment; not yet measured on a GPU.

``AUTOTUNE_TRIAL_CUDNN_ATTENTION=0`` takes cuDNN's kernel, which plans for each new shape, from those that
``scaled_dot_product_attention`` chooses among. ``AUTOTUNE_TRIAL_RESERVE=0.5`` lets CUDA's allocator take that share of
the free device memory at once before the first cycle, so that cycles do not ask the driver for it bit by bit. A third,
``expandable_segments``, is a knob.
"""

from __future__ import annotations

from typing import Any, Mapping, Optional

import torch

from ...failures import IllegalSettingError

CUDNN = "AUTOTUNE_TRIAL_CUDNN_ATTENTION"
RESERVE = "AUTOTUNE_TRIAL_RESERVE"
MOST = 0.9
"""Share of the free memory that may be reserved; libraries beside the allocator need some as well."""


def switch_attention(environment: Mapping[str, str]) -> None:
    """Turns cuDNN's attention on or off by the variable ``CUDNN``.

    Raises:
        IllegalSettingError: it is neither 0 nor 1.
    """
    wanted = environment.get(CUDNN)
    if wanted is None:
        return
    if wanted not in ("0", "1"):
        raise IllegalSettingError("%s: expected 0 or 1, got %r" % (CUDNN, wanted))
    torch.backends.cuda.enable_cudnn_sdp(wanted == "1")


def reserve(environment: Mapping[str, str], cuda: Any = torch.cuda) -> Optional[int]:
    """Makes CUDA's allocator reserve memory as ``RESERVE`` says; returns the bytes, ``None`` without the variable or a
    GPU.

    Raises:
        IllegalSettingError: it is no share from 0 to ``MOST``.
    """
    wanted = environment.get(RESERVE)
    if wanted is None:
        return None
    try:
        share = float(wanted)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= MOST:
        raise IllegalSettingError("%s: expected a share from 0 to %s, got %r" % (RESERVE, MOST, wanted))
    if not cuda.is_available():
        return None
    free, _ = cuda.mem_get_info()
    size = int(share * free)
    cuda.caching_allocator_delete(cuda.caching_allocator_alloc(size))
    return size

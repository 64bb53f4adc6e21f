"""Command line and environment of a trial's processes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from autotune.ports import Rendezvous
from trainer.child.contract import RunPaths, TrialSpec

SHARDING = ("deepspeed", "fsdp")
"""Settings of frameworks that need a launcher even with one process."""


def launched(spec: TrialSpec) -> bool:
    """Tells whether ``torchrun`` starts the trial's processes."""
    return spec.world_size > 1 or any(spec.settings.get(name) for name in SHARDING)


def command(
    python: str, start: Path, paths: RunPaths, spec: TrialSpec, meeting: Rendezvous | None = None
) -> tuple[str, ...]:
    """Returns the command line of the child, under ``torchrun`` if there are several ranks.

    The ranks meet at this machine's loopback address, on a port the system chooses, or as ``meeting`` says.
    """
    child = (str(start), "trial", "--directory", str(paths.root))
    if not launched(spec):
        return (python, *child)
    ranks = (*_place(meeting), "--nproc-per-node", str(_here(spec, meeting)))
    # Without a folder of ours it leaves one of its own under /tmp.
    return (python, "-m", "torch.distributed.run", *ranks, "--log-dir", str(paths.scratch / "ranks"), *child)


def worker_command(python: str, start: Path) -> tuple[str, ...]:
    """Returns the command line of a warm worker, without its mailbox folder."""
    return (python, str(start), "worker", "--directory")


CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor"}
"""Variable -> folder of a compiler cache that is keyed by source, versions and device, so all trials can share it.

torch's default is in the folder for temporary files; Triton's and vLLM's are in the user's cache folder and stay there.
"""


def caches(folder: Path | None, own: Mapping[str, str]) -> dict[str, str]:
    """Returns the variables of compiler caches in ``folder``; the tuner's own environment variables take precedence."""
    if folder is None:
        return {}
    return {name: str(folder / place) for name, place in CACHES.items() if name not in own}


def _place(meeting: Rendezvous | None) -> tuple[str, ...]:
    if meeting is None:
        return ("--standalone", "--local-addr", "127.0.0.1")
    nodes = ("--nnodes", str(meeting.nodes), "--node-rank", str(meeting.node))
    return (*nodes, "--master-addr", meeting.address, "--master-port", str(meeting.port))


def _here(spec: TrialSpec, meeting: Rendezvous | None) -> int:
    """Returns the number of ranks on this node."""
    return spec.world_size if meeting is None else spec.world_size // meeting.nodes


def environment(
    spec: TrialSpec, cores: int, own: Mapping[str, str], meeting: Rendezvous | None = None
) -> dict[str, str]:
    """Returns the variables added to the tuner's environment for a trial; the configuration's own take precedence.

    Args:
        cores: cores of this machine for a trial; ``torchrun`` alone would give a rank one thread.
        own: the tuner's environment; its number of threads is kept.
    """
    if not launched(spec) or "OMP_NUM_THREADS" in own:
        return dict(spec.environment)
    return {"OMP_NUM_THREADS": str(max(1, cores // _here(spec, meeting))), **spec.environment}

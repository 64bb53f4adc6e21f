"""Checks for what a container or a batch system may lack, each with the option that fixes it."""

from __future__ import annotations

from autotune.cli.doctor.findings import Finding, Verdict
from autotune.machine.surroundings import SHARED_MEMORY, Surroundings
from autotune.settings import HOME_VARIABLE
from autotune.wording.numbers import format_size

SHARED_WANTED = 1 << 30
"""Bytes of shared memory: NCCL takes tens of MiB for each connection, an engine's processes pass tensors through it."""
FILES_WANTED = 4096
LOCKED_WANTED = 64 << 20


def check_surroundings(here: Surroundings, gpus: int) -> list[Finding]:
    """A finding for each thing that is missing.

    Args:
        here: what there is.
        gpus: visible ones; some things matter only to several processes on several GPUs.
    """
    found = [_shared_memory(here, gpus), _files(here), _locked(here, gpus), _home(here), _temporary(here), _first(here)]
    return [finding for finding in found if finding is not None]


def _shared_memory(here: Surroundings, gpus: int) -> Finding | None:
    if here.shared_memory is not None and here.shared_memory >= SHARED_WANTED:
        return None
    size = "none" if here.shared_memory is None else format_size(here.shared_memory)
    text = f"{SHARED_MEMORY} has {size}: processes of one trial pass tensors through it"
    verdict = Verdict.PROBLEM if gpus > 1 else Verdict.WARNING
    larger = "docker run --shm-size=8g, or --ipc=host; Kubernetes: an emptyDir in Memory"
    return Finding("shared memory", verdict, text, larger)


def _files(here: Surroundings) -> Finding | None:
    if here.open_files >= FILES_WANTED:
        return None
    text = f"a process may open {here.open_files} files; an engine's and Ray's processes open more"
    return Finding("open files", Verdict.WARNING, text, "docker run --ulimit nofile=65536, or ulimit -n 65536")


def _locked(here: Surroundings, gpus: int) -> Finding | None:
    if gpus < 2 or here.locked_memory is None or here.locked_memory >= LOCKED_WANTED:
        return None
    text = f"a process may lock {format_size(here.locked_memory)} of memory; NCCL over InfiniBand locks more"
    return Finding("locked memory", Verdict.WARNING, text, "docker run --ulimit memlock=-1, or ulimit -l unlimited")


def _home(here: Surroundings) -> Finding | None:
    if here.home_usable:
        return None
    text = f"the home folder {here.home} cannot be written" if here.home else "no home folder is known"
    command = f"export HOME=/a/folder/you/can/write (and {HOME_VARIABLE} for the studies)"
    return Finding("user", Verdict.WARNING, f"{text}: models and compiled kernels are kept there", command)


def _temporary(here: Surroundings) -> Finding | None:
    if here.temporary:
        return None
    return Finding("temporary files", Verdict.PROBLEM, "no folder for them can be written", "docker run --tmpfs /tmp")


def _first(here: Surroundings) -> Finding | None:
    if not here.zombies:
        return None
    text = (
        f"process 1 has not waited for {here.zombies} dead processes: where the tuner is killed its trials stay so too"
    )
    command = "docker run --init; Kubernetes: shareProcessNamespace: true"
    return Finding("process 1", Verdict.WARNING, text, command)

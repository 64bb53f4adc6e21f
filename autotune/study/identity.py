"""Finds the stored study of a specification, and checks whether this machine may add trials to it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from autotune.domain import Fingerprint, Study, StudySpec
from autotune.domain.differences import differing
from autotune.errors import AlreadyExistsError, NotFoundError, StudyDiffersError
from autotune.ports import Store
from trainer.child.contract import encode


def find_or_create(
    store: Store, spec: StudySpec, now: float, *, fork: bool, any_sampler: bool = False
) -> tuple[Study, bool]:
    """Returns the study of this specification, and whether it existed.

    ``fork``: if another study has the name, uses a numbered one; else raises ``StudyDiffersError`` with the difference.
    ``any_sampler``: accepts a study that differs only in the sampler, and keeps its sampler.
    """
    try:
        there = store.study(spec.name)
    except NotFoundError:
        with suppress(AlreadyExistsError):  # another command begins it at this moment
            return store.create_study(spec, now), False
        there = store.study(spec.name)
    if _is(there, spec, any_sampler=any_sampler):
        return there, True
    if fork:
        return _under_next_name(store, spec, now, any_sampler=any_sampler)
    changed = "; ".join(differing(there.spec.identity(), spec.identity())[:8])
    raise StudyDiffersError(
        f"study {spec.name!r} exists with another specification ({changed}); "
        "--new starts a study beside it, --name gives it another name"
    )


def _is(study: Study, spec: StudySpec, *, any_sampler: bool) -> bool:
    asked = replace(spec, sampler=study.spec.sampler) if any_sampler else spec
    return study.spec.digest == asked.digest


def _under_next_name(store: Store, spec: StudySpec, now: float, *, any_sampler: bool) -> tuple[Study, bool]:
    """Returns the study of this specification under ``name-2``, ``name-3`` ..., or a new one under the first free."""
    there = {study.spec.name: study for study in store.studies()}
    number = 2
    while (other := there.get(f"{spec.name}-{number}")) is not None:
        if _is(other, spec, any_sampler=any_sampler):
            return other, True
        number += 1
    return store.create_study(replace(spec, name=f"{spec.name}-{number}"), now), False


def check_machine(store: Store, study: Study, fingerprint: Fingerprint) -> None:
    """Refuses to add to trials measured on another machine; the ``StudyDiffersError`` states the difference."""
    before = store.fingerprint(study.id)
    if before is None:
        return
    # the workload is the study's own by now; an earlier version recorded less of the hardware
    recorded = {name: value for name, value in fingerprint.hardware.items() if name in before.hardware}
    here = replace(fingerprint, workload=before.workload, hardware=recorded)
    if before.digest == here.digest:
        return
    changed = "; ".join(differing(encode(before), encode(here))[:8])
    raise StudyDiffersError(
        f"study {study.spec.name!r} was measured on another machine or stack ({changed}); "
        "figures of the two cannot be compared: --name starts another study"
    )

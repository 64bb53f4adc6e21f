"""Recomputes stored digests when a migration changes the shape they are made from.

A fingerprint names its workload by digest, and a recommendation its fingerprint; a study continues only where they
agree with what is made today.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, inspect, select, text, update

from autotune.documents import codec
from autotune.domain import Fingerprint, Recommendation, StudySpec
from autotune.domain.studies import digest_of
from autotune.store.models import FingerprintRow, RecommendationRow, StudyRow
from trainer.child.contract import encode


def stored_workloads(connection: Connection) -> Mapping[int, str]:
    """Digest of each study's workload in the shape it is stored in, whatever version that is of."""
    if StudyRow.__tablename__ not in inspect(connection).get_table_names():
        return {}
    rows = connection.execute(text("SELECT id, spec FROM studies")).all()
    return {study: digest_of(encode(_identity(codec.load(Any, spec)["workload"]))) for study, spec in rows}


def _identity(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The part of a workload that its digest is made of; up to version 0001 also the path of the prompts."""
    return workload if "reward" in workload else {key: value for key, value in workload.items() if key != "prompts"}


def refresh(connection: Connection, before: Mapping[int, str]) -> None:
    """Make every digest anew, ``before`` being what ``stored_workloads`` said before the change."""
    for study, text_ in connection.execute(select(StudyRow.id, StudyRow.spec)).all():
        spec: StudySpec = codec.load(StudySpec, text_)
        connection.execute(update(StudyRow).where(StudyRow.id == study).values(digest=spec.digest))
        if before.get(study) != spec.workload.digest:
            changed = _fingerprints(connection, study, before.get(study, ""), spec.workload.digest)
            _recommendations(connection, study, changed)


def _fingerprints(connection: Connection, study: int, old: str, new: str) -> Mapping[str, str]:
    """New digest by old one, of those that changed."""
    changed = {}
    query = select(FingerprintRow.id, FingerprintRow.body).where(FingerprintRow.study_id == study)
    for row, body in connection.execute(query).all():
        fingerprint: Fingerprint = codec.load(Fingerprint, body)
        if fingerprint.workload == old:
            again = replace(fingerprint, workload=new)
            changed[fingerprint.digest] = again.digest
            values = {"digest": again.digest, "body": codec.dump(again)}
            connection.execute(update(FingerprintRow).where(FingerprintRow.id == row).values(**values))
    return changed


def _recommendations(connection: Connection, study: int, changed: Mapping[str, str]) -> None:
    query = select(RecommendationRow.id, RecommendationRow.body).where(RecommendationRow.study_id == study)
    for row, body in connection.execute(query).all():
        found: Recommendation = codec.load(Recommendation, body)
        if found.fingerprint in changed:
            again = codec.dump(replace(found, fingerprint=changed[found.fingerprint]))
            connection.execute(update(RecommendationRow).where(RecommendationRow.id == row).values(body=again))

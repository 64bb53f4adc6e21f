"""What a study's figures were measured on."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from api.deps import StudiesDep, StudyId
from api.responses import JSON, conditional, dumps
from api.schemas.problems import described
from api.schemas.studies import Fingerprints
from api.schemas.study_examples import FINGERPRINTS_EXAMPLE
from autotune.documents.study import hardware_json, plain, timestamp

router = APIRouter(prefix="/api/v1/studies/{study_id}", tags=["studies"])


@router.get("/fingerprints", **described("listFingerprints", Fingerprints, FINGERPRINTS_EXAMPLE, 404))
def list_fingerprints(request: Request, studies: StudiesDep, study_id: StudyId) -> Response:
    """Hardware, driver and versions of all that moves the figures, the oldest first; the last is the present one.

    Figures of two fingerprints are not to be compared.
    """
    name = studies.study(study_id).spec.name
    items = [
        {
            "digest": fingerprint.digest,
            "first_seen_at": timestamp(at),
            "hardware": hardware_json(fingerprint.hardware),
            "software": plain(fingerprint.software),
            "workload": plain(fingerprint.workload),
        }
        for fingerprint, at in studies.fingerprints(study_id)
    ]
    return conditional(request, dumps({"study": plain(name), "fingerprints": items}), JSON)

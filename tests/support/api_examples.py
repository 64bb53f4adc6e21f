"""Writes the examples of the API's description: what its server answers of a made-up study, shortened.

``make openapi`` runs it; a field that is added to an answer is in its example.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from api.guard.security import Access
from api.schemas.examples import FILE
from autotune.documents.memory_timeline import text_of
from autotune.recommendation.current import attempt_paths
from autotune.store import open_store
from tests.support import factories as f
from tests.support.served import Reader, running_study, settings_in, whole_study

STUDY = "/api/v1/studies/1"
ENDED = {
    "listStudies": "/api/v1/studies",
    "listTrials": f"{STUDY}/trials?sort=speed&limit=1",
    "getTrial": f"{STUDY}/trials/0",
    "listCycles": f"{STUDY}/trials/0/cycles?limit=1",
    "listEvents": f"{STUDY}/events?limit=1&after=1",
    "listFingerprints": f"{STUDY}/fingerprints",
    "getRecommendation": f"{STUDY}/recommendation",
    "exportFiles": f"{STUDY}/export",
    "findRecommendations": "/api/v1/recommendations?model=small&limit=1",
}
RUNNING = {"getStudy": STUDY, "getMemory": f"{STUDY}/trials/1/memory"}
LONGEST_LIST, LONGEST_TEXT = 1, 160
TOKEN = "correct-horse-battery-staple"


def examples() -> dict[str, Any]:
    """Returns the answers by operation."""
    with tempfile.TemporaryDirectory() as folder:
        settings = settings_in(Path(folder) / "ended")
        whole_study(settings)
        found = _asked(Reader(settings), ENDED)
        settings = settings_in(Path(folder) / "running")
        study = running_study(settings)
        path = attempt_paths(settings.home, study, f.finished(1)).memory
        path.parent.mkdir(parents=True)
        path.write_text(text_of(f.timeline()))
        reader = Reader(settings, Access(token=TOKEN), allow_control=True)
        found |= _asked(reader, RUNNING)
        store = open_store(settings.database)
        with store.lock(study.id):
            annotation = {"trial": 1, "note": "the machine was busy", "tags": ["doubtful"]}
            reader.ask(f"{STUDY}/annotations", "POST", json=annotation, headers=_AS_OWNER)
            found["listAnnotations"] = reader.json(f"{STUDY}/annotations", headers=_AS_OWNER)
            asked = reader.ask(f"{STUDY}/requests", "POST", json={"action": "stop"}, headers=_AS_OWNER).json()
        store.close()
        found["askTuner"] = {"event": {**asked["event"], "at": found["listEvents"]["events"][0]["at"]}}
    return found


_AS_OWNER = {"Authorization": f"Bearer {TOKEN}"}


def _asked(reader: Reader, paths: dict[str, str]) -> dict[str, Any]:
    found = {name: shortened(reader.json(path, headers=_AS_OWNER)) for name, path in paths.items()}
    reader.cache.close()
    return found


def shortened(value: Any) -> Any:
    """Cuts lists and texts that go on for long, and the digits of a figure that differ from machine to machine."""
    if isinstance(value, list):
        return [shortened(item) for item in value[:LONGEST_LIST]]
    if isinstance(value, dict):
        return {name: shortened(item) for name, item in value.items()}
    if isinstance(value, float):
        return float(f"{value:.6g}")
    return value[:LONGEST_TEXT] if isinstance(value, str) else value


def text() -> str:
    """Returns the file as it is committed."""
    return json.dumps(examples(), indent=1, sort_keys=True) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")

"""The doors for programs: the description as a page, its usual addresses, and the package's own names."""

import json
import re
import subprocess
import sys
from pathlib import Path

from autotune.settings import Settings
from tests.support.served import Reader, whole_study

ROOT = Path(__file__).resolve().parents[3]


def test_the_description_is_a_page_without_scripts(finished: Reader) -> None:
    page = finished.page("/docs")
    described = finished.json("/api/v1/openapi.json")
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()} {path}" in page
            assert f'id="{operation["operationId"]}"' in page
    assert page.count("<script") == 1, "the theme's alone"


def test_the_usual_addresses_lead_there(finished: Reader) -> None:
    for path, to in (("/redoc", "/docs"), ("/api/v1", "/docs"), ("/openapi.json", "/api/v1/openapi.json")):
        answer = finished.ask(path)
        assert (answer.status_code, answer.headers["location"]) == (307, to)


def test_a_program_reads_a_home_by_the_package_alone(settings: Settings, tmp_path: Path) -> None:
    """In an empty folder, as a notebook does."""
    whole_study(settings)
    script = f"""
import json, autotune
home = autotune.open({str(settings.home.root)!r})
study = home.study("first")
print(json.dumps([home.studies(), study.best()["source"], len(study.trials()), study.history()._repr_html_()[:8]]))
autotune.Client("http://127.0.0.1:1")
"""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    names, source, trials, drawn = json.loads(ended.stdout)
    assert (names, source, drawn) == (["first"], "recommendation", "<figure>")
    assert trials > 5


def test_dashboard_and_alerts_ask_for_metrics_that_there_are(finished: Reader) -> None:
    known = set(re.findall(r'(?:Metric|_gauge)\(\s*"(autotune_\w+)"', (ROOT / "api" / "metrics.py").read_text()))
    asked = [
        set(re.findall(r"autotune_\w+", (ROOT / "docs" / file).read_text())) for file in ("grafana.json", "alerts.yaml")
    ]
    for names in asked:
        assert len(names) >= 3
        assert names <= known
    assert len(json.loads((ROOT / "docs" / "grafana.json").read_text())["panels"]) == 6

"""Renders a study as one HTML file: the page's charts and words, without a server, a script or another file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from api.dashboard.answer_view import answer_page
from api.dashboard.render import render
from api.dashboard.study_view import study_view
from api.dashboard.timeline import timeline_chart
from api.dashboard.trials_view import trial_table
from api.dashboard.why_view import WhyQuery, why_view
from autotune.charts.assets import STYLE
from autotune.charts.chart import nowhere
from autotune.charts.history import history
from autotune.charts.svg import Svg
from autotune.recommendation.export import Exported
from autotune.recommendation.reading import StudyReading

MOST_TRIALS = 1000
PAGE_STYLE = Path(__file__).parent / "assets" / "page.css"


def report_page(reading: StudyReading, exports: Sequence[Exported | str] = (), run: Sequence[str] = ()) -> str:
    """Returns the whole file, with the exports of the recommendation's rows, in order, and sentences on the user's
    whole ``run``; the same study always gives the same text."""
    charts = history(reading.trials, reading.study.spec), timeline_chart((), {}, nowhere)
    rows = () if reading.recommendation is None else reading.recommendation.rows
    style = Svg(PAGE_STYLE.read_text(encoding="utf-8") + STYLE.read_text(encoding="utf-8"))
    return render(
        "report.html",
        style=style,
        study=study_view(reading, {}, charts=charts),
        trials=trial_table(reading, most=MOST_TRIALS),
        answer=answer_page(reading, exports or ["they were not made"] * len(rows)),
        run=run,
        why=why_view(reading, WhyQuery(), linked=False),
    ).decode()

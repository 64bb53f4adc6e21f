"""A study as one HTML file: the page's charts and words, without a server, a script or another file."""

from __future__ import annotations

from pathlib import Path

from api.cache.snapshot import Snapshot
from api.dashboard.answer_view import answer_page
from api.dashboard.render import render
from api.dashboard.study_view import study_view
from api.dashboard.trials_view import trial_table
from api.dashboard.why_view import Asked, why_view
from autotune.charts.assets import STYLE
from autotune.charts.history import history
from autotune.charts.svg import Svg
from autotune.domain import Study
from autotune.ports import Store
from autotune.recommendation.current import answer, last_budget

MOST_TRIALS = 1000
PAGE_STYLE = Path(__file__).parent / "assets" / "page.css"


def read(store: Store, study: Study) -> Snapshot:
    """The study as it is now."""
    trials = store.trials(study.id)
    source, recommendation = answer(store, study, trials)
    return Snapshot(
        stamp=0,
        study=study,
        trials=trials,
        spent=store.spent(study.id),
        limits=last_budget(store, study),
        source=source,
        recommendation=recommendation,
        fingerprint=store.fingerprint(study.id),
    )


def report_page(found: Snapshot) -> str:
    """The whole file; the same study always gives the same text."""
    rows = () if found.recommendation is None else found.recommendation.rows
    style = Svg(PAGE_STYLE.read_text(encoding="utf-8") + STYLE.read_text(encoding="utf-8"))
    return render(
        "report.html",
        style=style,
        study=study_view(found, None, drawn=history(found.trials, found.study.spec)),
        trials=trial_table(found, most=MOST_TRIALS),
        answer=answer_page(found, ["a report holds no files"] * len(rows)),
        why=why_view(found, Asked(), linked=False),
    ).decode()

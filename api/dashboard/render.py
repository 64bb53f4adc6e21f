"""Renders templates to HTML. All values put into a template are escaped."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from api.dashboard import copies, links, trials_view
from autotune.charts import phase_bars
from autotune.documents.study import timestamp
from autotune.insights import feasibility, standings, why
from autotune.recommendation import places
from autotune.wording import numbers, sentences, text

WORDS = {
    function.__name__: function
    for function in (
        *(phase_bars.gain_bar, phase_bars.phase_bars, copies.launcher_words, copies.prompt_words, links.trial_page),
        *(trials_view.name_of, trials_view.sure_word, trials_view.changed_words, trials_view.marked_speed),
        *(trials_view.shared_value, trials_view.tone),
        *(sentences.evidence_words, sentences.lengths_words, sentences.memory_words, sentences.row_gain_words),
        *(sentences.gain_figure, sentences.measured_words, sentences.model_name, sentences.phase_words),
        *(numbers.format_duration, numbers.per_second, numbers.rate, standings.count, standings.outcome_word),
        *(sentences.speed_words, text.brief, text.changes, text.clean, text.knob_value),
        *(feasibility.advice, why.range_words, why.summary_words, places.busy_words, places.idle_words, timestamp),
    )
}
"""Functions that templates may call; text from outside the program goes through one of them, which cleans it."""


def render(template: str, **values: Any) -> bytes:
    """Renders a template to HTML in UTF-8."""
    return _environment().get_template(template).render(**values).encode("utf-8", "replace")


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.globals.update(WORDS, control=False)
    return environment

"""Studies in a program or a notebook: ``autotune.open().study().best()``; a notebook displays the charts."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from autotune.charts.chart import Chart
from autotune.charts.history import history
from autotune.documents.study import trial_json
from autotune.recommendation.current import answer_document
from autotune.recommendation.reading import StudyReading, named_study, read_study
from autotune.settings import read_settings
from autotune.wiring import open_to_read


class Study:
    """A study as it was when it was read."""

    def __init__(self, reading: StudyReading) -> None:
        self.reading = reading

    def best(self) -> dict[str, Any]:
        """Returns the recommendation, as ``autotune best --json`` prints it without reasons."""
        return answer_document(self.reading)

    def trials(self) -> list[dict[str, Any]]:
        """Lists every trial, as ``autotune trials --json`` prints it."""
        return [trial_json(trial, self.reading.study.spec.baseline) for trial in self.reading.trials]

    def history(self) -> Chart:
        """Draws tokens/hour, trial by trial."""
        return history(self.reading.trials, self.reading.study.spec)


class Home:
    """The studies of a home folder, by default ``$AUTOTUNE_HOME`` or the usual one; each call reads the database."""

    def __init__(self, home: str | Path | None = None) -> None:
        self._settings = read_settings(home=None if home is None else Path(home))

    def studies(self) -> list[str]:
        """Lists the names, newest first."""
        with closing(open_to_read(self._settings)) as store:
            return [study.spec.name for study in store.studies()]

    def study(self, name: str | None = None) -> Study:
        """Reads the study with this name or id, or the newest. Raises ``NotFoundError``."""
        with closing(open_to_read(self._settings)) as store:
            number = named_study([(study.id, study.spec.name) for study in store.studies()], name)
            return Study(read_study(store, store.study(number)))

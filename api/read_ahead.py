"""Reads the newest study when a server starts, so that the first page of a large study does not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from api.cache.studies import StudyCache
from api.dashboard.filters import TrialFilter
from api.dashboard.why_view import WhyQuery
from api.routes.pages import study_page
from api.routes.recommendations import work_out
from api.routes.study_pages import why_page

NAME = "autotune-read-ahead"
CALM_S = 0.2
"""Seconds without a request before a page is drawn ahead: requests come first."""
LOOK_S = 0.05
"""Seconds between two checks for requests."""


class ReadAhead:
    """A thread that reads the newest study once and ends. Requests that come meanwhile wait for the same reading."""

    def __init__(self, cache: StudyCache, failed: Callable[[Exception], None]) -> None:
        """``failed`` is called with an error of reading; the first request then reads the study again."""
        self._cache = cache
        self._failed = failed
        self._unwanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name=NAME, daemon=True)

    def start(self) -> None:
        """Returns at once."""
        self._thread.start()

    def stop(self) -> None:
        """Starts nothing more; a reading in progress ends when ``cache`` is closed."""
        self._unwanted.set()

    def wait(self, timeout: float) -> None:
        """Waits until the thread has ended, if it was started, for at most ``timeout`` seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:  # nobody waits for this, so nobody else would be told
            if not self._unwanted.is_set():
                self._failed(error)

    def _read(self) -> None:
        """Reads the study, then makes its answer and the pages that are requested first."""
        newest = next(iter(self._cache.look()[1]), None)
        if newest is None:
            return
        self._cache.snapshot(newest)
        pages: tuple[Callable[[], object], ...] = (
            lambda: work_out(self._cache, newest),
            lambda: study_page(self._cache, newest, TrialFilter()),
            lambda: why_page(self._cache, newest, WhyQuery()),
        )
        for draw in pages:
            while self._cache.unasked_s < CALM_S:
                if self._unwanted.wait(LOOK_S):
                    return
            if self._unwanted.is_set():
                return
            draw()

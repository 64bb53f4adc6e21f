"""A typed client of the REST API; needs only the standard library and pydantic.

client = Client("http://127.0.0.1:7788", token="...")
for trial in client.trials(1, state=["COMPLETE"]):
    print(trial.number, trial.tokens_per_hour)
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from api.listening import is_loopback
from api.schemas.answers import Answer, Export
from api.schemas.base import Shape
from api.schemas.events import Annotation, Annotations, Event, Events, Requested
from api.schemas.matches import Matches
from api.schemas.studies import Fingerprint, Fingerprints, Status, Studies, Study
from api.schemas.trials import Cycle, Cycles, MemoryTimeline, OneTrial, Trial, Trials
from autotune.documents import codec
from autotune.errors import MachineError, NotFoundError, UsageError
from autotune.recommendation.current import TrialReading
from autotune.recommendation.reading import ReadingPage, StudyReading, named_study
from autotune.wording.text import clean

TIMEOUT_S = 30.0
LARGEST_ANSWER = 64 << 20
UNKNOWN_ADDRESS = "there is nothing at"
"""Message of a server for an unknown address."""

S = TypeVar("S", bound=Shape)
V = TypeVar("V")
Query = Mapping[str, object]


class Client:
    """Client of one server. Raises ``MachineError`` without a response; an error status raises as ``_raised`` says."""

    def __init__(self, url: str, token: str | None = None, timeout_s: float = TIMEOUT_S) -> None:
        """Receives the server's address, a token and a timeout in seconds. Raises ``UsageError`` for a bad address."""
        parts = _split(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise UsageError(f"{clean(url)!r} is no address of a server; expected http://host:port")
        self._root = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
        self._headers = {"Accept": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._timeout_s = timeout_s
        # A proxy of the environment would be told the token, and its own loopback address is another machine's.
        proxies = {} if is_loopback(parts.hostname) else urllib.request.getproxies()
        self._open = urllib.request.build_opener(_NoRedirect(), urllib.request.ProxyHandler(proxies)).open

    def studies(self, **query: Any) -> Iterator[Study]:
        """Yields the studies, newest first; ``query`` as in the API: ``name=``, ``state="running"``, ``text="7B"``."""
        for page in self._pages(Studies, "/studies", query):
            yield from page.studies

    def find(self, name_or_id: str | None) -> int:
        """Returns the id of a study by its name or id; ``None``: the newest. Raises ``NotFoundError``."""
        return named_study([(study.id, study.name) for study in self.studies()], name_or_id)

    def status(self, study: int) -> Status:
        return self._get(Status, f"/studies/{study}")

    def trials(self, study: int, **query: Any) -> Iterator[Trial]:
        """Yields the trials of all pages; ``query`` as in the API: ``state=["FAIL"]``, ``knob=["precision:bf16"]``."""
        for page in self._pages(Trials, f"/studies/{study}/trials", {"limit": 500, **query}):
            yield from page.trials

    def trial(self, study: int, number: int) -> OneTrial:
        """Returns a trial with its cycles."""
        return self._get(OneTrial, f"/studies/{study}/trials/{number}")

    def reading(self, study: int) -> StudyReading:
        """Returns a study with all its trials, as the type that the program itself uses."""
        page = self._stored(ReadingPage, f"/studies/{study}/reading")
        trials = page.reading.trials
        while page.next_since is not None:
            page = self._stored(ReadingPage, f"/studies/{study}/reading", {"since": page.next_since})
            trials += page.reading.trials
        return replace(page.reading, trials=trials)

    def trial_reading(self, study: int, number: int) -> TrialReading:
        """Returns a trial's details besides its measurements: recorded facts, the end of its log, memory over time."""
        return self._stored(TrialReading, f"/studies/{study}/trials/{number}/reading")

    def cycles(self, study: int, number: int, **query: Any) -> Iterator[Cycle]:
        """Yields cycles of a trial in the order they ran; ``query`` as in the API: ``kind=["recorded"]``, ``rank=``."""
        for page in self._pages(Cycles, f"/studies/{study}/trials/{number}/cycles", {"limit": 500, **query}):
            yield from page.cycles

    def memory(self, study: int, number: int, attempt: int | None = None) -> MemoryTimeline:
        """Returns the memory of an attempt over time, by default the last. Raises ``NotFoundError`` without one."""
        return self._get(MemoryTimeline, f"/studies/{study}/trials/{number}/memory", {"attempt": attempt})

    def log(self, study: int, number: int, first_byte: int = 0) -> bytes:
        """Returns a trial's log from ``first_byte`` on, 4 MiB at most; empty if there are no such bytes yet."""
        headers = {"Range": f"bytes={first_byte}-"}
        try:
            return self.raw(f"/studies/{study}/trials/{number}/log", headers=headers)
        except RangeError:
            return b""

    def events(self, study: int, after: int = 0) -> Iterator[Event]:
        """Yields the events after id ``after``, oldest first."""
        for page in self._pages(Events, f"/studies/{study}/events", {"after": after, "limit": 500}):
            yield from page.events

    def listen(self, study: int, after: int | None = None) -> Iterator[Event]:
        """Yields events as they happen, first the events after id ``after``; without ``after`` only new ones.

        Ends when the server ends the stream, as it does for a reader that is far behind: continue after the last id.
        """
        headers = {"Accept": "text/event-stream"} | ({} if after is None else {"Last-Event-ID": str(after)})
        kind = ""
        with self._requesting(f"/studies/{study}/events/stream", headers=headers) as answer:
            while line := answer.readline(LARGEST_ANSWER):
                name, _, value = line.decode("utf-8", "replace").rstrip("\r\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "event":
                    yield self._read(Event, value)

    def fingerprints(self, study: int) -> list[Fingerprint]:
        """Returns a study's fingerprints (the machines its figures were measured on), oldest first."""
        return self._get(Fingerprints, f"/studies/{study}/fingerprints").fingerprints

    def recommendation(self, study: int) -> Answer:
        return self._get(Answer, f"/studies/{study}/recommendation")

    def file(self, study: int, framework: str, row: int = 1, *, native_only: bool = False) -> str:
        """Returns the recommendation as the framework's own configuration file."""
        query = {"format": framework, "row": row, "native_only": native_only}
        return self.raw(f"/studies/{study}/recommendation", query).decode("utf-8", "replace")

    def export(self, study: int, *, row: int = 1, trial: int | None = None, native_only: bool = False) -> Export:
        """Returns the files of a configuration, and the command that trains with them."""
        query = {"row": row, "trial": trial, "native_only": native_only}
        return self._get(Export, f"/studies/{study}/export", query)

    def recommendations(self, **question: Any) -> Matches:
        """Returns the first page of matches for ``model=``, ``params_b=``, ``gpu=``, ``gpus=``, ``framework=`` ..."""
        return self._get(Matches, "/recommendations", question)

    def ask(self, study: int, action: str, **more: float) -> Requested:
        """Asks the tuner to ``pause``, ``resume``, ``stop``, ``cancel``, ``retry`` (``trial=7``) or ``extend``
        (``wall_seconds=600``, ``trials=``, ``gpu_hours=``); needs ``--allow-control``."""
        answer = self.raw(f"/studies/{study}/requests", body=json.dumps({"action": action, **more}).encode())
        return Requested.model_validate_json(answer)

    def annotate(self, study: int, note: str, tags: Sequence[str] = (), trial: int | None = None) -> None:
        """Sets the note and tags of a study, or of a trial of it; needs ``--allow-control``."""
        body = json.dumps({"note": note, "tags": list(tags), "trial": trial}).encode()
        self.raw(f"/studies/{study}/annotations", body=body)

    def annotations(self, study: int) -> list[Annotation]:
        """Lists the notes and tags of people on a study and its trials."""
        return self._get(Annotations, f"/studies/{study}/annotations").annotations

    def raw(self, path: str, query: Query | None = None, **more: Any) -> bytes:
        """Returns the body of the server's response to a path below ``/api/v1``; sends ``headers=`` and ``body=``."""
        with self._requesting(path, query, **more) as answer:
            found: bytes = answer.read(LARGEST_ANSWER + 1)
        if len(found) > LARGEST_ANSWER:
            raise MachineError(f"{self._root} sent more than {LARGEST_ANSWER} bytes")
        return found

    @contextmanager
    def _requesting(
        self,
        path: str,
        query: Query | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Iterator[Any]:
        """Yields the server's response, open for reading."""
        named = {k: v for k, v in (query or {}).items() if v is not None}
        words = {k: str(v).lower() if isinstance(v, bool) else v for k, v in named.items()}
        url = f"{self._root}/api/v1{quote(path)}" + (f"?{urlencode(words, doseq=True)}" if words else "")
        kind = {} if body is None else {"Content-Type": "application/json"}
        every = {**self._headers, **kind, **(headers or {})}
        request = urllib.request.Request(url, data=body, headers=every)  # noqa: S310 - http or https only
        try:
            with self._open(request, timeout=self._timeout_s) as answer:
                yield answer
        except urllib.error.HTTPError as error:
            with error:
                raise _raised(error.code, error.read(1 << 16)) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise MachineError(f"{self._root} does not answer ({clean(reason) or type(error).__name__})") from None

    def _get(self, shape: type[S], path: str, query: Query | None = None) -> S:
        return self._read(shape, self.raw(path, query))

    def _stored(self, shape: type[V], path: str, query: Query | None = None) -> V:
        """Decodes a response as a ``shape``. Raises ``MachineError`` if it is not one; ``NotFoundError``."""
        try:
            found: V = codec.load(shape, self.raw(path, query).decode())
            return found
        except NotFoundError as error:
            if UNKNOWN_ADDRESS not in str(error):
                raise
        except (ValueError, TypeError, AttributeError):  # ours say ValueError; a value may have checks of its own
            pass
        raise MachineError(f"{self._root} is no autotune server of this version") from None

    def _read(self, shape: type[S], text: str | bytes) -> S:
        try:
            return shape.model_validate_json(text)
        except ValueError:
            raise MachineError(f"{self._root} is no autotune server of this version") from None

    def _pages(self, shape: type[S], path: str, query: Query) -> Iterator[S]:
        cursor = None
        while True:
            page = self._get(shape, path, {**query, "cursor": cursor})
            yield page
            cursor = getattr(page, "next_cursor", None)
            if cursor is None:
                return


class RangeError(UsageError):
    """Raised if the requested byte range is beyond the log's end (status 416)."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects, so that only the given server receives the token."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _raised(status: int, body: bytes) -> Exception:
    """Returns the exception of an error status: ``NotFoundError`` (404), ``MachineError`` (5xx) or ``UsageError``."""
    try:
        detail = clean(json.loads(body)["detail"])
    except (ValueError, KeyError, TypeError):
        detail = f"the server answered {status}"
    if status == 401:
        return UsageError("the server wants a token; put it into $AUTOTUNE_TOKEN")
    if status == 404:
        return NotFoundError(detail)
    if status == 416:
        return RangeError(detail)
    return MachineError(detail) if status >= 500 else UsageError(detail)


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
        return parts
    except ValueError:
        return urlsplit("")

"""Finds the errors in a log that show why its processes ended.

A log mixes the lines of several processes. Warnings, hints, and errors before a later unknown error are ignored.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Callable, Dict, List, Optional, Pattern, Sequence, Tuple

from .words import FailureReason, Pool

ANYTHING = "…"
"""Placeholder in a sign's text for the parts that differ between failures."""


class Nearness(IntEnum):
    """Closeness of a log text to the cause of a failure; the closer of two texts counts."""

    ECHO = 0
    """Reports the end of another process, whose own text may be elsewhere."""
    DEATH = 1
    """Shows how a process ended, not why."""
    CAUSE = 2


@dataclass(frozen=True)
class Sign:
    """Known log texts of one kind of failure, and the outcome that they indicate."""

    name: str
    texts: Tuple[str, ...]
    """Texts as written, with ``ANYTHING`` for the parts that differ."""
    reason: FailureReason
    pool: Optional[Pool] = None
    phase: Optional[str] = None
    """``Phase`` or ``StartupPart`` value, if the text shows it."""
    nearness: Nearness = Nearness.CAUSE
    unless: Tuple[str, ...] = ()
    """A line with one of these texts has another meaning."""

    def found_in(self, line: str) -> bool:
        """Tells whether ``line`` contains one of the texts."""
        return _any_in(self.texts, line) and not _any_in(self.unless, line)


def signs_of(
    reason: FailureReason, pool: Optional[Pool] = None, nearness: Nearness = Nearness.CAUSE
) -> Callable[..., Sign]:
    """Returns a function that makes signs of one outcome from a name, texts, and optional ``phase`` and ``unless``."""

    def sign(name: str, *texts: str, phase: Optional[str] = None, unless: Tuple[str, ...] = ()) -> Sign:
        return Sign(name, texts, reason, pool, phase, nearness, unless)

    return sign


illegal = signs_of(FailureReason.ILLEGAL)
"""Signs of a setting that the framework refuses."""
infra = signs_of(FailureReason.INFRA)
"""Signs of faults of the machine."""
echo = signs_of(FailureReason.CRASH, nearness=Nearness.ECHO)
"""Signs that only report the failure of another process."""


@dataclass(frozen=True)
class SignMatch:
    """A sign with the line that contains it."""

    sign: Sign
    line: str


def _any_in(texts: Tuple[str, ...], line: str) -> bool:
    # A word that is not there is found out faster than by a pattern, and hundreds of texts are looked for in a line.
    return any(first in line and pattern.search(line) for first, pattern in _patterns(texts))


@functools.lru_cache(maxsize=None)
def _patterns(texts: Tuple[str, ...]) -> Tuple[Tuple[str, Pattern[str]], ...]:
    """Returns (text before the first placeholder, compiled pattern) of each text."""
    return tuple((text.partition(ANYTHING)[0], _pattern(text)) for text in texts)


def _pattern(text: str) -> Pattern[str]:
    escaped = ".*".join(re.escape(part) for part in text.split(ANYTHING))
    # A word of its own: MemoryError is not OutOfMemoryError.
    return re.compile(r"(?<!\w)" + escaped if text[0].isalnum() else escaped)


def read_signs(text: str, signs: Sequence[Sign]) -> Optional[SignMatch]:
    """Returns the last known text in ``text`` among those closest to the cause; ``None`` without a known text.

    Within a line the first matching sign of ``signs`` counts, so specific signs come first.
    """
    found: Optional[SignMatch] = None
    for line in reversed(text.splitlines()):
        sign = next((sign for sign in signs if sign.found_in(line)), None)
        if sign is None or (found is not None and sign.nearness <= found.sign.nearness):
            continue
        found = SignMatch(sign, line.strip())
        if sign.nearness is Nearness.CAUSE:
            break
    return found


_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
_SOURCE = re.compile(
    r"^\s*(?P<source>(?:(?:\[(?:rank|default)?\d+\]:|\((?:[\w.:-]+ )?pid=\d+[^)]*\)"
    r"|\((?:raylet|Worker|EngineCore|autoscaler)[^)]*\))\s?)+)"
)
"""Prefix of torch's launcher, Ray or vLLM on a line of one of their processes; nested processes have several."""
_SOFT = re.compile(
    r"(?:^|[\s\[(|])(?<!NCCL )(?:DEBUG|INFO|WARNING|WARN)(?=[\s\])|:])"
    r"|^\W*[WI]\d{3,4} \d\d:"
    r"|(?:^|[\s:])\w*Warning: "
    r"|(?i:^\W*(?:warning|note|hint)\b)"
    r"|(?i:\bfall(?:ing|s)?[ -]?back (?:to|on)\b)"
)
"""Matches a line that reports no failure: a low level, a Python warning, a hint, or a fallback that worked. NCCL has no
level above WARN, so its lines of that level may be failures."""
_HARD = re.compile(r"(?:^|[\s\[(|])(?:ERROR|CRITICAL|FATAL)(?=[\s\])|:])|^\W*[EF]\d{3,4} \d\d:")
_BEFORE = re.compile(r"^(?:\w+ )?(?:ERROR|CRITICAL|FATAL)\W[^\]]{0,40}\[[^\]]*\]\s?|^\[?\d{4}-\d\d-\d\d[^\]]*\]\s?")
"""Matches the level or time that vLLM and others write in front of an error."""
_ERROR = re.compile(
    r"^(?P<name>(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|MandatoryValue)"
    r"|Exception|Fatal Python error|Error)(?:\([\w.]*\))?(?::\s|:?$)"
)
"""Matches the last line of a traceback, or a fatal error of the interpreter or of Ray's autoscaler."""
_JOINED = re.compile(r"^(?:The above exception was the direct cause|During handling of the above exception)")
_IGNORED = re.compile(r"^Exception ignored (?:in|on)\b")
_AFTERMATH = frozenset(
    {
        *("KeyboardInterrupt", "SystemExit", "CancelledError", "EOFError", "BrokenPipeError"),
        *("ConnectionError", "ConnectionResetError", "ConnectionRefusedError", "ConnectionAbortedError"),
        "MaxRetryError",
    }
)
"""Errors that a process raises because another process has ended."""


@dataclass(frozen=True)
class _Line:
    number: int
    text: str
    """The line without colours."""
    words: str
    """The line without prefixes."""

    @property
    def error(self) -> Optional[str]:
        """Name of the error in the line, without its module; ``None`` without an error."""
        found = _ERROR.match(self.words)
        return found.group("name").rpartition(".")[2] if found else None


def _by_source(text: str) -> Dict[str, List[_Line]]:
    """Returns process prefix -> its lines, without lines that cannot show a failure."""
    found: Dict[str, List[_Line]] = {}
    ignored: Dict[str, bool] = {}
    for number, raw in enumerate(text.splitlines()):
        plain = _COLOUR.sub("", raw)
        match = _SOURCE.match(plain)
        source = match.group("source") if match else ""
        words = plain[match.end() :] if match else plain
        line = _Line(number, plain.strip(), _BEFORE.sub("", words))
        if line.error is None and _SOFT.search(words) and not _HARD.search(words):
            continue
        if _IGNORED.match(line.words):
            ignored[source] = True
        if not ignored.get(source):
            found.setdefault(source, []).append(line)
        elif line.error is not None:
            ignored[source] = False
    return found


def _block(lines: Sequence[_Line], end: int) -> int:
    """Returns the index of the first line of the error at ``end``, including its traceback and its causes."""
    begin, joined = end, False
    while begin > 0:
        line = lines[begin - 1]
        if _JOINED.match(line.words):
            joined = True
        elif line.error is not None:
            if not joined:
                break
            joined = False
        elif not (joined or not line.words.strip() or line.words.startswith((" ", "\t", "Traceback", "|"))):
            break
        begin -= 1
    return begin


@dataclass(frozen=True)
class _Diagnosis:
    """Failure that one process's lines show."""

    reading: Optional[SignMatch]
    number: int
    unknown: Optional[str] = None
    """Last error of the process, if no sign knows its text."""


def _diagnose(lines: Sequence[_Line], signs: Sequence[Sign]) -> Optional[_Diagnosis]:
    """Returns one process's failure; reads backwards to its last unknown error: the process survived earlier errors."""
    best: Optional[_Diagnosis] = None
    at = len(lines) - 1
    while at >= 0:
        line = lines[at]
        own = read_signs(line.text, signs)
        if own is None and line.error is not None and line.error not in _AFTERMATH:
            begin = _block(lines, at)
            inside = read_signs("\n".join(each.text for each in lines[begin:at]), signs)
            if inside is not None and inside.sign.nearness is Nearness.CAUSE:
                return _Diagnosis(inside, line.number)
            return _Diagnosis(None, line.number, line.text)
        if own is not None and (best is None or best.reading is None or own.sign.nearness > best.reading.sign.nearness):
            best = _Diagnosis(own, line.number)
            if own.sign.nearness is Nearness.CAUSE:
                return best
        at -= 1
    return best


def read_log(text: str, signs: Sequence[Sign]) -> Optional[SignMatch]:
    """Returns the failure that ended the processes that wrote ``text``, a log or a traceback; ``None`` if unknown.

    Among several processes, the one with the earliest cause counts: the others failed because of it. An unknown error
    outweighs ``DEATH`` and ``ECHO`` signs of other processes, and cancels earlier lines of its own process.
    """
    diagnoses = _diagnoses(text, signs)
    causes = [each for each in diagnoses if each.reading is not None and each.reading.sign.nearness is Nearness.CAUSE]
    if causes:
        return min(causes, key=lambda each: each.number).reading
    if any(each.unknown for each in diagnoses):
        return None
    return max(
        (each.reading for each in diagnoses if each.reading is not None),
        key=lambda reading: reading.sign.nearness,
        default=None,
    )


def last_error(text: str, signs: Sequence[Sign]) -> str:
    """Returns the line of the first unknown error that ended a process, else of Ray's last unmet demand; else empty."""
    unknown = [(each.number, each.unknown) for each in _diagnoses(text, signs) if each.unknown]
    # Ray's autoscaler warns, and everybody waits for ever.
    waiting = [line.strip() for line in text.splitlines() if "cannot be scheduled right now" in line]
    return min(unknown)[1] if unknown else "".join(waiting[-1:])


def _diagnoses(text: str, signs: Sequence[Sign]) -> List[_Diagnosis]:
    found = (_diagnose(lines, signs) for lines in _by_source(text).values())
    return [each for each in found if each is not None]

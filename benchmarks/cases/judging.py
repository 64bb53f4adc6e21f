"""Compares what the product answered with what is right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.cases.asking import Answer
from benchmarks.cases.case import Case, CaseError

LIKELY = 0.5
"""From this probability on a configuration is likely to fit."""
NOT_THERE = "nothing"


def wrong(case: Case, answer: Answer) -> list[str]:
    """A sentence for each thing that is not right; empty: all is."""
    unknown = [key for key in case.right if key not in _JUDGES]
    if unknown:
        raise CaseError(f"{case.folder}: right: unknown key {unknown[0]}; expected {', '.join(_JUDGES)}")
    found = (_JUDGES[key](wanted, answer) for key, wanted in case.right.items())
    return [sentence for sentence in found if sentence]


def _legal(wanted: Any, answer: Answer) -> str:
    if wanted is not True:
        return "legal: write true, or refused with the words"
    return f"refused: {answer.refused}" if answer.refused is not None else ""


def _refused(wanted: Any, answer: Answer) -> str:
    if answer.refused is None:
        return "not refused"
    return _lacking(wanted, answer.refused, "the refusal")


def _lacking(wanted: Any, text: str, what: str) -> str:
    """Words that do not stand in ``text``; a word of several, as ``a | b``, asks for one of them."""
    words = [wanted] if isinstance(wanted, str) else list(wanted)
    lacks = [word for word in words if not any(w.strip().lower() in text.lower() for w in str(word).split(" | "))]
    return f"{what} lacks {', '.join(map(repr, lacks))}: {text}" if lacks else ""


def _never(wanted: Any, answer: Answer) -> str:
    words = [wanted] if isinstance(wanted, str) else list(wanted)
    found = [word for word in words if str(word).lower() in answer.text.lower()]
    return f"said {', '.join(map(repr, found))}: {answer.text}" if found else ""


def _values(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> str:
    """Keys whose values differ; ``nothing`` stands for a key that is not there."""
    differ = [f"{key} {found.get(key, NOT_THERE)!r}, right is {value!r}" for key, value in wanted.items()
              if found.get(key, NOT_THERE) != value]  # fmt: skip
    return "; ".join(differ)


def _same(name: str) -> Callable[[Any, Answer], str]:
    def judge(wanted: Any, answer: Answer) -> str:
        found = getattr(answer, name)
        wanted = None if wanted == NOT_THERE else wanted
        return "" if found == wanted else f"{name} {found}, right is {wanted}: {answer.text}"

    return judge


def _best(answer: Answer) -> Sequence[Mapping[str, Any]]:
    return answer.plan.get("best") or []


def _fits(wanted: Any, answer: Answer) -> str:
    """``likely``: something is likely to fit; ``not likely``: nothing is."""
    if not answer.plan:
        return f"no plan: {answer.refused}"
    most = max((float(found["fits_probability"]) for found in _best(answer)), default=0.0)
    return "" if (most > LIKELY) == (wanted == "likely") else f"fits with {most:.0%}, right is {wanted}"


def _defaults_fit(wanted: Any, answer: Answer) -> str:
    """The same of the framework's defaults."""
    if not answer.plan:
        return f"no plan: {answer.refused}"
    found = float(answer.plan["framework_defaults"]["fits_probability"])
    return "" if (found > LIKELY) == (wanted == "likely") else f"the defaults fit with {found:.0%}, right is {wanted}"


def _peak(wanted: Any, answer: Answer) -> str:
    """The first configuration's predicted peak lies between two numbers of GiB."""
    if not _best(answer):
        return f"no configuration: {answer.refused}"
    peak = float(_best(answer)[0]["peak_bytes"]) / 2**30
    low, high = wanted
    return "" if low <= peak <= high else f"peak {peak:.1f} GiB, right is {low} to {high}"


def _measured(wanted: Any, answer: Answer) -> str:
    """A measured peak in GiB lies in the first configuration's interval."""
    if not _best(answer):
        return f"no configuration: {answer.refused}"
    low, high = (float(_best(answer)[0][f"peak_bytes_{end}"]) / 2**30 for end in ("low", "high"))
    return "" if low <= wanted <= high else f"interval {low:.1f} to {high:.1f} GiB, measured {wanted}"


_JUDGES: Mapping[str, Callable[[Any, Answer], str]] = {
    "legal": _legal,
    "refused": _refused,
    "said": lambda wanted, answer: _lacking(wanted, answer.text, "what was said"),
    "never": _never,
    "rows": _same("rows"),
    "knobs": lambda wanted, answer: _values(wanted, answer.knobs),
    "passthrough": lambda wanted, answer: _values(wanted, answer.passthrough),
    "exported": lambda wanted, answer: "; ".join(
        filter(None, (_lacking(words, answer.exported.get(name, ""), name) for name, words in wanted.items()))
    ),
    "reason": _same("reason"),
    "pool": _same("pool"),
    "phase": _same("phase"),
    "suggests": lambda wanted, answer: _lacking(wanted, answer.suggests, "the suggestion"),
    "fits": _fits,
    "defaults_fit": _defaults_fit,
    "peak_gib": _peak,
    "measured_gib": _measured,
}

"""The report's section that says why the answer is what it is."""

from __future__ import annotations

from autotune.insights.why import Why
from autotune.insights.why_words import knob_lines, ruled_words
from autotune.report.markdown import code


def section(why: Why | None) -> list[str]:
    """Limits, what each knob gave against measured neighbours, and what was ruled out; nothing without an answer."""
    if why is None:
        return []
    parts = [
        "A gain is what going to the answer's value gave between two measured configurations that differ in nothing "
        "else, unless a line names several knobs. Shares are changes of the time of a token, by phase."
    ]
    for row in why.rows:
        parts.append(f"### {code(row.title)}")
        parts.append("\n".join(f"- limited by: {code(limit)}" for limit in row.limits))
        parts.append("\n".join(f"- {code(line)}" for line in knob_lines(row.reasons)))
    if why.began:
        parts.append("The search began with what earlier studies measured:")
        parts.append("\n".join(f"- {code(words)}" for words in why.began))
    about = "" if why.exact else "about "
    was = "was" if why.tried == 1 else "were"
    said = f"Of {about}{why.combinations} combinations {about}{why.legal} are legal and {why.tried} {was} run."
    if not why.ruled_out:
        return [*parts, said]
    parts.append(f"{said} What ruled out others; one may be counted several times:")
    parts.append("\n".join(f"- {code(ruled_words(ruled))}" for ruled in why.ruled_out))
    return parts

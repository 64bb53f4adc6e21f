"""Screen of ``autotune space``: the table of knobs, the counts, and both as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from autotune.wording.text import clean, knob_value
from search_spaces.configuration import KnobValue, Resources
from search_spaces.knobs import KNOBS

if TYPE_CHECKING:
    from search_spaces.explanation import Explanation  # brings numpy, which a start of the CLI does without
    from search_spaces.space import SearchSpace


def knob_table(space: SearchSpace, framework: str) -> Table:
    """Draws a row for each knob, searched or fixed, in the catalogue's order."""
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("knob", no_wrap=True, max_width=28)
    table.add_column("values", overflow="fold", ratio=1)
    table.add_column("class", no_wrap=True)
    table.add_column("set by", no_wrap=True)
    for name, values in _knobs(space).items():
        setting = KNOBS[name].frameworks.get(framework)
        reach = "-" if setting is None else setting.reach.value.replace("seam", "a launcher")
        cells = (name, ", ".join(knob_value(v, name) for v in values), _class(name, values), reach)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def _knobs(space: SearchSpace) -> dict[str, tuple[KnobValue, ...]]:
    """Returns searched and fixed knobs in the catalogue's order."""
    every = {**space.values, **{name: (value,) for name, value in space.fixed.items()}}
    return {name: every[name] for name in KNOBS if name in every}


def _class(name: str, values: Sequence[KnobValue]) -> str:
    """Returns the strongest effect of a change among ``values``."""
    effects = (KNOBS[name].effect_between(values[0], value) for value in values)
    return max(effects, key=lambda effect: effect.rank).value if len(values) > 1 else "fixed"


def counted(
    name: str, space: SearchSpace, explanation: Explanation, resources: Resources, left_out: str = ""
) -> list[str]:
    """Returns lines on the number of combinations, the legal ones on the machine, and knobs the framework lacks."""
    machine = f"{resources.framework}, " + (
        f"{resources.gpus} GPU{'s' if resources.gpus > 1 else ''}" if resources.gpus else "CPU"
    )
    machine += f", {resources.cpu_ranks} training processes" if resources.cpu_ranks > 1 else ""
    machine += f" on each of {resources.nodes} nodes" if resources.nodes > 1 else ""
    about = "" if explanation.exact else "about "
    lines = [
        f"{clean(name)}: {len(space.values)} knobs searched, {len(space.fixed)} fixed, {space.size:,} combinations",
        f"{machine}: {about}{explanation.combinations:,} that differ, {about}{explanation.legal:,} legal",
        *filter(None, [left_out]),
    ]
    if not explanation.legal and explanation.removed:
        from search_spaces.space_file import preset_names

        worst = next(iter(explanation.removed))
        lines.append(f"nothing is legal; {worst} removes most. Presets: {', '.join(preset_names())}")
    return lines


def space_json(name: str, space: SearchSpace, framework: str, explanation: Explanation) -> dict[str, Any]:
    """Converts the space to JSON."""
    knobs = []
    for knob, values in _knobs(space).items():
        setting = KNOBS[knob].frameworks.get(framework)
        knobs.append(
            {
                "knob": knob,
                "values": list(values),
                "unit": KNOBS[knob].unit,
                "effect": _class(knob, values),
                "reach": setting.reach.value if setting else None,
                "key": setting.key if setting else None,
                "summary": KNOBS[knob].summary,
            }
        )
    return {"space": name, "framework": framework, "size": space.size, "knobs": knobs, **explanation.as_json()}

"""A search space: its searched knobs, its fixed knobs, and its legal configurations on a machine."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from search_spaces import baseline as baselines
from search_spaces import yaml_text
from search_spaces.configuration import Configuration, KnobValue, Resources
from search_spaces.domains import Situation
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS, Kind
from search_spaces.knobs.batch import ACCUMULATION
from search_spaces.legality import Violation
from search_spaces.legality.case import Case
from search_spaces.legality.knob_rules import inactive_value_of, unknown_knob
from search_spaces.native import UNSET, resolved
from search_spaces.space_file import PRESETS, Content, Inherited, Requirements, preset_names, preset_path, understand
from search_spaces.yaml_text import problem

if TYPE_CHECKING:
    from search_spaces.enumeration import Legal
    from search_spaces.explanation import Explanation

_SUFFIXES = (".yaml", ".yml")
_SWITCHES = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}


class Count(NamedTuple):
    """Number of legal combinations."""

    legal: int
    exact: bool
    """False if the number is an estimate because the space is too large to enumerate."""


@dataclass(frozen=True)
class SearchSpace:
    """Knobs with two or more values are searched, knobs with one value are fixed, all others stay at the baseline's.

    ``unset.UNSET`` may be among the values; ``values_in`` replaces it.
    """

    values: Mapping[str, tuple[KnobValue, ...]]
    fixed: Configuration = field(default_factory=lambda: Configuration({}))
    require: Requirements = field(default_factory=Requirements)
    description: str = field(default="", compare=False)
    inherited: Inherited = field(default_factory=Inherited, compare=False)

    @classmethod
    def load(cls, name: str | Path) -> SearchSpace:
        """Loads a space file by its path, or a preset by its name.

        Raises:
            SpaceError: one sentence with file, line, key and the expected value.
        """
        path, source = _located(name)
        return cls._of_content(_content(path, source), source)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SearchSpace:
        """Builds the space that ``as_json`` wrote, or one from the keys of a space file.

        Raises:
            SpaceError: as ``load``, without lines.
        """
        source = "search space"
        content = understand(yaml_text.plain(dict(data), source), source)
        return cls._of_content(_extended(content, source), source)

    @classmethod
    def _of_content(cls, content: Content, source: str) -> SearchSpace:
        searched = {name: found for name, found in content.values.items() if len(found) > 1}
        if not content.values:
            raise problem(source, 0, "knobs: no knob is listed")
        fixed = {name: found[0] for name, found in content.values.items() if len(found) == 1}
        return cls(
            MappingProxyType(searched), Configuration(fixed), content.require, content.description, content.inherited
        )

    def as_json(self) -> dict[str, Any]:
        """Returns plain data with the keys of a space file; a preset's content is written out."""
        knobs: dict[str, Any] = {name: list(found) for name, found in sorted(self.values.items())}
        knobs.update(self.fixed)
        required = self.require.as_json()
        return {"knobs": dict(sorted(knobs.items())), **({"require": required} if required else {})}

    @property
    def size(self) -> int:
        """Combinations of the listed values, legal or not."""
        return math.prod(len(found) for found in self.values.values())

    def fitted(self, framework: str, having: Collection[str]) -> tuple[SearchSpace, tuple[str, ...]]:
        """Returns the space for ``framework``, and the preset's knobs that were dropped because the framework lacks
        them.

        Knobs of the user's own file stay, and the rules report them.
        """
        said, listed = self.inherited, {**self.values, **self.fixed}
        gone = {name for name in said.knobs if name in listed and name not in having}
        # What may be left unset falls away by itself.
        left = tuple(n for n in sorted(gone) if UNSET not in self.values.get(n, ()))
        foreign = said.frameworks and framework not in said.frameworks
        if not gone and not foreign:
            return self, ()
        data = self.as_json()
        if foreign and said.requires:
            data["require"]["frameworks"] = [framework]
        data["knobs"] = {name: values for name, values in data["knobs"].items() if name not in gone}
        return replace(SearchSpace.from_json(data), description=self.description, inherited=said), left

    def complete(self, baseline: Mapping[str, KnobValue], resources: Resources) -> Configuration:
        """Returns the baseline with the knobs of candidates set, so that equivalent configurations are equal."""
        return baselines.complete(baseline, resources, (*self.values_in(resources), *self.fixed))

    def values_in(self, resources: Resources) -> Mapping[str, tuple[KnobValue, ...]]:
        """Returns ``values``: ``UNSET`` becomes the default, if any; its knob is dropped if the framework lacks it."""
        return resolved(self.values, resources.framework, resources.device)

    def candidates(
        self,
        baseline: Configuration,
        resources: Resources,
        *,
        same_learning: bool,
        limit: int = 50_000,
        seed: int = 0,
    ) -> tuple[Configuration, ...]:
        """Returns the legal configurations, each once, in an order that depends only on the arguments.

        Each sets the knobs of ``complete(baseline)`` except those it leaves unset. The accumulation follows from rows
        per update, which are ``resources.rows_per_update`` or else the baseline's.

        Args:
            same_learning: keep knobs that change numerics or learning at the baseline's values.
            limit: a larger set is sampled to this size, without repeats, by ``seed``.
        """
        return self.counted(baseline, resources, same_learning=same_learning, limit=limit, seed=seed)[0]

    def counted(
        self, baseline: Configuration, resources: Resources, *, same_learning: bool, limit: int = 50_000, seed: int = 0
    ) -> tuple[tuple[Configuration, ...], Count]:
        """Returns ``candidates`` and ``count``; costs as much as ``candidates`` alone."""
        from search_spaces.enumeration import take

        legal = self._legal(baseline, resources, same_learning, seed)
        return take(legal, limit, seed), _count(legal)

    def count(self, baseline: Configuration, resources: Resources, *, same_learning: bool = False) -> Count:
        """Returns the number of legal combinations; ``explain`` also counts each rule's removals and is slower."""
        return _count(self._legal(baseline, resources, same_learning, 0))

    def members(self, configurations: Iterable[Configuration], resources: Resources) -> list[Configuration]:
        """Returns the configurations whose knobs with an effect have values that the user's own file lists.

        Values of a preset may stay at the baseline's, where no other value allows the same learning.
        """
        own = resolved(self.own, resources.framework, resources.device)

        def inside(here: Configuration) -> bool:
            return all(here.get(n, UNSET) in of or _comes_to(n, of, here, resources) for n, of in own.items())

        return [here for here in configurations if inside(here)]

    @property
    def own(self) -> Mapping[str, tuple[KnobValue, ...]]:
        """Knob -> values in the user's own file, without those inherited from a preset; fixed knobs have one value."""
        listed = {**self.values, **{name: (value,) for name, value in self.fixed.items()}}
        return {name: values for name, values in listed.items() if name not in self.inherited.knobs}

    def about(self, base: Mapping[str, KnobValue], free: Collection[str]) -> SearchSpace:
        """Returns this space with only ``free`` knobs searched; all others are fixed to their value in ``base``."""
        kept = {n: base[n] for n in (*self.values, *self.fixed) if n not in free and n in base}
        values = {n: found for n, found in self.values.items() if n in free}
        return SearchSpace(values, Configuration({**self.fixed, **kept}), self.require)

    def explain(self, baseline: Configuration, resources: Resources, *, same_learning: bool = False) -> Explanation:
        """Counts all combinations, the legal ones, and the ones that each rule forbids."""
        from search_spaces.explanation import Explanation, explain

        explanation = explain(self._situation(baseline, resources, same_learning))
        missing = self.require.problem(resources)
        if missing is None:
            return explanation
        example = Violation("space_requires", f"{missing}.")
        return Explanation(
            combinations=explanation.combinations,
            legal=0,
            removed={example.rule: explanation.combinations},
            examples={example.rule: example},
            exact=explanation.exact,
        )

    def _legal(
        self, baseline: Configuration, resources: Resources, same_learning: bool, seed: int
    ) -> tuple[Legal, ...]:
        from search_spaces.enumeration import judged_parts, legal_parts

        if self.require.problem(resources):
            return ()
        return legal_parts(judged_parts(self._situation(baseline, resources, same_learning)), seed)

    def _situation(self, baseline: Configuration, resources: Resources, same_learning: bool) -> Situation:
        return Situation.of(self.values, self.fixed, baseline, resources, same_learning=same_learning)


def _comes_to(name: str, values: tuple[KnobValue, ...], here: Configuration, resources: Resources) -> bool:
    """Tells whether completion turns one of ``values`` into the value in ``here``: accumulation, row cap, inactive."""
    if ACCUMULATION in values and here.get(name) == here.get("gradient_accumulation_steps"):
        return True
    if name == "logprob_rows":
        return any(baselines.capped({**here, name: value}, resources)[name] == here.get(name) for value in values)
    return inactive_value_of(name, Case(here, resources)) is not None


def _count(parts: tuple[Legal, ...]) -> Count:
    return Count(sum(part.count for part in parts), all(part.exact for part in parts))


def parse_value(name: str, text: str) -> KnobValue:
    """Parses a knob's value from a command line. Raises SpaceError for an unknown knob or an impossible value."""
    knob = KNOBS.get(name)
    if knob is None:
        raise SpaceError(f"{unknown_knob(name)}.")
    try:
        return knob.parse(_typed(knob.kind, text))
    except SpaceError as error:
        raise SpaceError(f"{name}: {error}.") from None


def _typed(kind: Kind, text: str) -> object:
    if kind is Kind.BOOL:
        return _SWITCHES.get(text.lower(), text)
    if kind is Kind.CHOICE:
        return text
    try:
        return int(text) if kind is Kind.INT else float(text)
    except ValueError:
        return text


def _located(name: str | Path) -> tuple[Path, str]:
    """Returns the file of a space name, and its name in messages."""
    path = Path(name)
    if isinstance(name, Path) or path.suffix in _SUFFIXES or "/" in name:
        return path, _printable(path)
    if name not in preset_names() and path.is_file():
        return path, _printable(path)
    return preset_path(name, "search space"), name


def _printable(path: Path) -> str:
    return "".join(c if c.isprintable() else "?" for c in str(path))


def _content(path: Path, source: str) -> Content:
    if path.exists() and not path.is_file():
        raise problem(source, 0, "this is not a file")
    try:
        with path.open("rb") as stream:
            data = stream.read(yaml_text.MAX_BYTES + 1)
    except OSError as error:
        raise problem(source, 0, f"cannot be read: {error.strerror or error}") from None
    content = understand(yaml_text.read(data, source), source)
    return replace(content, inherited=content.as_inherited) if path.parent == PRESETS else _extended(content, source)


def _extended(content: Content, source: str) -> Content:
    """Returns ``content`` merged over the preset it extends; presets themselves extend nothing."""
    if not content.extends:
        return content
    path = preset_path(content.extends, source)
    under = understand(yaml_text.read(path.read_bytes(), content.extends), content.extends)
    kept = {name: found for name, found in under.values.items() if name not in content.left_out}
    requires = content.require == Requirements()
    return Content(
        values={**kept, **content.values},
        require=under.require if requires else content.require,
        description=content.description or under.description,
        inherited=Inherited(frozenset(kept) - frozenset(content.values), under.require.frameworks, requires),
    )

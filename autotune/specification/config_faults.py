"""Finds every fault of a user's configuration at once: unreadable, refused by the framework, or not legal.

A reader stops at its first fault. The key it names is therefore removed from the text and the rest is read again. A
fault that exists only because such a key is missing is not reported.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.domain import Resources, RewardSpec
from autotune.errors import FaultsError, UsageError
from autotune.frameworks import framework_named
from autotune.specification import build
from autotune.specification.interpreter import Describes
from autotune.specification.request import Request, ResolvedRequest
from autotune.specification.resolve import Talk, resolve_request
from autotune.specification.user_input import MATH_VERIFY, is_folder
from search_spaces import legality
from search_spaces.configuration import ModelFacts
from search_spaces.errors import SpaceError
from search_spaces.knobs import KNOBS, key_of
from search_spaces.legality.batch_rules import RULES as BATCH_RULES
from trainer.child.contract import Result
from trainer.frameworks.common.config_entries import located

MOST = 20
"""Most faults that are looked for."""
UNKNOWN_PROMPT = 512
"""Presumed tokens of the longest prompt, which only the data would tell."""
_BATCH = frozenset(
    {"micro_batch_size", "gradient_accumulation_steps", "num_generations", "steps_per_generation", "rollout_mode"}
)
"""Knobs that determine the number of rows, ``rollout_mode`` by the GPUs that train."""
_OF_SERVER = frozenset({"tensor_parallel_size", "rollout_data_parallel_size"})
"""Knobs that determine the number of GPUs of a rollout server."""
_NAMES = [rule.name for rule in legality.RULES]
_READ = {rule.name: rule.reads for rule in legality.RULES if _NAMES.count(rule.name) == 1}
"""Rule -> knobs it reads; without rules that exist for several knobs, whose sentences name the knob."""
_BY_PROCESSES = re.compile(r"generation_batch_size \(\d+\) must be divisible by num_generations|global eval batch size")
"""TRL's messages about rows, which count the interpreter's single process; the rules check the real number."""
_WORD = re.compile(r"[A-Za-z_+][\w.+@/-]*")
_OF_MODEL = re.compile("no(t a)? model folder|holds no weights|cannot be read")
_UNSET = re.compile(r"(\S+): \S+ has no default for it")
_NO_KEY = re.compile(r"(?P<begin>.*?, line (?P<line>\d+): .*? has no (?:key|argument)) (?P<key>\S+);", re.DOTALL)
_ADVICE: Mapping[str, str] = {
    "remove it": "remove them",
    "write its keys at the top level, without it": "write their keys at the top level, without them",
}
"""Advice on an unknown key -> the same on several."""


@dataclass(frozen=True)
class Faults:
    """Faults of a configuration."""

    sentences: tuple[str, ...] = ()
    """One sentence for each fault; empty if a study could begin with the configuration."""
    lacking: str = ""
    """Sentence on missing parts that must be given on the command line; empty without one."""
    notes: tuple[str, ...] = ()
    """Sentences on values that may surprise the user."""


def read_whole(request: Request, python: Describes, machine: Resources, bundled: str, talk: Talk) -> ResolvedRequest:
    """Resolves a request as ``resolve.resolve_request``, but raises all faults of its configuration at once.

    Raises:
        FaultsError: the configuration has several faults.
        UsageError: it has one, or something is missing.
        MachineError: the interpreter cannot list the framework's keys.
    """
    asked = _AskedOnce(python, machine)
    try:
        return resolve_request(request, asked, machine, bundled, talk)
    except UsageError as error:
        if request.config is None:
            raise
        found = faults_of(request, asked, machine, bundled)
        sentences = (*found.sentences, found.lacking) if found.lacking else found.sentences
        if len(sentences) < 2:
            raise UsageError(sentences[0] if sentences else str(error)) from error
        raise FaultsError(request.config_name, sentences) from error


def faults_of(
    request: Request, python: Describes, machine: Resources, bundled: str = "", *, weights: bool = False
) -> Faults:
    """Returns every fault of ``request``'s configuration (``weights``: also of its model). Raises ``MachineError``."""
    asked = python if isinstance(python, _AskedOnce) else _AskedOnce(python, machine)
    asked.passes_refusals = False
    found = _Found(request)
    whole = _readable(found, asked, machine)
    refusal = "" if whole is None else asked.refusal(whole.framework)
    if whole is not None and refusal and not found.follows(refusal, batch=bool(_BATCH & found.knobs)):
        found.add(located(refusal, request.config_name, whole.lines))
    if whole is not None:
        _judge(found, whole, machine)
    sentences, lacking, notes = tuple(_joined(found.sentences)), "", list[str]()
    try:
        model = resolve_request(found.request, asked, machine, bundled, notes.append).model
        if weights and is_folder(model):
            build.model_digest(Path(model))
            if '"vision_config"' in (Path(model) / "config.json").read_text(errors="replace"):
                notes.append(f"{model} takes images; a trial's prompts are text, and rows with images are refused")
    except UsageError as error:
        messages = [] if found.is_empty else [each for each in _sentences(str(error), request) if found.add(each)]
        if weights and _OF_MODEL.search(str(error)):
            return Faults((*sentences, *messages), notes=tuple(notes))
        lacking = "\n".join(messages)
    return Faults(sentences, lacking, tuple(notes))


def _joined(sentences: Sequence[str]) -> list[str]:
    """Joins sentences with the same advice on unknown keys, which a program of the user's own reads, into one."""
    left = list(sentences)
    for advice, joint in _ADVICE.items():
        own = [(each, found) for each in left if (found := _NO_KEY.match(each)) and each.endswith(f"; {advice}.")]
        if not own[3:]:
            continue
        (_, first), keys = own[0], [found["key"] for _, found in own]
        more = f" and {len(keys) - 4} more, the last in line {own[-1][1]['line']}" if keys[4:] else ""
        said = f"{first['begin']}s {', '.join(keys[:4])}{more}; a trial runs no program of your own, which may read"
        left = [said + f" them; {joint}." if each is own[0][0] else each for each in left if each not in dict(own[1:])]
    return left


class _AskedOnce:
    """Interpreter that caches its framework's answers; a refusal by the framework does not end the reading."""

    def __init__(self, python: Describes, machine: Resources) -> None:
        self._python, self._alone = python, machine.training_processes == 1
        self._answer: Result | None = None
        self._asked: Mapping[str, Any] = {}
        self._last: Mapping[str, Any] = {}
        self.passes_refusals = True
        """True if a refusal is passed on, as the interpreter itself does."""

    def refusal(self, framework: str) -> str:
        """Returns the framework's reason to refuse the last keys; empty without a refusal."""
        if self._answer is None or self._answer.ok:
            return ""
        if self._asked != self._last:  # what it refused may have been a key that is gone
            self._ask(self._last, framework)
        return "" if self._answer.ok else self._answer.message

    def known_fields(self, framework: str = "trl") -> Mapping[str, Any] | None:
        """Returns the framework's keys; ``None`` if they are not known yet."""
        known = self._python.known_fields(framework)
        return known if self._answer is None else self._answer.data["fields"]

    def describe(self, keys: Mapping[str, Any], framework: str = "trl") -> Result:
        """Returns the interpreter's description of the keys; asked once, then cached."""
        self._last = dict(keys)
        answer = self._ask(keys, framework) if self._answer is None else self._answer
        return answer if self.passes_refusals else replace(answer, ok=True)

    def _ask(self, keys: Mapping[str, Any], framework: str) -> Result:
        answer, self._asked = self._python.describe(keys, framework), self._last
        if not (self._alone or answer.ok) and _BY_PROCESSES.search(answer.message):
            answer = replace(answer, ok=True)
        self._answer = answer
        return answer


@dataclass
class _Found:
    """The faults so far, and the configuration without the keys they name."""

    request: Request
    sentences: list[str] = field(default_factory=list)
    gone: set[str] = field(default_factory=set)
    """Keys that were removed."""

    @property
    def knobs(self) -> set[str]:
        """Knobs that the removed keys set."""
        gone = {key.replace("-", "_") for key in self.gone}
        keys = {name: key_of(name, self.request.framework).rpartition(" ")[2] for name in KNOBS}
        return {name for name in KNOBS if name in gone or keys[name].lstrip("-").replace("-", "_") in gone}

    @property
    def is_empty(self) -> bool:
        """True if every key was removed."""
        return bool(self.gone) and not re.sub(r"(?m)^\s*#.*", "", self.request.config or "").strip()

    def follows(self, sentence: str, *, batch: bool = False) -> bool:
        """Tells whether ``sentence`` may be true only because a key was removed."""
        unset = _UNSET.search(sentence)
        if unset is not None and any(unset[1] in known for known in self.sentences):
            return True
        return batch or bool((self.gone | self.knobs) & {word.rstrip(".:") for word in _WORD.findall(sentence)})

    def add(self, sentence: str) -> bool:
        """Adds a fault; returns ``False`` if it is known or may follow from another."""
        if any(sentence.rstrip(".") in known for known in self.sentences) or self.follows(sentence):
            return False
        self.sentences.append(sentence)
        return True

    def without(self, sentence: str) -> bool:
        """Removes the key that ``sentence`` names from the configuration; returns whether that was possible."""
        text, key = without_key(self.request.config or "", self.request.config_name, sentence)
        if not key:
            return False
        self.request = replace(self.request, config=text)
        self.gone.add(key)
        return True


def _readable(found: _Found, python: _AskedOnce, machine: Resources) -> ResolvedRequest | None:
    """Returns the configuration without its unreadable keys; ``None`` if one cannot be removed."""
    for _ in range(MOST):
        try:
            return resolve_request(with_placeholders(found.request), python, machine)
        except UsageError as error:
            messages = _sentences(str(error), found.request)
            new = [sentence for sentence in messages if found.add(sentence)]
            if not new or not all(found.without(sentence) for sentence in new) or found.is_empty:
                return None
    return None


def _sentences(text: str, request: Request) -> list[str]:
    """Splits a reader's message into faults: one line each if every line begins with a file's name."""
    lines = text.splitlines()
    given = (request.config_name, request.accelerate_name, request.server_name)
    names = tuple(name for name in given if name)
    return lines if all(line.startswith(names) for line in lines) else [text]


def with_placeholders(request: Request) -> Request:
    """Returns ``request`` with a placeholder model, prompts and reward, so that a missing one hides no other fault."""
    reward = (RewardSpec("math_verify", MATH_VERIFY),)
    return replace(
        request,
        model=request.model or "organisation/model",
        data="" if request.task else request.data or "prompts.jsonl",
        rewards=request.rewards or (() if request.task else reward),
    )


def _judge(found: _Found, whole: ResolvedRequest, machine: Resources) -> None:
    """Adds the reasons why no trial could run the configuration, besides the framework's own refusals."""
    framework = framework_named(whole.framework)
    batch = bool(_BATCH & found.knobs)
    batch |= whole.baseline.get("rollout_mode") == "server" and bool(_OF_SERVER & found.knobs)
    whole = replace(whole, max_prompt_length=whole.max_prompt_length or UNKNOWN_PROMPT)
    try:
        build.refuse_server(framework, whole.baseline, machine, whole.config_name, whole.lines)
        space, _ = build.fitted(build.load_space(whole, machine), framework)
        served = legality.Case(whole.baseline, machine).server
        space, _ = build.without_server(space, framework, served=served)
        resources = build.resources_for(machine, whole, ModelFacts(), {})
        baseline = build.baseline_of(whole, space, resources)
    except (UsageError, SpaceError) as error:
        if not batch:
            found.add(str(error))
        return
    try:
        build.check_passthrough(whole, baseline, resources)
    except UsageError as error:
        found.add(str(error))
    of_batch = {rule.name for rule in BATCH_RULES}
    for rule, sentence in build.broken_rules(whole, baseline, resources):
        if not (batch and rule in of_batch) and not found.knobs & _READ.get(rule, frozenset()):
            found.add(sentence)


_PLACE = re.compile(r"(?P<name>.*?), line (?P<line>\d+): (?P<said>.*)", re.DOTALL)


def without_key(text: str, name: str, sentence: str) -> tuple[str, str]:
    """Removes the key that ``sentence`` names by its line; returns text and key. Lines keep their numbers.

    Args:
        text: text of the configuration: YAML, JSON, or a shell script.
        sentence: a fault of it, which begins with file and line.

    Returns:
        The same text and an empty key, if no key at that line can be removed alone.
    """
    place = _PLACE.match(sentence)
    lines = text.splitlines(keepends=True)
    elsewhere = re.search(r": the (?:keys|arguments) are in ", sentence) is not None
    if elsewhere or place is None or place["name"] != name or not 1 <= int(place["line"]) <= len(lines):
        return text, ""
    at = int(place["line"]) - 1
    for word in _WORD.findall(place["said"]):
        key = word.rstrip(".:")
        last = key.rpartition(".")[2]
        for candidate in dict.fromkeys((key, last)):
            cut = _cut(lines, at, candidate, script=name.endswith(".sh"))
            if cut is not None:
                return "".join((*lines[:at], *cut, *lines[at + len(cut) :])), candidate
    return text, ""


def _cut(lines: list[str], at: int, key: str, *, script: bool) -> list[str] | None:
    """Returns the replacement of the lines from ``at`` on; ``None`` if ``key`` is not there."""
    line = lines[at]
    end = "\n" if line.endswith("\n") else ""
    if script:
        return _cut_argument(line, key)
    if re.match(rf"\s*-\s+[\"']?{re.escape(key)}=", line):
        return [end]
    found = re.match(rf"(?P<indent>\s*)[\"']?{re.escape(key)}[\"']?\s*:(?P<value>.*)", line)
    if found is None or re.search(r"[\[{]\s*$", found["value"]):
        return None
    inner = 1
    while at + inner < len(lines) and _inside(lines[at + inner], len(found["indent"])):
        inner += 1
    return [end, *("\n" for _ in range(inner - 1))]


def _inside(line: str, indent: int) -> bool:
    """Tells whether a line of YAML belongs to the key above it."""
    bare = line.lstrip(" ")
    depth = len(line) - len(bare)
    return bool(bare.strip()) and (depth > indent or (depth == indent and bare.startswith("- ")))


_VALUE = r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'\\]+)+"


def _cut_argument(line: str, key: str) -> list[str] | None:
    """Returns a line of a script without ``--key value ...`` or ``key=value``; ``None`` if it has neither."""
    word = re.escape(key).replace("_", "[_-]")
    if re.match(rf"\s*export\s+{word}=", line):
        return ["\n" if line.endswith("\n") else ""]
    argument = rf"(?<!\S)--{word}(?:={_VALUE}|(?:\s+(?!--|-m\s|\S+\.py\b|\\\s*$){_VALUE})*)(?=\s|$)"
    for pattern in (argument, rf"(?<!\S){word}={_VALUE}(?=\s|$)"):
        cut, count = re.subn(pattern, "", line, count=1)
        if count:
            return [cut]
    return None

"""Which of a framework's public examples can be tuned? Each file through the importer and the rules, a row a file.

``python -m benchmarks.examples FRAMEWORK FOLDER`` looks at every file below FOLDER (or at FOLDER itself, if it is a
file) that starts a run of FRAMEWORK, as ``autotune start --config FILE --model ... --data ... --reward ...`` would on
the number of GPUs that the file itself is written for: it is read, its knobs become the baseline, and every rule is
asked. Nothing is launched, and no model or data set is fetched.

Outcomes:
    legal: the file is read whole, and no rule forbids the baseline.
    not legal: the file is read whole; the sentence says which rule speaks against it.
    refused: the sentence says which line and key.

It exits with 0 whatever the outcomes are, and with 2 where FRAMEWORK or FOLDER is none.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.domain import Resources, RewardSpec
from autotune.errors import AutotuneError, UsageError
from autotune.frameworks import Integration, Source, framework_named
from autotune.specification import build
from autotune.specification.interpreter import Interpreter
from autotune.specification.request import Request, ResolvedRequest
from autotune.specification.resolve import read_files, resolve_request
from search_spaces import legality
from search_spaces.configuration import ModelFacts
from search_spaces.errors import SpaceError
from search_spaces.space import parse_value
from trainer.child.contract import Result

LEGAL, NOT_LEGAL, REFUSED = "legal", "not legal", "refused"
SUFFIXES = (".sh", ".yaml", ".yml", ".json", ".slurm")
RUNS: Mapping[str, str] = {
    "trl": r"num_generations|GRPO|grpo",
    "open_r1": r"num_generations",
    "ms_swift": r"swift[ /.]+(cli[/.])?rlhf|rlhf_type",
    "verl": r"main_ppo",
}
"""What a file that starts a run holds."""
_FIELDS = Path(__file__).parents[1] / "trainer" / "frameworks"
"""Framework -> its keys as its interpreter described them once."""
_NODE = 8
_LONGEST_PROMPT = 512
"""Tokens, where a file does not say; no prompts are read here."""


@dataclass(frozen=True)
class Row:
    """What became of one file."""

    file: str
    outcome: str
    gpus: int = 0
    """On all nodes; 0 where it could not be read."""
    sentence: str = ""
    """Why it was refused, or is not legal."""
    notes: tuple[str, ...] = ()
    """What the user is told beside."""


@dataclass(frozen=True)
class Described(Interpreter):
    """An interpreter whose framework takes ``fields``; none is started."""

    python: str = ""
    home: Path = Path()
    fields: Mapping[str, Any] | None = None

    def known_fields(self, framework: str = "trl") -> Mapping[str, Any] | None:
        del framework
        return self.fields or {}

    def describe(self, keys: Mapping[str, Any], framework: str = "trl") -> Result:
        del keys, framework
        return Result(ok=True, data={"fields": dict(self.fields or {})})


@dataclass(frozen=True)
class Asked:
    """What stands on the command line beside FRAMEWORK and FOLDER."""

    framework: Integration
    fields: Mapping[str, Any]
    gpus: int = _NODE
    baseline: Mapping[str, Any] | None = None
    accelerate: Path | None = None


def files_of(framework: str, folder: Path, holding: str = "") -> Iterator[Path]:
    """The files below ``folder`` that start a run, by name; ``folder`` itself, if it is a file."""
    if folder.is_file():
        yield folder
        return
    for path in sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, ValueError):
            continue
        if re.search(RUNS[framework], text) and holding in text:
            yield path


def row_of(path: Path, name: str, asked: Asked) -> Row:
    """What becomes of one file that ``name`` calls."""
    notes: list[str] = []
    try:
        request = _request(path, asked)
        machine = _machine(request, asked)
        whole = resolve_request(request, Described(fields=asked.fields), machine, talk=notes.append)
    except (AutotuneError, SpaceError) as error:
        return Row(name, REFUSED, sentence=str(error))
    gpus = machine.gpus * machine.nodes
    try:
        _judge(whole, asked.framework, machine, notes)
    except (AutotuneError, SpaceError) as error:
        return Row(name, NOT_LEGAL, gpus, str(error), tuple(notes))
    return Row(name, LEGAL, gpus, "", tuple(notes))


def _request(path: Path, asked: Asked) -> Request:
    """As ``autotune start`` has it, with the model, prompts and reward that the command line names."""
    beside = asked.accelerate
    return Request(
        model="example/model",
        data="prompts.jsonl",
        rewards=(RewardSpec("math_verify", "math-verify"),),
        framework=asked.framework.name,
        config=path.read_text(encoding="utf-8"),
        config_name=path.name,
        folder=str(path.parent.resolve()),
        baseline=dict(asked.baseline or {}),
        accelerate=beside.read_text(encoding="utf-8") if beside else "",
        accelerate_name=beside.name if beside else "",
    )


def _machine(request: Request, asked: Asked) -> Resources:
    """The GPUs that the file is written for; where it does not say, as many as asked for, on one node."""
    framework, beside = asked.framework, request.accelerate_name
    source = Source(request.config or "", request.config_name, request.accelerate, beside)
    files = read_files(framework.named_files(source), beside or request.config_name, Path(request.folder))
    imported = framework.import_config(source, framework.fields_of(dict(asked.fields)), 0, files)
    knobs = {**imported.knobs, **request.baseline}
    alone = Resources(framework=framework.name)
    served = int(knobs.get("rollout_gpus", 0)) if legality.Case(knobs, alone).server else 0
    trained = framework.launched(imported) or asked.gpus - served
    # An accelerate file counts all GPUs of the machine; with a server it is launched on the others.
    said = imported.processes if framework.name == "verl" else 0
    wanted = said or trained + (0 if beside else served)
    nodes = wanted // asked.gpus if wanted > asked.gpus and wanted % asked.gpus == 0 else 1
    return Resources(
        gpus=wanted // nodes,
        nodes=nodes,
        cpu_cores=16 * wanted // nodes,
        device="cuda",
        device_memory=80 << 30,
        compute_capability=(9, 0),
        framework=framework.name,
    )


def _judge(whole: ResolvedRequest, framework: Integration, machine: Resources, notes: list[str]) -> None:
    """Every rule on the baseline. Raises where one speaks against it."""
    build.refuse_server(framework, whole.baseline, machine, whole.config_name, whole.lines)
    space, lacked = build.fitted(build.load_space(whole, machine), framework)
    served = legality.Case(whole.baseline, machine).server
    space, left_out = build.without_server(space, framework, served=served)
    notes += [said for said in (lacked, left_out) if said]
    resources = build.resources_for(machine, whole, ModelFacts(), {})
    baseline = build.baseline_of(whole, space, resources)
    build.check_passthrough(whole, baseline, resources)
    build.check_baseline(whole, baseline, resources)


def table(rows: Sequence[Row]) -> list[str]:
    """Markdown: a row a file, and a line that counts."""
    lines = ["| file | outcome | GPUs | why |", "| --- | --- | --- | --- |"]
    for row in rows:
        text = row.sentence.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| `{row.file}` | {row.outcome} | {row.gpus or ''} | {text} |")
    counted = Counter(row.outcome for row in rows)
    said = ", ".join(f"{counted[outcome]} {outcome}" for outcome in (LEGAL, NOT_LEGAL, REFUSED))
    return [*lines, "", f"{counted[LEGAL] + counted[NOT_LEGAL]} of {len(rows)} files are read whole: {said}."]


def _arguments(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.examples", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("framework", choices=sorted(RUNS), metavar="FRAMEWORK", help=", ".join(sorted(RUNS)))
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="a folder of examples, or one file")
    parser.add_argument("--json", action="store_true", help="one JSON object a line in place of Markdown")
    parser.add_argument("--gpus", type=int, default=_NODE, help="of a node; for files that do not say how many (8)")
    parser.add_argument("--fields", type=Path, help="the framework's keys as its interpreter describes them (JSON)")
    parser.add_argument("--accelerate", type=Path, help="the accelerate file that launches each, for Open-R1")
    parser.add_argument("--holding", default="", help="only files that hold this text too", metavar="TEXT")
    parser.add_argument("--set", action="append", default=[], help="a knob of the baseline", metavar="KNOB=VALUE")
    return parser.parse_args(words)


def _fields(framework: str, given: Path | None) -> Mapping[str, Any]:
    path = given or (_FIELDS / framework / "fields.json" if framework in ("trl", "ms_swift") else None)
    return {} if path is None else json.loads(path.read_text(encoding="utf-8"))["fields"]


def main(words: Sequence[str]) -> int:
    """Prints the table. Raises ``UsageError`` where there is nothing to look at."""
    args = _arguments(words)
    if not args.folder.exists():
        raise UsageError(f"there is no {args.folder}")
    framework = framework_named(args.framework)
    baseline = {knob: parse_value(knob, text) for knob, _, text in (word.partition("=") for word in args.set)}
    asked = Asked(framework, _fields(args.framework, args.fields), args.gpus, baseline, args.accelerate)
    root = args.folder.parent if args.folder.is_file() else args.folder
    found = files_of(args.framework, args.folder, args.holding)
    rows = [row_of(path, str(path.relative_to(root)), asked) for path in found]
    print("\n".join([json.dumps(asdict(row)) for row in rows] if args.json else table(rows)))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except (AutotuneError, SpaceError) as problem:
        print(problem, file=sys.stderr)
        sys.exit(2)

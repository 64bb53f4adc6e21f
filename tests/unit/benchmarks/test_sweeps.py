"""The tables recorded on a CPU: what is swept is legal, large enough, and made once."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.main import get_command

from autotune.cli.app import build_app
from autotune.domain import Resources
from benchmarks.search.discrimination import PARAMETERS, TAIL, VOCABULARY
from benchmarks.sweeps import __main__ as command
from benchmarks.sweeps.cases import CASES, Case, Inputs, words
from search_spaces import legality
from search_spaces.configuration import Configuration, ModelFacts
from search_spaces.space import SearchSpace

BOTH = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
MADE = Inputs(Path("/in/model"), Path("/in/prompts.jsonl"), "/in/reward.py:score")
MAKER = """
import json, os, sys
recipe, folder = sys.argv[2:]
assert json.load(open(recipe))["config"]["vocab_size"] >= 32000
os.mkdir(folder)
"""


def resources(case: Case) -> Resources:
    model = case.architecture
    facts = ModelFacts(
        parameters=model.parameters,
        layers=model.layers,
        hidden_size=model.hidden_size,
        attention_heads=model.heads,
        key_value_heads=model.kv_heads,
        vocabulary=model.vocabulary,
        max_positions=model.positions,
    )
    group = case.baseline.get("num_generations")
    return Resources(
        cpu_cores=2,
        rows_per_update=case.rows,
        num_generations=group if isinstance(group, int) else None,
        max_prompt_length=case.longest_prompt,
        max_completion_length=case.longest,
        model=facts,
    )


def baseline(case: Case, space: SearchSpace) -> Configuration:
    micro = case.baseline["micro_batch_size"]
    assert isinstance(micro, int)
    fixed = {"rollout_engine": "transformers", "gradient_accumulation_steps": case.rows // micro, **space.fixed}
    return space.complete({**fixed, **case.baseline}, resources(case))


@BOTH
def test_the_baseline_is_one_of_some_hundred_rows(case: Case) -> None:
    """Fewer than 200 and one more row near the best is too many; many more take days."""
    space = SearchSpace.load(case.space)
    begin = baseline(case, space)
    assert not legality.check(begin, resources(case))
    rows = space.candidates(begin, resources(case), same_learning=False)
    assert begin in rows
    recorded = len(rows) if case.recorded is None else case.recorded
    assert 200 <= recorded <= min(400, len(rows))
    for name, values in space.values.items():
        assert {row[name] for row in rows if name in row} >= {v for v in values if v != "accumulation"}


@BOTH
def test_model_and_lengths_are_what_a_table_needs_to_count(case: Case) -> None:
    assert case.architecture.parameters >= PARAMETERS
    assert case.architecture.vocabulary >= VOCABULARY
    assert case.longest >= 1.5 * TAIL * case.architecture.mean_completion
    assert case.longest_prompt + case.longest <= case.architecture.positions


@BOTH
def test_the_command_takes_its_words(case: Case, tmp_path: Path) -> None:
    """By the command's own parser: an option it does not have would only be noticed after an hour's preparation."""
    given = words(case, MADE, "/env/bin/python", tmp_path, ("--rows", "12"))
    sweep = get_command(build_app()).get_command(None, given[0])  # type: ignore[attr-defined, arg-type]
    parsed = sweep.make_context("sweep", list(given[1:])).params
    assert parsed["rows"] == 12
    assert parsed["space"] == str(case.space)
    assert parsed["rows_per_update"] == case.rows
    assert parsed["baseline"] == [f"{name}={value}" for name, value in case.baseline.items()]
    assert parsed["export"].name.startswith("search-")


def test_inputs_are_made_once(tmp_path: Path) -> None:
    case = next(iter(CASES.values()))
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{MAKER}")
    python.chmod(0o755)
    made = command.make(case, str(python), tmp_path / "out")
    assert made.model.is_dir()
    lengths = [len(json.loads(line)["prompt"].encode()) for line in made.prompts.read_text().splitlines()]
    assert (min(lengths), max(lengths)) == (case.shortest_prompt, case.longest_prompt)
    assert command.make(case, "/no/such/python", tmp_path / "out") == made
    other = replace(case, architecture=replace(case.architecture, layers=case.architecture.layers + 1))
    with pytest.raises(SystemExit, match="made by another recipe"):
        command.make(other, str(python), tmp_path / "out")


def test_a_model_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    case = next(iter(CASES.values()))
    with pytest.raises(SystemExit, match=f"could not make the model {case.architecture.name}"):
        command.make(case, "/bin/false", tmp_path)


def test_what_is_after_two_dashes_goes_to_the_sweep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "make", lambda *_: MADE)
    name = next(iter(CASES))
    assert command.main([name, "--out", str(tmp_path), "--", "--rows", "12", "--name", "pilot"]) == 0
    assert capsys.readouterr().out.rstrip().endswith("--rows 12 --name pilot")

"""What every registered framework has to do, whoever wrote it (``autotune.frameworks.Integration``)."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotune.domain import Configuration, Outcome
from autotune.errors import UsageError
from autotune.frameworks import Integration, framework_named
from autotune.ports import Assignment, Framework, Place
from autotune.specification.build import baseline_of, fitted, without_server
from autotune.specification.request import ResolvedRequest
from search_spaces.frameworks import SHORT, TITLES
from search_spaces.knobs import KNOBS
from search_spaces.native import acting
from search_spaces.space import SearchSpace
from search_spaces.space_file import preset_for
from tests.support import factories
from tests.support.not_none import not_none
from trainer.child import worker
from trainer.child.contract import FailureReason, Pool, TrialSpec, decode, encode
from trainer.frameworks.common.exported import Export, ExportRequest

SPACE = {"knobs": {"gradient_checkpointing": [True, False]}}
CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 22 GiB"


class FrameworkSuite:
    """Subclass with ``name``, of the catalogue."""

    name: str
    device = "cuda"

    @property
    def framework(self) -> Integration:
        return framework_named(self.name)

    @property
    def checkout(self) -> str:
        return "/sources/framework" if self.framework.script else ""

    @property
    def resources(self) -> Any:
        here: dict[str, Any] = {"framework": self.name, "device": self.device, "rows_per_update": 16}
        if self.device == "cuda":
            packages = {"torch": "2.11.0", "vllm": "0.24.0", "flash_attn": "2.8.3"}
            here |= {"gpus": 2, "compute_capability": (9, 0), "software": packages}
        return factories.resources(**here)

    @property
    def baseline(self) -> Configuration:
        """The defaults a study of it begins with."""
        request = ResolvedRequest(framework=self.name, rows_per_update=16, max_completion_length=32)
        found = baseline_of(request, SearchSpace.from_json(SPACE), self.resources)
        return Configuration(found)

    def assignment(self, directory: Path, configuration: Configuration | None = None) -> Assignment:
        workload = factories.workload(rows_per_update=16, passthrough={})
        spec = factories.study_spec(
            framework=self.name,
            baseline=self.baseline,
            resources=self.resources,
            workload=workload,
            checkout=self.checkout,
        )
        trial = factories.trial(configuration=configuration or self.baseline, rows_per_update=16)
        return Assignment(factories.study(spec=spec), trial, directory, 60.0)

    def wanted(self, **changes: Any) -> ExportRequest:
        whole = ExportRequest(
            title="a title",
            configuration=self.baseline,
            python="/env/bin/python",
            model="/models/small",
            rewards=(factories.reward(),),
            rows_per_update=16,
            max_completion_length=32,
            max_prompt_length=32,
            device=self.device,
            world_size=2 if self.device == "cuda" else 1,
            checkout=self.checkout,
        )
        return replace(whole, **changes)

    def unset(self) -> str:
        """A knob its trials have no setting for; empty if they have one for every knob."""
        there = [name for name in KNOBS if name not in self.framework.supported]
        alone = [name for name in there if name in acting({name: _value(name)}, self.name)]
        return next(iter(alone), "")

    def test_it_is_known_by_its_names(self) -> None:
        found = framework_named(SHORT[self.name])
        assert (found.name, found.title) == (self.name, TITLES[self.name])
        assert found.environment.needed

    def test_its_trials_are_run_by_a_child(self) -> None:
        assert self.name in worker.FRAMEWORKS

    def test_what_it_sets_is_in_the_catalogue_with_a_setting_of_its_own(self) -> None:
        assert self.framework.supported
        lacking = [k for k in self.framework.supported if k not in KNOBS or self.name not in KNOBS[k].frameworks]
        assert lacking == []

    def test_the_defaults_can_be_set(self) -> None:
        assert list(self.framework.unsupported(self.baseline)) == []

    def test_the_preset_of_a_machine_can_be_searched(self, tmp_path: Path) -> None:
        """Every legal combination that is drawn is one its trials can be given, and is given."""
        preset = SearchSpace.load(preset_for(self.resources.gpus))
        space, _ = without_server(fitted(preset, self.framework)[0], self.framework)
        found = space.candidates(space.complete(self.baseline, self.resources), self.resources, same_learning=False)
        assert len(found) > 10
        drawn = found[:: max(1, len(found) // 200)]
        assert [said for each in drawn for said in self.framework.unsupported(each)] == []
        for each in drawn:
            assignment = self.assignment(tmp_path, each)
            spec = self.framework.render(assignment)
            if self.framework.no_server:
                place = Place("/env/bin/python", ("0", "1"), 8000, 51216)
                assert self.framework.companion(assignment, spec, place) is None

    def test_a_knob_it_has_no_setting_for_is_refused_by_name(self) -> None:
        knob = self.unset()
        if not knob:
            pytest.skip("it has a setting for every knob that acts alone")
        wanted = self.baseline.with_(**{knob: _value(knob)})
        assert any(knob in sentence for sentence in self.framework.unsupported(wanted))
        with pytest.raises(UsageError, match=knob):
            self.framework.export(self.wanted(configuration=wanted))

    def test_a_rendered_trial_says_everything_and_survives_the_wire(self, tmp_path: Path) -> None:
        assignment = self.assignment(tmp_path)
        spec = self.framework.render(assignment)
        assert (spec.framework, spec.rows_per_update, spec.device) == (self.name, 16, self.device)
        assert (spec.model, spec.prompts) == ("/models/small", assignment.study.spec.workload.prompts)
        assert spec == decode(TrialSpec, encode(spec))
        assert spec == self.framework.render(assignment)

    def test_a_colocated_trial_needs_no_server(self, tmp_path: Path) -> None:
        assignment = self.assignment(tmp_path)
        place = Place("/env/bin/python", ("0", "1"), 8000, 51216)
        assert self.framework.companion(assignment, self.framework.render(assignment), place) is None

    def test_an_export_is_files_and_a_command_that_starts_them(self) -> None:
        made = self.framework.export(self.wanted())
        names = self.framework.names
        assert names.run in made.files
        assert made.command.argv
        assert made == self.framework.export(self.wanted())
        script = made.files[names.run]
        assert script.startswith("#!")
        assert all(not Path(name).is_absolute() and ".." not in Path(name).parts for name in made.files)
        assert shlex.split(shlex.join(made.command.argv)) == list(made.command.argv)

    def test_an_export_takes_nothing_from_this_machine(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before: Export = self.framework.export(self.wanted())
        monkeypatch.setenv("HOME", "/elsewhere")
        monkeypatch.chdir("/")
        assert self.framework.export(self.wanted()) == before

    def test_an_oom_of_the_device_is_known_and_answered(self) -> None:
        found = not_none(self.framework.diagnose(f"step 3\n{CUDA}\n"))
        assert (found.reason, found.pool) == (FailureReason.OOM, Pool.DEVICE)
        outcome = Outcome(reason=FailureReason.OOM, pool=Pool.DEVICE, phase="update")
        assert found.suggestion or self.framework.suggest(outcome)

    def test_a_log_in_order_is_no_failure(self) -> None:
        assert self.framework.diagnose("{'loss': 0.1}\nall went well\n") is None
        assert self.framework.suggest(Outcome(reason=None)) == ""

    def test_it_is_what_the_runner_and_the_commands_ask_for(self) -> None:
        """The members of the port; and what each framework has to name has no default."""
        members = [name for name in dir(Framework) if not name.startswith("_")]
        named = [name for name in Integration.__annotations__ if not hasattr(Integration, name)]
        assert [name for name in (*members, *named) if not hasattr(self.framework, name)] == []
        assert isinstance(self.framework, Integration)


def _value(knob: str) -> Any:
    """A value the knob can have."""
    found = KNOBS[knob]
    if found.choices:
        return found.choices[-1]
    if found.kind.value == "bool":
        return True
    number = max(found.bounds[0] or 1, 1)
    return int(number) if found.kind.value == "int" else float(min(number, found.bounds[1] or number))

"""Puts a case to the product: the same calls as its commands, on a machine that is made up."""

from __future__ import annotations

import contextlib
import io
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.cli.app import build_app
from autotune.cli.failures import exit_code_of
from autotune.domain import Configuration, RewardSpec
from autotune.errors import AutotuneError
from autotune.frameworks import framework_named
from autotune.running.ending import Ending, Stop, outcome_of
from autotune.specification import build
from autotune.specification.config_faults import UNKNOWN_PROMPT, read_whole
from autotune.specification.on_paper import Recorded
from autotune.specification.prepare import check_baseline, searched
from autotune.specification.request import Request, ResolvedRequest
from autotune.specification.user_input import MATH_VERIFY
from benchmarks.cases.case import Case, Machine
from search_spaces.batch import served_by, training_gpus
from search_spaces.configuration import ModelFacts, Resources
from search_spaces.errors import SpaceError
from trainer.child.contract import CurrentPhase, FailureReason, Phase, Result
from trainer.frameworks.common.exported import Export, ExportRequest


@dataclass
class Answer:
    """What the product said and found; only what was asked for is filled in."""

    refused: str | None = None
    """The sentence; ``None``: not refused."""
    said: list[str] = field(default_factory=list)
    rows: int | None = None
    knobs: Mapping[str, Any] = field(default_factory=dict)
    passthrough: Mapping[str, Any] = field(default_factory=dict)
    exported: Mapping[str, str] = field(default_factory=dict)
    """File -> text, of the baseline."""
    reason: str | None = None
    pool: str | None = None
    phase: str | None = None
    suggests: str = ""
    plan: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All that was said."""
        return "\n".join([*self.said, self.refused or "", self.suggests])


@dataclass(frozen=True)
class Refusing(Recorded):
    """The framework's keys as they were recorded, with what its own check says."""

    says: str = ""
    """The framework's own sentence against the configuration."""

    def describe(self, keys: Mapping[str, Any], framework: str = "trl") -> Result:
        """Refused where the case says so."""
        found = super().describe(keys, framework)
        return replace(found, ok=False, reason=FailureReason.ILLEGAL, message=self.says) if self.says else found


def asked(case: Case) -> Answer:
    """The product's answer."""
    return _ASKING[case.ask](case)


def _import(case: Case) -> Answer:
    """As ``start`` reads a configuration and judges its baseline; the prompts are not looked at."""
    answer = Answer()
    try:
        _judged(case, answer)
    except (AutotuneError, SpaceError) as error:
        answer.refused = str(error)
    return answer


def _judged(case: Case, answer: Answer) -> None:
    framework = framework_named(case.framework)
    machine = _resources(case.machine, framework.name)
    python = Refusing(case.framework_says)
    whole = read_whole(_request(case, framework.name), python, machine, "", answer.said.append)
    whole, space = searched(whole, framework, machine, answer.said.append)
    whole = replace(whole, max_prompt_length=whole.max_prompt_length or UNKNOWN_PROMPT)
    resources = build.resources_for(machine, whole, ModelFacts(**case.model), {})
    baseline = build.baseline_of(whole, space, resources)
    answer.rows, answer.knobs, answer.passthrough = whole.rows_per_update, dict(baseline), whole.passthrough
    check_baseline(whole, framework, space, baseline, resources, answer.said.append)
    if "exported" in case.right:
        answer.exported = _exported(whole, baseline, resources).files


def _exported(whole: ResolvedRequest, baseline: Configuration, resources: Resources) -> Export:
    """As ``export`` writes it of a study."""
    wanted = ExportRequest(
        title="",
        configuration=baseline,
        python="/env/bin/python",
        model=whole.model,
        rewards=whole.rewards,
        rows_per_update=whole.rows_per_update,
        max_completion_length=whole.max_completion_length,
        passthrough=whole.passthrough,
        device=resources.device,
        max_prompt_length=whole.max_prompt_length,
        world_size=training_gpus(baseline, resources),
        nodes=resources.nodes,
        user_config=whole.config or "",
        accelerate=whole.accelerate,
        checkout="/checkout",
    )
    return framework_named(whole.framework).export(wanted)


def _resources(machine: Machine, framework: str) -> Resources:
    major, _, minor = machine.compute_capability.partition(".")
    return Resources(
        gpus=machine.gpus,
        nodes=machine.nodes,
        cpu_cores=16,
        device="cuda" if machine.gpus else "cpu",
        device_memory=machine.memory_gib << 30 if machine.gpus else None,
        compute_capability=(int(major), int(minor)) if machine.gpus else None,
        framework=framework,
    )


def _request(case: Case, framework: str) -> Request:
    given = dict(case.given)
    served = served_by(given.pop("rollout_gpus")) if "rollout_gpus" in given else {}
    reward = (RewardSpec("math_verify", MATH_VERIFY),) if given.pop("reward", "") else ()
    knobs = {**served, **given.pop("set", {})}
    return Request(
        config=case.text,
        config_name=case.input,
        folder=str(case.folder),
        framework=framework,
        accelerate=case.text_of(case.accelerate),
        accelerate_name=case.accelerate,
        server=case.text_of(case.server),
        server_name=case.server,
        baseline=knobs,
        rewards=reward,
        **given,
    )


def _check(case: Case) -> Answer:
    """``autotune space check``."""
    code, out, talk = command("space", "check", "--framework", case.framework, *case.options, folder=case.folder)
    return Answer(refused=out + talk if code else None, said=[out, talk])


def _plan(case: Case) -> Answer:
    """``autotune plan``."""
    words = ("plan", "--framework", case.framework, *case.options)
    code, out, talk = command(*words, "--json", folder=case.folder)
    found = json.loads(out) if out.strip() else {}
    return Answer(refused=None if found else talk or f"exit code {code}", said=[out, talk], plan=found)


def command(*words: str, folder: Path) -> tuple[int, str, str]:
    """``autotune WORDS`` in ``folder`` and in this process, with an empty home: (exit code, stdout, stderr)."""
    out, talk = io.StringIO(), io.StringIO()
    with (
        tempfile.TemporaryDirectory(prefix="autotune-case-") as home,
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(talk),
    ):
        homed = (*words, "--home", home) if words[0] == "plan" else words
        code = exit_code_of(lambda: build_app()(list(homed), prog_name="autotune"))
    return code, out.getvalue(), talk.getvalue()


def _diagnose(case: Case) -> Answer:
    """As the end of a trial is judged, whose log is the input."""
    framework = framework_named(case.framework)
    given = case.result
    result = None
    if given:
        reason = FailureReason(given.get("reason", "CRASH"))
        phase = Phase(given["phase"]) if "phase" in given else None
        result = Result(False, reason, phase, None, given.get("message", ""), given.get("detail", ""))
    ending = Ending(
        exit_code=1,
        seconds=10.0,
        silent_s=case.silent_s,
        stop=Stop(case.stopped) if case.stopped else None,
        why="stopped" if case.stopped else "",
        result=result,
        phase=CurrentPhase(case.phase, 0, "recorded") if case.phase else None,
        log_tail=case.text,
    )
    outcome = outcome_of(ending, framework, "log.txt")
    return Answer(
        refused=None,
        said=[outcome.message],
        reason=None if outcome.reason is None else outcome.reason.value,
        pool=None if outcome.pool is None else outcome.pool.value,
        phase=outcome.phase,
        suggests=outcome.suggestion,
    )


_ASKING: Mapping[str, Callable[[Case], Answer]] = {
    "import": _import,
    "check": _check,
    "plan": _plan,
    "diagnose": _diagnose,
}

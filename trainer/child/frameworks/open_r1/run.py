"""An Open-R1 trial: the ``grpo.py`` of the user's checkout, with its trainer metered from outside."""

from __future__ import annotations

import contextlib
import copy
import runpy
import sys
from pathlib import Path
from typing import Any, List

from ...checks import SET_UP, check_lengths, check_rows, refusing, says_why
from ...contract import StartupPart
from ...cycles import CyclePlan
from ...failures import IllegalSettingError, MeterError
from ...rewards import close_rewards, guarded, load_rewards, reward_facts
from ...trial import TrialContext
from ..hf_trainer.weight_group import client_at_port
from . import importing, recipe


class FinishedError(Exception):
    """Ends ``grpo.py`` after the protocol; its work after training is not part of a trial."""


def run_trial(trial: TrialContext) -> None:
    """Runs the trial until the protocol is fulfilled. Raises the error of a failure (``failures.classify``)."""
    spec = trial.spec
    script = importing.script()
    importing.before_import(spec)
    with trial.startup(StartupPart.IMPORT):
        trial.facts["versions"] = importing.bring_in()
    keep_datasets(trial.paths.scratch / "datasets")
    check_lengths(spec)
    trial.open_meter()
    trial.guard_memory(early=True)
    path, updates = recipe.write(spec, CyclePlan(spec.protocol), trial.paths.scratch)
    rewards: List[Any] = []
    with contextlib.ExitStack() as loading:
        loading.enter_context(trial.startup(StartupPart.LOAD))
        install_rewards(trial, rewards)
        install_trainer(trial, updates, loading)
        try:
            run_script(script, path)
        except FinishedError:
            return
        except SET_UP as error:
            if trial.part is not StartupPart.LOAD or says_why(error):
                raise
            raise IllegalSettingError(str(error)) from error
        finally:
            trial.facts.update(reward_facts(rewards))
            close_rewards(rewards)
    raise MeterError("grpo.py ended without having trained")


def keep_datasets(folder: Path) -> None:
    """Keeps the files that ``datasets`` makes of the prompts in the trial's own folder."""
    import datasets

    datasets.config.HF_DATASETS_CACHE = folder


def run_script(script: Path, path: Path) -> None:
    """Runs ``grpo.py --config PATH``. Raises IllegalSettingError if it refuses the recipe during set-up."""
    before = list(sys.argv)
    sys.argv = [str(script), "--config", str(path)]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as error:
        raise IllegalSettingError("grpo.py refuses the recipe (exit %s); the log says why" % error.code) from error
    finally:
        sys.argv = before


def install_rewards(trial: TrialContext, loaded: List[Any]) -> None:
    """Installs the study's rewards besides those of Open-R1's registry, each with its failures marked as its own.

    Raises RewardFailedError for a reward that cannot be loaded.
    """
    from open_r1 import rewards

    registry, specs = rewards.get_reward_funcs, trial.spec.rewards

    def get_reward_funcs(script_args: Any) -> List[Any]:
        found = []
        for reward in specs:
            if reward.kind != recipe.KIND:
                loaded.extend(load_rewards([reward]))
                found.append(guarded(loaded[-1]))
                continue
            one = copy.copy(script_args)
            one.reward_funcs = [reward.name]
            try:
                found += [guarded(each) for each in registry(one)]
            except KeyError:
                raise IllegalSettingError("Open-R1's registry has no reward %s" % reward.name) from None
        return found

    rewards.get_reward_funcs = get_reward_funcs


def install_trainer(trial: TrialContext, updates: int, loading: contextlib.ExitStack) -> None:
    """Replaces the trainer that ``grpo.py`` imports by a subclass that measures cycles."""
    import trl
    from trl import GRPOTrainer

    from .drive import OpenR1Loop

    class Metered(GRPOTrainer):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            loading.close()
            config = kwargs["args"]
            rows = config.per_device_train_batch_size * config.gradient_accumulation_steps * config.world_size
            check_rows(rows, trial.spec)
            trial.note("script", {"config": type(config).__module__})
            with trial.startup(StartupPart.ENGINE), refusing():
                super().__init__(*args, **kwargs)
            trial.guard_memory()

        def train(self, *_: Any, **__: Any) -> Any:
            OpenR1Loop(trial, self, updates).drive(super().train)
            raise FinishedError

    module = sys.modules[importing.TRAINER]
    module.VLLMClient = client_at_port(module.VLLMClient)  # type: ignore[attr-defined]
    Metered.__name__ = GRPOTrainer.__name__
    trl.GRPOTrainer = Metered

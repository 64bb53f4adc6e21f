"""A user's TRL config against the real TRL: the same keys, the same meaning, the same refusals."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.forking_interpreter import Interpreter
from tests.support.imports import text_of
from tests.support.trl_fields import RECORDED
from tests.support.trl_keys import to_keys
from trainer.child.contract import FailureReason, Result, RunPaths, read_result
from trainer.frameworks.common.config_entries import located
from trainer.frameworks.common.fields import fields_of
from trainer.frameworks.trl.import_config import import_config, read_keys
from trainer.frameworks.trl.keys import settings, unsupported

ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "trainer" / "child" / "start.py"
PYTHON = os.environ.get("AUTOTUNE_TEST_PYTHON", "")

pytestmark = [pytest.mark.trl, pytest.mark.skipif(not PYTHON, reason="AUTOTUNE_TEST_PYTHON names no interpreter")]

OWN = text_of("trl_scalars.yaml")

MEANING = """
import dataclasses, json, os, sys
from trl.scripts.grpo import make_parser
parser = make_parser()
_, training, model, _ = parser.parse_args_and_config(["--config", sys.argv[1]], fail_with_unknown_args=True)
keys = json.load(open(sys.argv[2]))
differences = {}
for theirs in (training, model):
    names = {field.name for field in dataclasses.fields(theirs) if field.init}
    ours = type(theirs)(**{name: keys[name] for name in names if name in keys})
    for name in sorted(names):
        pair = [str(getattr(side, name)) for side in (theirs, ours)]
        if pair[0] != pair[1]:
            differences[name] = pair
differences.update({n: os.environ.get(n) for n, v in keys["env"].items() if os.environ.get(n) != v})
json.dump(differences, open(sys.argv[3], "w"))
"""

REFUSALS = """
import importlib, json, sys
from pathlib import Path
import importlib.util
spec = importlib.util.spec_from_file_location("start", sys.argv[1])
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
start.load_package()
describe = importlib.import_module(start.PACKAGE + ".describe")
asked = json.load(open(sys.argv[2]))
answers = [describe.refusal(keys, Path(sys.argv[3]).parent) for keys in asked]
json.dump(answers, open(sys.argv[3], "w"))
"""


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Interpreter]:
    begin = "from trl.scripts.grpo import make_parser; make_parser()"
    made = Interpreter(PYTHON, begin, tmp_path_factory.mktemp("interpreter") / "log.txt")
    yield made
    made.close()


def described(folder: Path, config: dict[str, Any]) -> list[str]:
    """The command that describes TRL and judges ``config``."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"config": config}))
    return [str(START), "describe", "--directory", str(folder)]


def describe(interpreter: Interpreter, folder: Path, config: dict[str, Any]) -> Result:
    argv = described(folder, config)
    status = interpreter.run(f"import runpy; runpy.run_path({str(START)!r}, run_name='__main__')", folder, *argv)
    result = read_result(RunPaths(folder).result)
    assert status == (0 if result.ok else 1), interpreter.said()
    return result


def run(interpreter: Interpreter, code: str, folder: Path, *arguments: Path) -> Any:
    answer = folder / "answer.json"
    assert interpreter.run(code, folder, "-c", *arguments, answer) == 0, interpreter.said()
    return json.loads(answer.read_text())


def test_the_installed_trl_has_the_recorded_keys_and_takes_a_real_config(tmp_path: Path) -> None:
    """If TRL has another key: look at ``key_handling``, then record ``describe``'s answer in tests/fixtures anew."""
    argv = [PYTHON, *described(tmp_path / "run", read_keys(OWN, "grpo.yaml"))]
    done = subprocess.run(argv, check=False, cwd=tmp_path / "run", capture_output=True, text=True)
    result = read_result(RunPaths(tmp_path / "run").result)
    assert result.ok, result.message
    assert done.returncode == 0, done.stderr
    assert result.data["trl"] == RECORDED["trl"]
    recorded, found = RECORDED["fields"], result.data["fields"]
    assert set(found) == set(recorded)
    assert {name: entry["type"] for name, entry in found.items()} == {n: e["type"] for n, e in recorded.items()}
    assert {name: entry["group"] for name, entry in found.items()} == {n: e["group"] for n, e in recorded.items()}
    assert not list((tmp_path / "run").glob("scratch/*"))


def test_a_config_means_here_what_it_means_to_trl(interpreter: Interpreter, tmp_path: Path) -> None:
    """Import, write back as TRL's keys, and build TRL's dataclasses: they are those TRL's own parser builds."""
    found = import_config(OWN, "grpo.yaml", fields_of(RECORDED["fields"]))
    keys = {**found.passthrough, **to_keys(found.knobs), "model_name_or_path": found.model}
    keys["max_completion_length"] = found.max_completion_length
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    (tmp_path / "grpo.yaml").write_text(OWN)
    assert found.knobs["steps_per_generation"] == 2
    assert len(keys) > 30
    assert run(interpreter, MEANING, tmp_path, tmp_path / "grpo.yaml", tmp_path / "keys.json") == {}


OPEN_R1_LIKE = text_of("trl_vllm_zero3.yaml")
ZERO_3 = {
    "bf16": {"enabled": "auto"},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "none"},
        "overlap_comm": True,
        "contiguous_gradients": True,
        "sub_group_size": 1000000000,
        "reduce_bucket_size": "auto",
        "stage3_prefetch_bucket_size": 50000000.0,
        "stage3_param_persistence_threshold": "auto",
        "stage3_gather_16bit_weights_on_model_save": True,
    },
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "steps_per_print": 2000,
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "wall_clock_breakdown": False,
}


def leaves(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    if not isinstance(value, dict):
        return {path: value}
    return {place: leaf for key, item in value.items() for place, leaf in leaves(item, (*path, key)).items()}


def test_vllm_and_zero_3_mean_here_what_they_mean_to_trl(interpreter: Interpreter, tmp_path: Path) -> None:
    """As above for the keys a run on several GPUs has; of DeepSpeed's file every value is what it was."""
    (tmp_path / "zero3.json").write_text(json.dumps(ZERO_3))
    files = {"deepspeed": (tmp_path / "zero3.json").read_text()}
    text = OPEN_R1_LIKE.replace("zero3.json", str(tmp_path / "zero3.json"))
    found = import_config(text, "grpo.yaml", fields_of(RECORDED["fields"]), 8, files)
    assert found.knobs["zero_stage"] == 3
    assert found.knobs["rollout_engine"] == "vllm"
    assert found.passthrough["vllm_importance_sampling_clip_max"] == 2.0
    assert unsupported(found.knobs) == []
    rendered = settings(found.knobs, 4 * 4 * 8, 8, device="cuda", longest=600, passthrough=found.passthrough)
    ours, theirs = leaves(rendered[0]["deepspeed"]), leaves(ZERO_3)
    assert {path: ours.get(path) for path in theirs} == theirs
    keys = {**found.passthrough, **to_keys(found.knobs), "model_name_or_path": found.model}
    keys.update(deepspeed=str(tmp_path / "zero3.json"), max_completion_length=found.max_completion_length)
    (tmp_path / "keys.json").write_text(json.dumps(keys))
    (tmp_path / "grpo.yaml").write_text(text)
    assert run(interpreter, MEANING, tmp_path, tmp_path / "grpo.yaml", tmp_path / "keys.json") == {}
    assert describe(interpreter, tmp_path / "run", read_keys(text, "grpo.yaml", files)).ok


def test_what_trl_would_refuse_at_launch_is_known_before_a_trial(interpreter: Interpreter, tmp_path: Path) -> None:
    batch = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "num_generations": 2}
    asked: list[tuple[dict[str, Any], str | None]] = [
        (batch, None),
        ({**batch, "learning_rate": "1e-6", "bf16": "yes", "deprecated_and_unknown": 1}, None),
        ({**batch, "num_generations": 3}, "generation_batch_size (4) must be divisible by num_generations (3)"),
        ({**batch, "bf16": "perhaps"}, "Truthy value expected: got perhaps"),
        ({**batch, "learning_rate": "fast"}, "invalid float value: 'fast'"),
        ({**batch, "load_in_4bit": True, "load_in_8bit": True}, "8 bit and 4 bit precision at the same time"),
        ({**batch, "load_best_model_at_end": True}, "requires the save and eval strategy to match"),
        ({**batch, "use_peft": True, "lora_task_type": "NONE_SUCH"}, "Invalid task type"),
        ({**batch, "dataloader_prefetch_factor": 2}, "dataloader_prefetch_factor can only be set when"),
        ({**batch, "datasets": [{"name": "x"}]}, "path"),
    ]
    (tmp_path / "asked.json").write_text(json.dumps([keys for keys, _ in asked]))
    answers = run(interpreter, REFUSALS, tmp_path, START, tmp_path / "asked.json")
    for (keys, expected), answer in zip(asked, answers, strict=True):
        assert (expected is None) == (answer is None), (keys, answer)
        if expected is not None:
            assert expected in answer, keys
            assert "\n" not in answer


def test_a_refusal_of_trls_own_is_a_sentence_with_its_line(interpreter: Interpreter, tmp_path: Path) -> None:
    text = "per_device_train_batch_size: 2\nnum_generations: 3\n"
    result = describe(interpreter, tmp_path / "run", read_keys(text, "grpo.yaml"))
    assert result.reason is FailureReason.ILLEGAL
    lines = import_config(text, "grpo.yaml", fields_of(result.data["fields"])).lines
    assert located(result.message, "grpo.yaml", lines).startswith("grpo.yaml, line 2: generation_batch_size (2) must")

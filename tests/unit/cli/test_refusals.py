"""Command lines that mean nothing are refused by the option that is wrong (``tests/fixtures/refusals.yaml``)."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
import yaml

from autotune.domain import Study
from tests.support.published_models import PUBLISHED
from tests.unit.cli.conftest import Run

UNLIMITED = "give the study a limit"
ROWS = yaml.safe_load((Path(__file__).parents[2] / "fixtures" / "refusals.yaml").read_text("utf-8"))["refused"]
FILES = {
    "grpo.yaml": "model_name_or_path: model\ndataset_name: a/set\nreward_funcs: [accuracy_reward]\nnum_processes: 2\n",
    "trl.sh": "trl grpo --model_name_or_path model --reward_funcs accuracy_reward",
    "run.py": "raise SystemExit('it was run')",
    "mine.yaml": "knobs:\n  micro_batch_size: [1, two]\n",
    "one.yaml": "knobs:\n  micro_batch_size: [4]\n",
    "prompts.jsonl": '{"prompt": "1 + 1"}\n',
    "bare/notes": "",
}


@pytest.mark.parametrize(("line", "said"), ROWS)
def test_a_word_that_means_nothing_is_refused_by_its_option(
    autotune: Run, study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(PUBLISHED["Qwen2.5-1.5B"][0]))
    (tmp_path / "bare").mkdir()
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    before = sorted(path for path in tmp_path.rglob("*") if "home" not in path.parts)
    words = shlex.split(line)
    if words[0] == "start":
        limit = [] if "--budget" in line or said == UNLIMITED else ["--budget", "1m"]
        words += ["--no-serve", *limit]
    code, out, err = autotune(*words)
    assert (code, out) == (2, "")
    assert said in err
    assert (err[:10], err.count("\n")) == ("autotune: ", 1)
    assert "\x1b" not in err
    assert "sentinel" not in err, "a password"
    assert sorted(path for path in tmp_path.rglob("*") if "home" not in path.parts) == before

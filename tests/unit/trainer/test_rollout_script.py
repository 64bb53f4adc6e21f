"""A pair of scripts, one that trains and one that serves its rollouts, as one baseline."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.cli.commands.start_options import StartOptions
from autotune.cli.commands.start_request import request_of
from autotune.errors import UsageError
from autotune.frameworks import Source, framework_named
from autotune.specification.request import Request
from search_spaces.configuration import KnobValue
from tests.support import trl_fields
from tests.support.properties import examples
from tests.support.swift_fields import FIELDS
from trainer.child.contract import RewardSpec
from trainer.frameworks import trl
from trainer.frameworks.common.exported import ExportRequest
from trainer.frameworks.common.imported import Imported
from trainer.frameworks.trl.keys import acting

TRAIN = """\
NPROC_PER_NODE=7 swift rlhf --rlhf_type grpo --model org/model --reward_funcs accuracy --dataset d \\
    --per_device_train_batch_size 4 --num_generations 7 --use_vllm true --vllm_mode server \\
    --vllm_server_host 127.0.0.1 --vllm_max_model_len 100
"""
ROLLOUT = """\
#!/bin/bash
CUDA_VISIBLE_DEVICES=4,5,6,7 \\
swift rollout --model org/model \\
    --vllm_tensor_parallel_size 1 --vllm_data_parallel_size 1 \\
    --vllm_max_model_len 4096 --vllm_gpu_memory_utilization 0.8 --vllm_use_async_engine true
"""
RECIPE = "model_name_or_path: m\nuse_vllm: true\nper_device_train_batch_size: 8\nvllm_gpu_memory_utilization: 0.7\n"
LAUNCH = "CUDA_VISIBLE_DEVICES=3 trl vllm-serve --model m --tensor_parallel_size 1 --max_model_len 2048\n"
TRL = "model_name_or_path: m\nuse_vllm: true\nvllm_mode: server\nvllm_gpu_memory_utilization: 0.3\n"
TRL_SCRIPT = "accelerate launch --num_processes 3 grpo.py --model_name_or_path m --use_vllm --vllm_mode server\n"
SERVE = """\
CUDA_VISIBLE_DEVICES=3 VLLM_SERVER_DEV_MODE=1 nohup \\
vllm serve m --tensor-parallel-size 1 --dtype bfloat16 \\
    --no-enable-prefix-caching --max-num-seqs=64 --port 8000 > serve.log 2>&1 &
"""


def read(name: str, text: str, server: str) -> Imported:
    framework = framework_named(name)
    config = "train.sh" if text in (TRL_SCRIPT, TRAIN) or text.startswith("NPROC") else "own.yaml"
    source = Source(text, config, server=server, server_name="serve.sh")
    fields = {"ms_swift": FIELDS, "trl": trl_fields.FIELDS}.get(name) or framework.fields_of({})
    return framework.import_config(source, fields, 1, {})


def knobs(name: str, text: str, server: str) -> dict[str, object]:
    return dict(read(name, text, server).knobs)


def test_ms_swifts_pair_is_one_baseline() -> None:
    found = knobs("ms_swift", TRAIN, ROLLOUT)
    assert (found["rollout_mode"], found["rollout_gpus"], found["micro_batch_size"]) == ("server", 1, 4)
    assert found["gpu_memory_utilization"] == 0.8
    assert found["max_model_len"] == 4096, "the server reads its own, not the trainer's"
    several = ROLLOUT.replace("--vllm_data_parallel_size 1", "--vllm_data_parallel_size 4")
    assert knobs("ms_swift", TRAIN, several)["rollout_gpus"] == 4
    assert knobs("ms_swift", TRAIN, ROLLOUT.replace("--vllm_data_parallel_size 1", ""))["rollout_gpus"] == 1


def test_open_r1s_pair_is_one_baseline() -> None:
    found = knobs("open_r1", RECIPE, LAUNCH)
    assert (found["rollout_gpus"], found["max_model_len"], found["micro_batch_size"]) == (1, 2048, 8)
    assert "gpu_memory_utilization" not in found, "a recipe's is of a colocated engine"


def test_trls_pair_is_one_baseline() -> None:
    found = knobs("trl", TRL, LAUNCH)
    assert (found["rollout_mode"], found["rollout_gpus"], found["max_model_len"]) == ("server", 1, 2048)
    assert found["gpu_memory_utilization"] == 0.9, "of TRL's command; the configuration's is of a colocated engine"
    assert "vllm_gpu_memory_utilization" not in read("trl", TRL, LAUNCH).lines, "what is said of it is not of that line"
    sized = knobs("trl", TRL, "trl vllm-serve --model m --kv-cache-memory-bytes 1073741824\n")
    assert "gpu_memory_utilization" not in sized, "vLLM takes the size in place of a share"
    several = LAUNCH.replace("=3", "=2,3").replace("size 1", "size 2") + "  # --tensor_parallel_size 8\n"
    assert knobs("trl", TRL, several)["rollout_gpus"] == 2
    own = knobs("trl", TRL_SCRIPT, SERVE)
    assert (own["rollout_dtype"], own["prefix_caching"], own["max_num_seqs"]) == ("bf16", False, 64)
    assert "gpu_memory_utilization" not in own, "vLLM's own is what a trial's server takes too"


@pytest.mark.parametrize(
    ("option", "knob", "value"),
    [
        ("--gpu-memory-utilization 0.85", "gpu_memory_utilization", 0.85),
        ("--dtype half", "rollout_dtype", "fp16"),
        ("--enforce_eager", "enforce_eager", True),
        ("--enforce_eager false", "enforce_eager", False),
        ("--enable_prefix_caching True", "prefix_caching", True),
        ("--kv_cache_dtype fp8", "kv_cache_dtype", "fp8"),
        ("--disable-custom-all-reduce", "custom_all_reduce", False),
        ("--no-enable-chunked-prefill", "chunked_prefill", False),
        ("""--compilation-config '{"mode": "NONE"}'""", "vllm_compile_mode", "none"),
        ("""--speculative_config '{"method": "ngram", "num_speculative_tokens": 4}'""", "speculative_tokens", 4),
    ],
)
def test_each_option_of_trls_server_is_its_knob(option: str, knob: str, value: object) -> None:
    assert knobs("trl", TRL, f"trl vllm-serve --model m {option}\n")[knob] == value


def test_what_of_trls_server_is_no_knob_is_kept_or_said() -> None:
    found = read("trl", TRL, "trl vllm-serve --model m --vllm_model_impl transformers \\\n --log_level info\n")
    assert found.passthrough["vllm_model_impl"] == "transformers"
    said = (
        "own.yaml, line 4: vllm_gpu_memory_utilization: it is of a colocated engine; the rollout server takes its own"
    )
    assert found.notes == (f"{said} on its command line.",)
    found = read(
        "trl", TRL, """vllm serve m --distributed-executor-backend ray --speculative-config '{"method": "x"}'\n"""
    )
    assert [
        note.partition(": ")[2].partition(":")[0] for note in found.notes if note.startswith("serve.sh, line 1")
    ] == ["--distributed-executor-backend", "--speculative-config"]
    assert "speculative_decoding" not in found.knobs


def test_the_script_of_trls_server_may_start_the_training_too() -> None:
    found = read("trl", TRL, f"{LAUNCH}accelerate launch --num_processes 3 grpo.py --config own.yaml\n")
    assert framework_named("trl").launched(found) == 3


PAIRS: tuple[tuple[str, str, str], ...] = (("ms_swift", ROLLOUT, TRAIN), ("trl", f"{LAUNCH[:-1]} &\n", TRL_SCRIPT))


def one_file(name: str, text: str) -> Imported:
    fields = {"ms_swift": FIELDS, "trl": trl_fields.FIELDS}[name]
    return framework_named(name).import_config(Source(text, "run.sh"), fields, 1, {})


@pytest.mark.parametrize(("name", "server", "train"), PAIRS)
def test_a_pair_in_one_file_is_what_it_is_in_two(name: str, server: str, train: str) -> None:
    together, apart = one_file(name, server + train), read(name, train, server)
    assert dict(together.knobs) == dict(apart.knobs)
    assert together.passthrough == apart.passthrough
    assert [note.split(": ", 1)[1] for note in together.notes] == [note.split(": ", 1)[1] for note in apart.notes]
    assert dict(one_file(name, train + server).knobs) == dict(apart.knobs), "whichever stands first"


@pytest.mark.parametrize(("name", "server", "train"), PAIRS)
@pytest.mark.parametrize(
    ("served", "trained", "said"),
    [
        (" --port 8001", "", "run.sh: the server listens at port 8001, and the training asks port 8000; make them"),
        ("", " --vllm_server_port 9", "run.sh: the server listens at port 8000, and the training asks port 9; make"),
        (
            " --host 10.0.0.5",
            " --vllm_server_host 127.0.0.1",
            "run.sh: the server listens at 10.0.0.5, and the training asks 127.0.0.1; make them the same",
        ),
        ("", " --vllm_mode colocate", "run.sh: it starts a rollout server, and the training uses none; write --"),
    ],
)
def test_a_pair_in_one_file_has_to_fit(
    name: str, server: str, train: str, served: str, trained: str, said: str
) -> None:
    first, rest = (server.rstrip("&\n ") + served, f"{train.rstrip()}{trained}\n")
    with pytest.raises(UsageError) as error:
        one_file(name, f"{first} &\n{rest}")
    assert said in str(error.value)
    if "write" not in said and "9;" not in said:  # the two agree
        agreed = rest.replace("127.0.0.1", "10.0.0.5") if "host" in served else f"{rest[:-1]} --vllm_server_port 8001\n"
        assert one_file(name, f"{first} &\n{agreed}").knobs["rollout_gpus"] == 1


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "ms_swift",
            f"{ROLLOUT}CUDA_VISIBLE_DEVICES=3 swift rollout --model org/model --port 8001 &\n{TRAIN}",
            "run.sh, line 6: expected one command `swift rollout ...`, found 2; a trial starts one server, so write",
        ),
        (
            "ms_swift",
            ROLLOUT.replace("vllm_data_parallel_size", "vllm_data_paralel_size") + TRAIN,
            "run.sh, line 4: `swift rollout` has no argument vllm_data_paralel_size; did you mean vllm_data_parallel_",
        ),
        (
            "ms_swift",
            ROLLOUT.replace("vllm_use_async_engine true", "max_num_seqs 64") + TRAIN,
            "run.sh, line 5: `swift rollout` has no argument max_num_seqs; did you mean vllm_max_num_seqs",
        ),
    ],
)
def test_what_a_pair_in_one_file_cannot_have_is_told_by_its_line(name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        one_file(name, text)
    assert said in str(error.value)


def test_a_training_beside_a_server_says_nothing_of_its_engine() -> None:
    own = '--vllm_gpu_memory_utilization 0.3 --vllm_max_num_seqs 7 --vllm_engine_kwargs \'{"kv_cache_dtype": "fp8"}\''
    plain = ROLLOUT.replace("--vllm_gpu_memory_utilization 0.8 ", "")
    for found in (
        one_file("ms_swift", f"{plain}{TRAIN[:-1]} {own}\n"),
        read("ms_swift", f"{TRAIN[:-1]} {own}\n", plain),
    ):
        assert {"gpu_memory_utilization", "max_num_seqs", "kv_cache_dtype"}.isdisjoint(found.knobs)
        assert found.knobs["max_model_len"] == 4096
        assert "vllm_max_num_seqs" not in found.lines, "what is said of the knob is not of that line"
        assert any("vllm_max_num_seqs: it is of a colocated engine" in note for note in found.notes)
    alone = read("ms_swift", f"{TRAIN[:-1]} {own}\n", "")
    assert alone.knobs["gpu_memory_utilization"] == 0.3, "nobody else says anything of the server"


def test_alike_servers_of_several_machines_are_one_of_a_trials() -> None:
    found = one_file("ms_swift", ROLLOUT + ROLLOUT.partition("\n")[2] + TRAIN)
    assert found.knobs["rollout_gpus"] == 1
    assert any(note.startswith("run.sh, line 3: it starts 2 rollout servers alike") for note in found.notes)


@pytest.mark.parametrize(("name", "script"), [("trl", "grpo.py"), ("open_r1", "src/open_r1/grpo.py")])
def test_a_pair_whose_keys_are_in_a_file_says_how_both_are_given(name: str, script: str) -> None:
    text = f"{LAUNCH[:-1]} &\naccelerate launch --config_file zero3.yaml {script} --config own.yaml --beta 0\n"
    wanted = (
        "run.sh, line 2: the keys are in own.yaml; give that file, with --accelerate zero3.yaml and --server run.sh, "
    )
    for given_text, said in (
        (text, wanted),
        (text.partition("\n")[2], "with --accelerate zero3.yaml, and write --beta into"),
    ):
        with pytest.raises(UsageError) as error:
            framework_named(name).read_keys(Source(given_text, "run.sh"), {})
        assert said in str(error.value)


@pytest.mark.parametrize("shown", ["6,", "6,6", "6,-1,7", "", ",6,7", "-1"])
def test_a_gpu_that_cuda_does_not_show_is_not_counted(shown: str) -> None:
    text = f'CUDA_VISIBLE_DEVICES="{shown}" swift rollout --model org/model --vllm_data_parallel_size 2 &\n{TRAIN}'
    with pytest.raises(UsageError, match="has fewer GPUs than tensor_parallel_size 1 × 2 replicas"):
        one_file("ms_swift", text)
    assert one_file("ms_swift", text.replace(f'"{shown}"', '"6, 7"')).knobs["rollout_gpus"] == 2


@pytest.mark.parametrize(
    ("name", "text", "server"),
    [
        ("ms_swift", TRAIN, ROLLOUT.replace("org/model", "org/other")),
        ("trl", TRL.replace(": m\n", ": org/model\n"), LAUNCH.replace("model m", "model org/other")),
        ("trl", TRL.replace(": m\n", ": org/model\n"), SERVE.replace("serve m", "serve org/other")),
        ("open_r1", RECIPE.replace(": m\n", ": org/model\n"), LAUNCH.replace("model m", "model org/other")),
    ],
)
def test_a_server_with_another_model_is_told_of(name: str, text: str, server: str) -> None:
    said = "serve.sh: the server has org/other; a trial's has the model that is trained."
    assert said in read(name, text, server).notes
    for same in ("org/model", "/models/Model"):
        assert not any("server has" in note for note in read(name, text, server.replace("org/other", same)).notes)


def test_a_file_of_arguments_beside_a_server_says_how_both_are_given() -> None:
    with pytest.raises(UsageError, match=r"the arguments are in grpo.yaml; give that file with --server run.sh"):
        one_file("ms_swift", f"{ROLLOUT}swift rlhf grpo.yaml\n")
    with pytest.raises(UsageError, match=r"the arguments are in serve.yaml; write them into the script"):
        one_file("ms_swift", f"swift rollout serve.yaml &\n{TRAIN}")


@pytest.mark.parametrize("name", ["ms_swift", "trl"])
def test_a_space_that_is_none_is_found(name: str) -> None:
    text = {"ms_swift": TRAIN, "trl": TRL_SCRIPT}[name]
    with pytest.raises(UsageError, match=r"--beta\?0.1: expected an option \(--name\), and behind it a plain space"):
        one_file(name, f"{text[:-1]} --beta\u00a00.1\n")
    assert one_file("ms_swift", f'{TRAIN[:-1]} --system "-- be good"\n').passthrough["system"] == "-- be good"


@pytest.mark.parametrize(("name", "text"), [("trl", TRL), ("open_r1", RECIPE)])
def test_options_of_a_training_that_the_servers_script_starts_too_are_told_of(name: str, text: str) -> None:
    """They go before the file's keys, and are not read."""
    train = "accelerate launch --num_processes 3 grpo.py --config own.yaml"
    said = "serve.sh, line 2: --beta, --learning_rate: the keys of the training are read from own.yaml; write them into"
    assert f"{said} it." in read(name, text, f"{LAUNCH}{train} --beta=0.1 --learning_rate 1e-5\n").notes
    for other in (train, "python prepare.py --out data.jsonl"):
        assert not any("are read from" in note for note in read(name, text, f"{LAUNCH}{other}\n").notes)


def test_a_server_of_something_else_is_no_rollout_server() -> None:
    judge = "CUDA_VISIBLE_DEVICES=3 vllm serve org/judge --port 9000 &\n"
    found = one_file("trl", judge + TRL_SCRIPT.replace("--vllm_mode server", "--vllm_mode colocate"))
    assert found.knobs["rollout_mode"] == "colocate"
    assert "rollout_gpus" not in found.knobs


@pytest.mark.parametrize("option", ["--port", "--host", "--model"])
def test_what_a_trials_server_has_of_its_own_may_be_known_to_a_shell_only(option: str) -> None:
    found = one_file("ms_swift", f"swift rollout {option} $UNSET --vllm_max_num_seqs 9 &\n{TRAIN}")
    assert found.knobs["max_num_seqs"] == 9
    with pytest.raises(UsageError, match=r"line 1: vllm_max_num_seqs: \$UNSET is known to a shell only"):
        one_file("ms_swift", f"swift rollout {option} 1 --vllm_max_num_seqs $UNSET &\n{TRAIN}")


ENGINE: dict[str, st.SearchStrategy[KnobValue]] = {
    "gpu_memory_utilization": st.sampled_from((0.5, 0.85)),
    "max_model_len": st.sampled_from((1536, 4096)),
    "kv_cache_memory_bytes": st.just(1 << 30),
    "max_num_seqs": st.integers(1, 512),
    "max_num_batched_tokens": st.sampled_from((2048, 8192)),
    "enforce_eager": st.booleans(),
    "cuda_graph_max_batch": st.sampled_from((64, 256)),
    "prefix_caching": st.booleans(),
    "chunked_prefill": st.booleans(),
    "kv_cache_dtype": st.sampled_from(("auto", "fp8")),
    "rollout_load_format": st.sampled_from(("auto", "dummy")),
    "rollout_dtype": st.sampled_from(("auto", "bf16", "fp16", "fp32")),
    "rollout_quantization": st.just("fp8"),
    "custom_all_reduce": st.booleans(),
    "vllm_compile_mode": st.sampled_from(("none", "vllm_compile")),
    "speculative_tokens": st.integers(1, 8),
    "micro_batch_size": st.sampled_from((4, 8)),
    "gradient_checkpointing": st.booleans(),
}
"""Knobs of a server's engine, and two of the training."""


@examples(50, 300)
@given(st.fixed_dictionaries({}, optional=ENGINE), st.sampled_from(((1, 1), (1, 2), (2, 1), (2, 2))))
def test_what_is_exported_with_trls_server_is_the_same_when_it_is_imported(
    values: dict[str, KnobValue], spread: tuple[int, int]
) -> None:
    size, replicas = spread
    served = {"rollout_engine": "vllm", "rollout_mode": "server", "rollout_gpus": size * replicas}
    spreading = {"tensor_parallel_size": size, "rollout_data_parallel_size": replicas}
    guessing = {"speculative_decoding": "ngram"} if "speculative_tokens" in values else {}
    configuration: dict[str, KnobValue] = {**values, **guessing, **served, **spreading}
    made = trl.export(
        ExportRequest(
            title="first",
            configuration=configuration,
            python="/env/bin/python",
            model="org/model",
            rewards=(RewardSpec("math_verify", "accuracy"),),
            rows_per_update=96,
            max_prompt_length=512,
            max_completion_length=1024,
            device="cuda",
            world_size=3,
        )
    )
    source = Source(made.files["grpo.yaml"], "grpo.yaml", server=made.files["server.sh"], server_name="server.sh")
    found = dict(framework_named("trl").import_config(source, trl_fields.FIELDS, 3, {}).knobs)
    own = {**acting(configuration), "max_model_len": values.get("max_model_len", 1536)}
    assert {knob: found.get(knob) for knob in own} == own
    assert set(found) & set(ENGINE) - {"micro_batch_size", "gradient_checkpointing"} <= set(own)


def test_what_a_trials_server_does_without_is_said() -> None:
    framework = framework_named("ms_swift")
    source = Source(TRAIN, "train.sh", server=ROLLOUT, server_name="serve.sh")
    notes = framework.import_config(source, FIELDS, 1, {}).notes
    assert any(note.startswith("serve.sh, line 5: vllm_use_async_engine: ") for note in notes)


@pytest.mark.parametrize(
    ("name", "text", "server", "said"),
    [
        ("ms_swift", TRAIN, "echo hello\n", "serve.sh: expected one command `swift rollout ...`, found none"),
        ("ms_swift", TRAIN, ROLLOUT.replace("0.8", "much"), "serve.sh, line 5: vllm_gpu_memory_utilization: expected"),
        (
            "ms_swift",
            TRAIN,
            ROLLOUT.replace("--vllm_use_async_engine true", "--multi_turn_scheduler math"),
            "serve.sh, line 5: multi_turn_scheduler: multi-turn generation: a trial has one turn; remove it",
        ),
        ("ms_swift", TRAIN.replace("server \\", "colocate \\"), ROLLOUT, "serve.sh: it starts a rollout server"),
        ("open_r1", RECIPE, "echo hello\n", "serve.sh: expected one command `trl vllm-serve ...`, found none"),
        ("open_r1", RECIPE, LAUNCH.replace("2048", "long"), "serve.sh, line 1: --max_model_len: expected"),
        ("open_r1", f"{RECIPE}vllm_mode: colocate\n", LAUNCH, "serve.sh: it starts a rollout server"),
        ("open_r1", RECIPE, LAUNCH.replace("len", "lens"), "--max_model_lens: a trial's rollout server takes no such"),
        (
            "open_r1",
            f"{RECIPE}vllm_server_port: 9\n",
            LAUNCH,
            "serve.sh: the server listens at port 8000, and own.yaml",
        ),
        (
            "ms_swift",
            f"{TRAIN[:-1]} --vllm_server_port 9\n",
            ROLLOUT,
            "serve.sh: the server listens at port 8000, and tr",
        ),
        (
            "ms_swift",
            TRAIN,
            ROLLOUT.replace("4,5,6,7", "4").replace("l_size 1", "l_size 2"),
            "serve.sh, line 2: CUDA_VISIBLE_DEVICES=4 has fewer GPUs than tensor_parallel_size 2 × 2 replicas",
        ),
        ("trl", TRL, "echo hello\n", "serve.sh: expected one command `trl vllm-serve ...`, found none"),
        ("trl", TRL, LAUNCH + SERVE, "serve.sh, line 2: expected one command `trl vllm-serve ...`, found 2"),
        ("trl", TRL, LAUNCH + "echo 'open\n", "serve.sh, line 2: "),
        ("trl", "model_name_or_path: m\n", LAUNCH, "it starts a rollout server, and own.yaml uses none; write vllm_"),
        (
            "trl",
            TRL,
            f"{LAUNCH[:-1]} --port 8001\n",
            "listens at port 8001, and own.yaml asks port 8000; make them the",
        ),
        (
            "trl",
            f"{TRL}vllm_server_base_url: http://10.0.0.2\n",
            LAUNCH,
            "at port 8000, and own.yaml asks port 80; make",
        ),
        (
            "trl",
            f"{TRL}vllm_server_host: 10.0.0.2\n",
            f"{LAUNCH[:-1]} --host localhost\n",
            "serve.sh: the server listens at localhost, and own.yaml asks 10.0.0.2; make them the same",
        ),
        (
            "trl",
            TRL,
            LAUNCH.replace("size 1", "size 2"),
            "serve.sh, line 1: CUDA_VISIBLE_DEVICES=3 has fewer GPUs than tensor_parallel_size 2 × 1 replicas",
        ),
        (
            "trl",
            TRL,
            f"{LAUNCH[:-1]} --swap-space 4\n",
            "--swap-space: a trial's rollout server takes no such option; rem",
        ),
        (
            "trl",
            TRL,
            LAUNCH.replace("2048", "$LONGEST"),
            "line 1: --max_model_len: $LONGEST is known to a shell only; wr",
        ),
        ("trl", TRL, f"{LAUNCH[:-1]} --port 8000 $MORE\n", "serve.sh, line 1: --port: $MORE is known to a shell only"),
        ("trl", TRL, LAUNCH.replace("2048", "2048 4096"), "--max_model_len: expected a whole number, got 2 words"),
    ],
)
def test_what_cannot_be_read_is_told_by_the_server_scripts_name(name: str, text: str, server: str, said: str) -> None:
    with pytest.raises(UsageError) as error:
        knobs(name, text, server)
    assert said in str(error.value)


def test_the_option_reaches_the_reader_and_is_refused_where_nothing_reads_it(tmp_path: Path) -> None:
    def asked(config: Path | None, framework: str) -> Request:
        options = StartOptions(config=config, server=server, python=sys.executable, framework=framework)
        return request_of(options, tmp_path)

    (tmp_path / "train.sh").write_text(TRAIN)
    (tmp_path / "serve.sh").write_text(ROLLOUT)
    config, server = tmp_path / "train.sh", tmp_path / "serve.sh"
    request = asked(config, "swift")
    assert (request.server, request.server_name) == (ROLLOUT, str(server))
    for name, own in (("verl", config), ("swift", None)):
        with pytest.raises(UsageError, match="--server is the script that starts a rollout server beside"):
            asked(own, name)
    server.write_text("")
    assert asked(config, "trl").server == "\n"

"""Launches the vLLM server of a trial whose rollout has its own GPUs: command line, and settings of the trainer. Pure.

TRL 1.16 uses vLLM's own ``vllm serve``, started as in ``trl.scripts.vllm_serve.build_command``, in vLLM's development
mode, which has the endpoints for weight transfer. That mode lets every client run any code, so host and weight group
are fixed to this machine's loopback.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from search_spaces.configuration import KnobValue
from trainer.frameworks.common import server_script
from trainer.frameworks.common.server_script import DTYPES, ITS_OWN, TRLS, Program, value_of
from trainer.frameworks.common.serving import CONNECT_S, HOST, base_url, replicas
from trainer.frameworks.common.values import parsed, speculative_config, speculative_knobs
from trainer.frameworks.trl.keys import acting

VALUES: Mapping[str, str] = {
    "gpu_memory_utilization": "--gpu-memory-utilization",
    "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
    "max_num_seqs": "--max-num-seqs",
    "max_num_batched_tokens": "--max-num-batched-tokens",
    "cuda_graph_max_batch": "--max-cudagraph-capture-size",
    "kv_cache_dtype": "--kv-cache-dtype",
    "rollout_load_format": "--load-format",
}
"""Knob -> option that takes its value."""
SWITCHES: Mapping[str, str] = {
    "enforce_eager": "enforce-eager",
    "prefix_caching": "enable-prefix-caching",
    "chunked_prefill": "enable-chunked-prefill",
}
"""Knob -> switch without ``--``; the prefix ``--no-`` turns it off."""
MODEL_CODE = "vllm_model_impl"
"""TRL's key, and TRL's server option, for vLLM's model implementation; it is not a knob."""
DEVELOPMENT = {"VLLM_SERVER_DEV_MODE": "1"}
"""Variable that puts the server into vLLM's development mode."""
_SCALES_OUT = (0, 30)
"""First vLLM with the option for token endpoints (``vllm_serve.py:266``); earlier ones refuse it."""
_SHARE = 0.9
"""Default ``gpu_memory_utilization`` of TRL's command (``vllm_serve.py:111``); vLLM's own default differs."""


def wants_server(configuration: Mapping[str, KnobValue]) -> bool:
    """Tells whether completions come from a rollout server."""
    return acting(configuration).get("rollout_mode") == "server"


def server_command(
    configuration: Mapping[str, KnobValue],
    model: str,
    python: str,
    port: int,
    *,
    longest: int,
    name: str = "",
    revision: str = "",
    passthrough: Mapping[str, Any] | None = None,
    vllm: str = "",
) -> tuple[str, ...]:
    """Returns the server's command line.

    Args:
        configuration: knobs; knobs without an effect are omitted.
        longest: tokens of the longest prompt and completion together, the model length unless the configuration sets
            one.
        name: served name of the model, which identifies the trial's own server at the port.
        passthrough: the user's own keys; TRL's arguments of a colocated engine apply to the server too.
        vllm: version of the installed vLLM; empty means as new as TRL supports.

    Raises:
        ValueError: the replicas do not use exactly ``rollout_gpus``.
    """
    size, count = replicas(configuration)
    acts, own = acting(configuration), passthrough or {}
    argv = [python, "-m", "vllm.entrypoints.cli.main", "serve", model, "--host", HOST, "--port", str(port)]
    if name:
        argv += ["--served-model-name", name]
    if revision:
        argv += ["--revision", revision]
    if own.get("trust_remote_code") is True:
        argv += ["--trust-remote-code"]
    if own.get("vllm_model_impl"):
        argv += ["--model-impl", str(own["vllm_model_impl"])]
    argv += ["--tensor-parallel-size", str(size), "--data-parallel-size", str(count)]
    argv += ["--max-model-len", str(acts.get("max_model_len", longest))]
    argv += engine_options(acts)
    if not vllm or tuple(int(part) for part in vllm.split(".")[:2] if part.isdigit()) >= _SCALES_OUT:
        argv += ["--enable-scale-out"]
    argv += ["--weight-transfer-config", json.dumps({"backend": "nccl"})]
    argv += ["--logprobs-mode", "processed_logprobs", "--max-logprobs", "-1", "--disable-uvicorn-access-log"]
    return tuple(argv)


def engine_options(acts: Mapping[str, KnobValue]) -> list[str]:
    """Returns the options of ``vllm serve`` for the engine's knobs among ``acts``, in the order of the tables."""
    argv = [word for knob, option in VALUES.items() if knob in acts for word in (option, str(acts[knob]))]
    argv += [f"--{'' if acts[knob] else 'no-'}{option}" for knob, option in SWITCHES.items() if knob in acts]
    if "rollout_dtype" in acts:
        argv += ["--dtype", DTYPES[str(acts["rollout_dtype"])]]
    if acts.get("rollout_quantization", "none") != "none":
        argv += ["--quantization", str(acts["rollout_quantization"])]
    if "custom_all_reduce" in acts:
        argv += [f"--{'no-' if acts['custom_all_reduce'] else ''}disable-custom-all-reduce"]
    if "vllm_compile_mode" in acts:
        argv += ["--compilation-config", json.dumps({"mode": str(acts["vllm_compile_mode"]).upper()})]
    if speculative := speculative_config(acts):
        argv += ["--speculative-config", json.dumps(speculative)]
    return argv


def starts_server(text: str, name: str, knobs: Mapping[str, KnobValue]) -> bool:
    """Tells whether the training script also starts a rollout server; vLLM's own server may have another purpose.

    Raises ConfigError for a text that is not a shell script.
    """
    return server_script.serves(text, name, PROGRAM.starts if wants_server(knobs) else TRLS)


def _compiled(option: str, words: Sequence[str]) -> Mapping[str, KnobValue]:
    try:
        settings = json.loads(" ".join(words))
    except ValueError:
        return {}
    if not isinstance(settings, dict) or set(settings) != {"mode"} or not isinstance(settings["mode"], str):
        return {}
    return {"vllm_compile_mode": parsed("vllm_compile_mode", option, settings["mode"].lower())}


PROGRAM = Program(
    starts=(*TRLS, ("vllm", "serve"), ("vllm.entrypoints.cli.main", "serve")),
    options={
        **{option.strip("-").replace("-", "_"): value_of(knob) for knob, option in {**VALUES, **SWITCHES}.items()},
        "tensor_parallel_size": value_of("tensor_parallel_size"),
        "data_parallel_size": value_of("rollout_data_parallel_size"),
        "max_model_len": value_of("max_model_len"),
        "dtype": value_of("rollout_dtype"),
        "quantization": value_of("rollout_quantization"),
        "disable_custom_all_reduce": lambda option, words: {
            knob: not off for knob, off in value_of("custom_all_reduce")(option, words).items()
        },
        "compilation_config": _compiled,
        "speculative_config": lambda option, words: speculative_knobs(" ".join(words), option),
        **dict.fromkeys((MODEL_CODE, "model_impl"), lambda _, words: {MODEL_CODE: " ".join(words)}),
        "distributed_executor_backend": lambda *_: {},
    },
    its_own=ITS_OWN
    | {"served_model_name", "enable_scale_out", "weight_transfer_config", "logprobs_mode", "max_logprobs"}
    | {"uvicorn_log_level", "disable_uvicorn_access_log", "disable_log_stats", "enable_log_requests"},
    unset={start: {"gpu_memory_utilization": _SHARE} for start in TRLS},
)
"""Program of the rollout server in a user's script, TRL's or vLLM's own; ``MODEL_CODE`` is no knob."""


def trainer_settings(port: int, group_port: int) -> dict[str, Any]:
    """Returns the ``GRPOConfig`` arguments that connect the trainer to the server.

    ``group_port`` is the port at which trainer and server meet to transfer weights.
    """
    return {
        "use_vllm": True,
        "vllm_mode": "server",
        "vllm_server_base_url": base_url(port),
        "vllm_server_timeout": CONNECT_S,
        "vllm_group_port": group_port,
    }

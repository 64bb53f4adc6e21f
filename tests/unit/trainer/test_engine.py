"""How knobs become arguments of vLLM, without vLLM: which, under which name, and only on the right device."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from search_spaces.knobs import KNOBS
from trainer.child.frameworks.trl import engine


class Scheduler:
    """As much of vLLM's as is watched."""

    def __init__(self) -> None:
        self.kv_cache_manager = SimpleNamespace(usage=0.0)

    def schedule(self, throttle_prefills: bool = False) -> str:
        return "plan"

    def _preempt_request(self, request: str) -> str:
        return request


def llm(**arguments: Any) -> SimpleNamespace:
    core = SimpleNamespace(engine_core=SimpleNamespace(scheduler=Scheduler()))
    return SimpleNamespace(arguments=arguments, llm_engine=SimpleNamespace(engine_core=core))


@pytest.fixture(autouse=True)
def _ports(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is given, and what a test makes of that does not outlive it."""
    for name in ("MASTER_PORT", "WORLD_SIZE"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


def test_two_trials_that_begin_together_have_ports_of_their_own(
    generation: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = []
    for _ in range(2):
        engine.install_engine({}, "cuda")
        ports.append(os.environ["MASTER_PORT"])
        monkeypatch.delenv("MASTER_PORT")
    assert len(set(ports)) == 2
    assert not {"29500", "23456", "12355", "12345"} & set(ports), "the ones TRL takes in turn"


def test_a_port_that_was_given_stays(generation: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_PORT", "4711")
    engine.install_engine({}, "cuda")
    assert os.environ["MASTER_PORT"] == "4711"


def test_ranks_have_the_port_of_their_launcher(generation: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    engine.install_engine({}, "cuda")
    assert "MASTER_PORT" not in os.environ


@pytest.fixture
def generation() -> Iterator[ModuleType]:
    """TRL's module that builds the engine, and a vLLM, as far as they are touched."""
    module, vllm = ModuleType(engine.MODULE), ModuleType("vllm")
    module.LLM = llm  # type: ignore[attr-defined]
    module.VLLMGeneration = type("VLLMGeneration", (), {"sync_weights": "trl's own"})  # type: ignore[attr-defined]
    vllm.__version__ = "0.31.0"  # type: ignore[attr-defined]
    before = {name: sys.modules.get(name) for name in (engine.MODULE, "vllm")}
    sys.modules.update({engine.MODULE: module, "vllm": vllm})
    yield module
    for name, old in before.items():
        if old is None:
            del sys.modules[name]
        else:
            sys.modules[name] = old


def test_every_knob_it_sets_is_in_the_catalogue_and_needs_vllm() -> None:
    for name in engine.ENGINE_KNOBS:
        assert "vllm" in KNOBS[name].needs["rollout_engine"]
        assert "trl" in KNOBS[name].frameworks


def test_values_go_over_in_vllms_words() -> None:
    seams = {
        "max_num_seqs": 64, "rollout_dtype": "bf16", "rollout_quantization": "none", "custom_all_reduce": True,
        "vllm_compile_mode": "vllm_compile", "cuda_graph_max_batch": 32, "logprob_rows": 4,
    }  # fmt: skip
    assert engine.engine_arguments(seams) == {
        "max_num_seqs": 64,
        "dtype": "bfloat16",
        "quantization": None,
        "disable_custom_all_reduce": False,
        "compilation_config": {"mode": "VLLM_COMPILE", "max_cudagraph_capture_size": 32},
    }


def test_what_is_guessed_ahead_is_one_argument_and_none_where_nothing_is() -> None:
    guesses = {"speculative_decoding": "ngram", "speculative_tokens": 4, "speculative_lookup": 2}
    settings = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 2}
    assert engine.engine_arguments(guesses) == {"speculative_config": settings}
    assert engine.engine_arguments({"speculative_decoding": "none"}) == {}


def test_without_a_gpu_the_cache_is_in_bytes_and_weights_are_reloaded(generation: ModuleType) -> None:
    built = []
    engine.install_engine({"kv_cache_memory_bytes": 1 << 26}, "cpu", lambda one, held: built.append((one, held)))
    made = generation.LLM(model="m", gpu_memory_utilization=0.3, max_num_seqs=8)
    assert made.arguments["kv_cache_memory_bytes"] == 1 << 26
    assert "gpu_memory_utilization" not in made.arguments
    assert made.arguments["enforce_eager"] is True
    assert [one for one, _ in built] == [made]
    assert generation.VLLMGeneration.sync_weights is engine.sync_by_reload


def test_on_a_gpu_the_framework_keeps_its_share_and_its_sync(generation: ModuleType, monkeypatch: Any) -> None:
    monkeypatch.setattr(engine, "held_bytes", lambda _: 0)
    engine.install_engine({"max_num_seqs": 256}, "cuda")
    made = generation.LLM(model="m", gpu_memory_utilization=0.3, max_num_seqs=8)
    assert made.arguments["gpu_memory_utilization"] == 0.3
    assert made.arguments["max_num_seqs"] == 256
    assert not {"enforce_eager", "kv_cache_memory_bytes"} & set(made.arguments)
    assert generation.VLLMGeneration.sync_weights == "trl's own"


@pytest.mark.parametrize(
    ("seams", "rows", "largest"),
    [
        ({}, 128, 128),
        ({"max_num_seqs": 256}, 128, 128),
        ({"max_num_seqs": 256, "vllm_compile_mode": "none"}, 100, 100),
        ({}, 400, 400),
        ({"max_num_seqs": 64}, 128, None),
        ({"cuda_graph_max_batch": 32}, 128, None),
        ({"enforce_eager": True}, 128, None),
        ({}, 1024, None),
        ({}, None, None),
    ],
)
def test_graphs_are_captured_for_what_the_rows_can_come_to(
    generation: ModuleType, monkeypatch: Any, seams: dict[str, Any], rows: int | None, largest: int | None
) -> None:
    """Where rows wait for a place, batches of any size occur, and what the user asked for stays."""
    monkeypatch.setattr(engine, "held_bytes", lambda _: 0)
    engine.install_engine(seams, "cuda")
    compilation = generation.LLM(model="m", max_num_seqs=rows).arguments.get("compilation_config") or {}
    sizes = compilation.get("cudagraph_capture_sizes")
    assert (sizes and max(sizes)) == largest
    assert sizes is None or (sizes == sorted(set(sizes)) and sizes[:4] == [1, 2, 4, 8])
    assert compilation.get("mode") == ("NONE" if "vllm_compile_mode" in seams else None)
    assert compilation.get("max_cudagraph_capture_size") == seams.get("cuda_graph_max_batch")


def test_128_rows_need_19_graphs_where_256_sequences_had_51() -> None:
    assert len(engine.graph_sizes(128)) == 19
    assert engine.graph_sizes(1) == [1]
    assert engine.graph_sizes(4) == [1, 2, 4]


def test_nothing_is_captured_without_a_gpu(generation: ModuleType) -> None:
    engine.install_engine({"enforce_eager": False}, "cpu")
    assert "compilation_config" not in generation.LLM(model="m", max_num_seqs=8).arguments


@pytest.mark.parametrize("version", ["0.25.1", "0.32.0", "1.0.0", "0.7.3"])
def test_another_vllm_is_refused_by_version(generation: ModuleType, version: str) -> None:
    sys.modules["vllm"].__version__ = version  # type: ignore[attr-defined]
    with pytest.raises(engine.EngineError, match=f"vLLM {version} is installed.*pip install 'vllm>=0.26,<0.32'"):
        engine.install_engine({}, "cpu")
    assert generation.LLM is llm


@pytest.mark.parametrize("version", ["0.26.0", "0.28.1", "0.31.0+cu130"])
def test_versions_whose_inside_was_read_and_those_between_are_taken(generation: ModuleType, version: str) -> None:
    sys.modules["vllm"].__version__ = version  # type: ignore[attr-defined]
    engine.install_engine({}, "cpu")
    assert generation.LLM is not llm


def test_a_trl_that_builds_its_engine_elsewhere_is_refused(generation: ModuleType) -> None:
    del generation.LLM
    with pytest.raises(engine.EngineError, match="finds no vLLM, or builds its engine in a way"):
        engine.install_engine({}, "cpu")


def test_the_watch_keeps_the_fullest_moment_and_counts_preemptions() -> None:
    made = llm()
    scheduler = made.llm_engine.engine_core.engine_core.scheduler
    watch = engine.EngineWatch(made, 5)
    for usage in (0.2, 0.9, 0.4):
        scheduler.kv_cache_manager.usage = usage
        assert scheduler.schedule() == "plan"
    assert scheduler._preempt_request("row") == "row"
    assert watch.end() == (1, 0.9)
    watch.begin()
    assert watch.end() == (0, 0.0)


def test_an_engine_whose_scheduler_is_elsewhere_is_refused() -> None:
    with pytest.raises(engine.EngineError, match="keeps its scheduler elsewhere"):
        engine.EngineWatch(SimpleNamespace(llm_engine=SimpleNamespace(engine_core=object())), 0)


def test_a_tied_head_is_packed_again() -> None:
    """Its packed copy would stay that of the first weights: the embedding is loaded, the head is not."""
    packed = []
    method = SimpleNamespace(process_weights_after_loading=packed.append)
    head = SimpleNamespace(quant_method=method, cpu_linear=object())
    engine.pack_tied_head(SimpleNamespace(lm_head=head))
    assert packed == [head]
    engine.pack_tied_head(SimpleNamespace())
    engine.pack_tied_head(SimpleNamespace(lm_head=SimpleNamespace(quant_method=method)))
    assert packed == [head]


@pytest.mark.parametrize("sleeps", [True, False])
def test_a_sleeping_engine_is_woken_into_what_torch_gave_back(generation: ModuleType, sleeps: bool) -> None:
    """TRL's own sync does so; with FP8 in the engine ours stands in its place, and the wake-up found no memory."""
    done: list[str] = []

    def weights() -> list[str]:
        return ["weight"]

    generation.empty_cache = lambda: done.append("empty cache")  # type: ignore[attr-defined]
    worker = SimpleNamespace(  # its runner alone has no configuration for the layers that ask for one
        reload_weights=lambda weights_iterator: done.append(f"reload {list(weights_iterator)}"),
        model_runner=SimpleNamespace(get_model=SimpleNamespace),
    )
    made = SimpleNamespace(
        llm_engine=SimpleNamespace(model_executor=SimpleNamespace(driver_worker=worker)),
        wake_up=lambda tags: done.append(f"wake {tags}"),
        reset_prefix_cache=lambda: done.append("reset prefixes"),
    )
    generated = SimpleNamespace(
        mode="colocate", enable_sleep_mode=sleeps, _llm_weights_sleeping=sleeps, llm=made, _iter_named_params=weights
    )
    engine.sync_by_reload(generated)
    assert done[-2:] == ["reload ['weight']", "reset prefixes"]
    assert done[:-2] == (["empty cache", "wake ['weights']"] if sleeps else [])
    assert not generated._llm_weights_sleeping


def test_a_trial_without_vllm_compiles_nothing_and_says_nothing_on_a_gpu(monkeypatch: Any) -> None:
    for name in ("TORCHDYNAMO_DISABLE", "VLLM_CPU_OMP_THREADS_BIND", "VLLM_ENABLE_V1_MULTIPROCESSING"):
        monkeypatch.delenv(name, raising=False)
    environment: dict[str, str] = {}
    monkeypatch.setattr(engine.os, "environ", environment)
    engine.before_import("cuda")
    assert "TORCHDYNAMO_DISABLE" not in environment
    engine.before_import("cpu", compiles=True)
    assert "TORCHDYNAMO_DISABLE" not in environment
    engine.before_import("cpu")
    assert environment["TORCHDYNAMO_DISABLE"] == "1"


class Reading:
    """What ``read_what_was_compiled`` touches: vLLM's reader, and torch's that it calls."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, made: Any) -> None:
        self.found = SimpleNamespace(_artifacts=SimpleNamespace(compiled_fn=made))
        self.decorators = ModuleType("vllm.compilation.decorators")
        self.compiler = ModuleType("torch.compiler")
        self.decorators._try_load_aot_compiled_fn = self.load  # type: ignore[attr-defined]
        self.decorators._model_hash_key = lambda forward: f"hash of {forward}"  # type: ignore[attr-defined]
        self.compiler.load_compiled_function = self.read = lambda path: self.found  # type: ignore[attr-defined]
        modules = {"vllm": ModuleType("vllm"), "vllm.compilation": ModuleType("vllm.compilation")}
        own = {self.decorators.__name__: self.decorators, self.compiler.__name__: self.compiler}
        for name, module in {**modules, "torch": ModuleType("torch"), **own}.items():
            monkeypatch.setitem(sys.modules, name, module)

    def load(self, path: str) -> Any:
        """As vLLM 0.31: ``None`` stands for compiling again."""
        try:
            found = self.compiler.load_compiled_function(path)
            found._artifacts.compiled_fn.finalize_loading("config")
        except AttributeError:
            return None
        return found

    def again(self) -> Any:
        return self.decorators._try_load_aot_compiled_fn("path")


class PassingOn:
    """As torch has it: a function inside, which is asked for whatever is not there."""

    def __getattr__(self, name: str) -> Any:
        return getattr(test_what_torchs_own_backend_compiled_is_read_although_it_lacks_a_step, name)


@pytest.mark.parametrize("made", [lambda: None, PassingOn()])
def test_what_torchs_own_backend_compiled_is_read_although_it_lacks_a_step(
    monkeypatch: pytest.MonkeyPatch, made: Any
) -> None:
    reading = Reading(monkeypatch, made)
    assert reading.again() is None, "this vLLM needs no help any more"
    engine.read_what_was_compiled()
    assert reading.again() is reading.found
    assert reading.compiler.load_compiled_function is reading.read, "torch's reader is everybody's"


def test_what_vllms_own_backend_compiled_keeps_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    engine_made = SimpleNamespace(finalize_loading=calls.append)
    reading = Reading(monkeypatch, engine_made)
    engine.read_what_was_compiled()
    assert reading.again() is reading.found
    assert calls == ["config"]


def test_a_file_that_cannot_be_read_is_compiled_again_and_torchs_reader_is_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading = Reading(monkeypatch, lambda: None)

    def broken(path: str) -> Any:
        raise AttributeError(path)

    reading.compiler.load_compiled_function = broken  # type: ignore[attr-defined]
    engine.read_what_was_compiled()
    assert reading.again() is None
    assert reading.compiler.load_compiled_function is broken


def test_the_trials_of_a_process_wrap_the_reader_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, lambda: None)
    engine.read_what_was_compiled()
    once = reading.decorators._try_load_aot_compiled_fn
    engine.read_what_was_compiled()
    assert reading.decorators._try_load_aot_compiled_fn is once


def test_what_was_compiled_for_another_cpu_is_not_found(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, lambda: None)
    engine.read_what_was_compiled()
    found = []
    for name in ("one CPU", "another", "one CPU"):
        monkeypatch.setattr(engine, "cpu", lambda name=name: name)
        found.append(reading.decorators._model_hash_key("forward"))
    assert found[0] == found[2] != found[1]
    assert "hash of forward" in found[0]


def test_a_cpu_is_told_by_what_it_can_do_and_not_by_its_speed_of_the_moment() -> None:
    described = engine.cpu()
    assert described == engine.cpu()
    assert len(described) > len("x86_64; ")
    assert "MHz" not in described
    assert "\n" not in described


def test_a_vllm_that_keeps_nothing_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = Reading(monkeypatch, lambda: None)
    del reading.decorators._model_hash_key
    engine.read_what_was_compiled()
    assert reading.again() is None


@pytest.mark.parametrize(
    ("device", "installed", "left"), [("cuda", True, False), ("cuda", False, True), ("cpu", True, True)]
)
def test_a_trainer_without_vllm_has_the_attention_that_trls_import_of_vllm_leaves(
    monkeypatch: pytest.MonkeyPatch, device: str, installed: bool, left: bool
) -> None:
    """Else a trial plans cuDNN's attention for each length, which the same training outside does not."""
    switched: list[bool] = []
    torch = SimpleNamespace(backends=SimpleNamespace(cuda=SimpleNamespace(enable_cudnn_sdp=switched.append)))
    checks = SimpleNamespace(is_vllm_available=lambda *_: installed)
    for name, module in (("trl.import_utils", checks), ("torch", torch)):
        monkeypatch.setitem(sys.modules, name, module)  # type: ignore[arg-type]
    for name in ("TORCHINDUCTOR_COMPILE_THREADS", "TRITON_CACHE_AUTOTUNING"):
        monkeypatch.setenv(name, "its own")
    engine.leave_out(device)
    assert switched == ([] if left else [False])
    assert os.environ["TORCHINDUCTOR_COMPILE_THREADS"] == ("its own" if left else "1")
    assert os.environ["TRITON_CACHE_AUTOTUNING"] == "its own", "vLLM leaves the user's"
    assert checks.is_vllm_available("0.26") is False, "TRL does not import it"

"""Loads in advance what servers need: vLLM's modules, a model's tokenizer, and Harmony's encoding."""

from __future__ import annotations

import copy
import ctypes
import importlib
import inspect
import os
import pkgutil
import sys
import traceback
from typing import Any

from vllm_harness_patches import is_for, lookup

# packages to import with all their submodules, if this version of vLLM has them
PACKAGES = """
    vllm.entrypoints.openai vllm.entrypoints.serve vllm.entrypoints.generate vllm.entrypoints.scale_out
    vllm.entrypoints.anthropic vllm.entrypoints.launchers vllm.parser vllm.reasoning vllm.tool_parsers
    vllm.renderers vllm.tokenizers vllm.transformers_utils.chat_templates vllm.plugins.lora_resolvers
    vllm.model_executor.layers.quantization.online model_hosting_container_standards
    prometheus_fastapi_instrumentator
"""
MODULES = """
    vllm vllm.entrypoints.cli.main vllm.entrypoints.cli.openai vllm.entrypoints.cli.serve
    vllm.entrypoints.cli.benchmark.main vllm.entrypoints.cli.collect_env vllm.entrypoints.cli.run_batch
    vllm.entrypoints.cli.launch vllm.v1.engine.async_llm vllm.v1.engine.core vllm.v1.engine.core_client
    vllm.v1.executor.multiproc_executor vllm.v1.executor.uniproc_executor vllm.v1.sample.logits_processor
    vllm.v1.structured_output.backend_xgrammar vllm.v1.structured_output.backend_guidance
    vllm.triton_utils.dispatcher vllm.model_executor.model_loader.default_loader
    vllm.model_executor.model_loader.dummy_loader vllm.model_executor.models.gpt_oss
    vllm.model_executor.models.llama vllm.model_executor.models.qwen3 xgrammar openai_harmony pycountry.db
    transformers.models.auto.tokenization_auto compressed_tensors torch._dynamo torch._inductor
    uvicorn.protocols.http.httptools_impl uvicorn.lifespan.on referencing.jsonschema
"""
MODULES_OF = {
    "cpu": "worker.cpu_worker worker.cpu_model_runner attention.backends.cpu_attn",
    "cuda": "worker.gpu_worker worker.gpu_model_runner attention.backends.triton_attn",
}
"""The modules of vllm.v1 to import for each device."""
CUDA_ERROR_NOT_INITIALIZED = 3
SPARE_COPIES = 2  # copies of a tokenizer, for the render threads of the API server

KERNELS = "vllm.platforms:current_platform.register_triton_kernel_overrides"
TOKENIZER = "vllm.tokenizers:get_tokenizer"
PROCESSOR = "vllm.renderers.hf:_try_get_processor_chat_template"
HARMONY = "vllm.entrypoints.openai.parser.harmony_utils:get_encoding"
CALLED = {KERNELS: ">=0.31.0", TOKENIZER: "", PROCESSOR: "", HARMONY: ""}
"""The vLLM functions to call in advance, with the releases that have them (see `Patch.releases`)."""


def import_all() -> None:
    """Imports what servers need, and lets the platform replace Triton kernels with its own."""
    if titles := _import("setproctitle"):
        titles.getproctitle()  # finds the title's memory, which os.environ.update would hide
    importlib.import_module("vllm")
    device = importlib.import_module("vllm.platforms").current_platform.device_type
    for name in (*MODULES.split(), *(f"vllm.v1.{name}" for name in MODULES_OF.get(device, "").split())):
        _import(name)
    for name in PACKAGES.split():
        if package := _import(name):
            for module in pkgutil.walk_packages(package.__path__, f"{name}.", onerror=lambda _: None):
                _import(module.name)
    _call(KERNELS)


def _import(name: str) -> Any:
    """Imports a module; None if vLLM does not have it, or a package that it imports is missing."""
    module = None
    try:
        module = importlib.import_module(name)
    except Exception as error:
        print(f"not preloaded: {name} ({type(error).__name__}: {error})", flush=True)
    if _cuda_is_initialized():
        sys.exit(f"importing {name} initializes CUDA, which does not survive a fork")
    return module


def _cuda_is_initialized() -> bool:
    """Whether this process has called cuInit, according to the driver; torch may not know."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return bool(driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED)


def preload(request: dict[str, Any]) -> None:
    """Loads what servers of a model need: its tokenizer and, for a Harmony model, the encoding."""
    os.environ.update(request["env"])
    _load_tokenizer(request["model"])
    if request["harmony"]:
        _call(HARMONY)


def _call(place: str) -> None:
    """Calls a vLLM function in advance; if this version does not have it, servers do the work."""
    try:
        if is_for(CALLED[place]):
            lookup(place)()
    except (ImportError, AttributeError) as error:
        print(f"not called: {place} ({error})", flush=True)


def _load_tokenizer(folder: str) -> None:
    """Loads a tokenizer the way vLLM will; each process uses it once, and later loads read the files."""
    auto = importlib.import_module("transformers").AutoTokenizer
    load = auto.from_pretrained
    ready: dict[str, Any] = {}

    def key(name: Any, args: Any, options: dict[str, Any]) -> str:
        return repr((str(name), args, sorted(options.items(), key=lambda item: item[0])))

    def from_pretrained(name: Any, *args: Any, **options: Any) -> Any:
        tokenizer = ready.pop(key(name, args, options), None)
        return load(name, *args, **options) if tokenizer is None else tokenizer

    def record(name: Any, *args: Any, **options: Any) -> Any:
        tokenizer = load(name, *args, **options)
        ready[key(name, args, options)] = tokenizer
        return tokenizer

    auto.from_pretrained = record
    try:
        tokenizer = lookup(TOKENIZER)(folder)
        loaded = list(ready.values())
        auto.from_pretrained = lambda *_, **__: loaded[0]
        _look_for_processor(tokenizer)
        for loaded_tokenizer in loaded:
            _copy_in_advance(loaded_tokenizer)
        _read_vocabulary(tokenizer, folder)
    except Exception:
        traceback.print_exc()
    auto.from_pretrained = from_pretrained


def _copy_in_advance(tokenizer: Any) -> None:
    """Makes the vocabulary and deep copies that vLLM needs at startup; each takes seconds to make."""
    vocabulary = tokenizer.get_vocab()
    vars(tokenizer)["get_vocab"] = lambda: vocabulary
    spares = [copy.deepcopy(tokenizer) for _ in range(SPARE_COPIES)]

    def deepcopy(memo: dict[int, Any]) -> Any:
        if spares:
            return spares.pop()
        vars(tokenizer).pop("__deepcopy__", None)  # a shallow copy has this attribute as well
        return copy.deepcopy(tokenizer, memo)

    vars(tokenizer)["__deepcopy__"] = deepcopy


def _read_vocabulary(tokenizer: Any, folder: str) -> None:
    """Makes xgrammar read the vocabulary, which would delay each server's first grammar by half a second."""
    info = importlib.import_module("xgrammar").TokenizerInfo
    read = info.from_huggingface
    config = importlib.import_module("transformers").AutoConfig.from_pretrained(folder)
    options = {"vocab_size": config.get_text_config().vocab_size}
    ready = read(tokenizer, **options)

    def named(given: Any) -> tuple[str, str]:
        return type(given).__name__, given.name_or_path  # vLLM makes a new class for each tokenizer

    def from_huggingface(given: Any, **given_options: Any) -> Any:
        if (named(given), given_options) == (named(tokenizer), options):
            return ready
        return read(given, **given_options)

    info.from_huggingface = from_huggingface


def _look_for_processor(tokenizer: Any) -> None:
    """Lets vLLM find out (and cache) that a text model has no processor with its own chat template."""
    look = lookup(PROCESSOR)
    parameters = list(inspect.signature(look).parameters)[1:]
    look(tokenizer, **{name: False if name == "trust_remote_code" else None for name in parameters})

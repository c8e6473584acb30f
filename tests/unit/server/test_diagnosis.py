"""Causes of failed starts, diagnosed from log lines that vLLM wrote on various machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from vllm_harness._server import errors
from vllm_harness._server.diagnosis import RULES, diagnose, log_lines

# log line -> error; each line was written by vLLM or a library that it uses
LINES = [
    (
        "(EngineCore pid=9) ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. "
        "GPU 0 has a total capacity of 23.64 GiB of which 8.69 MiB is free.",
        errors.GpuOutOfMemory,
    ),
    (
        "ValueError: Free memory on device cuda:0 (3.2/139.8 GiB) on startup is less than desired GPU memory "
        "utilization (0.92, 128.6 GiB). Decrease GPU memory utilization or reduce GPU memory used.",
        errors.GpuOutOfMemory,
    ),
    (
        "ValueError: To serve at least one request with the model's max seq len (131072), (12.0 GiB KV cache "
        "is needed, which is larger than the available KV cache memory (3.2 GiB).",
        errors.KvCacheTooSmall,
    ),
    (
        "huggingface_hub.errors.GatedRepoError: 401 Client Error. Cannot access gated repo for url "
        "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct/resolve/main/config.json.",
        errors.GatedModel,
    ),
    (
        "OSError: no-such-owner/no-such-model is not a local folder and is not a valid model identifier "
        "listed on 'https://huggingface.co/models'",
        errors.ModelNotFound,
    ),
    (
        "OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find "
        "them in the cached files.",
        errors.HubUnreachable,
    ),
    (
        "ImportError: /site-packages/vllm/_C.abi3.so: undefined symbol: _ZN5torch7LibraryC1ENS0_4KindE",
        errors.WrongTorchBuild,
    ),
    (
        "AttributeError: '_OpNamespace' '_C' object has no attribute 'greedy_argmax'",
        errors.MissingOperator,
    ),
    ("RuntimeError: No CUDA GPUs are available", errors.NoCudaDevice),
    (
        "  tool parser `openai` is not registered (choose from: beam, deepseek_v3, hermes, qwen3_coder)",
        errors.UnknownParser,
    ),
    (
        "ModuleNotFoundError: No module named 'flashinfer'",
        errors.MissingPackage,
    ),
    ("OSError: [Errno 98] Address already in use", errors.PortTaken),
]


@pytest.mark.parametrize(("line", "error"), LINES)
def test_cause_of_a_line(line: str, error: type[errors.StartupError], tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"INFO starting\n{line}\nINFO the end\n")
    diagnosed = diagnose(log_path=log, exit_code=1, oom_kills=0)
    assert type(diagnosed) is error
    assert diagnosed.hint
    assert diagnosed.lines
    assert str(log) in str(diagnosed)


def test_an_unknown_cause_shows_the_last_error(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("one\nSomethingError: never seen\ntwo\n")
    diagnosed = diagnose(log_path=log, exit_code=3, oom_kills=0)
    assert type(diagnosed) is errors.StartupError
    assert diagnosed.lines == ("SomethingError: never seen",)
    assert "exit code 3" in diagnosed.message


def test_an_oom_kill_needs_a_count_of_the_kernel(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore': -9}\n"
    )
    assert type(diagnose(log_path=log, exit_code=1, oom_kills=1)) is errors.KilledByOom
    assert type(diagnose(log_path=log, exit_code=1, oom_kills=0)) is errors.StartupError


def test_log_lines_lose_vllms_prefix(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("(APIServer pid=1) INFO here\n\n(EngineCore_DP0 pid=2) ERROR there\n")
    assert log_lines(log) == ["INFO here", "ERROR there"]
    assert log_lines(tmp_path / "none.log") == []


def test_every_error_class_has_a_rule_or_a_reason() -> None:
    by_rule = {rule.error for rule in RULES}
    elsewhere = {errors.KilledByOom, errors.StartupTimeout, errors.NameNotServed}
    classes = {value for value in vars(errors).values() if isinstance(value, type)}
    causes = {cls for cls in classes if issubclass(cls, errors.StartupError)}
    causes -= {errors.StartupError, errors.MachineError}
    assert causes == by_rule | elsewhere

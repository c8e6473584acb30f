"""Causes of failed starts, diagnosed from log lines that vLLM wrote on various machines."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from vllm_harness._environments.spec import Environment
from vllm_harness._server import errors
from vllm_harness._server.diagnosis import ServerEnd, log_lines, rules
from vllm_harness._server.records import ServerRecord
from vllm_harness._server.reusable import ReusedServer

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
    (
        "RuntimeError: [enforce fail at gloo/gloo/transport/tcp/socket.cc:24] rv != -1. -1 vs -1. "
        "socket: Too many open files",
        errors.TooManyFiles,
    ),
    ("OSError: [Errno 28] No space left on device: '/psm_5e1f2a4b'", errors.NoSpaceLeft),
    (
        "RuntimeError: Insufficient space in /dev/shm for shared-memory allocation: 160 MiB required, 0 MiB "
        "free. Increase /dev/shm (e.g. --shm-size or --ipc=host).",
        errors.NoSpaceLeft,
    ),
    ("OSError: [Errno 28] No space left on device: '/root/.cache/vllm'", errors.NoSpaceLeft),
    ("SyntaxError: source code string cannot contain null bytes", errors.DamagedInstallation),
    ("ImportError: /site-packages/vllm/_C.abi3.so: file too short", errors.DamagedInstallation),
    ("zipimport.ZipImportError: bad local file header: '/env/python311.zip'", errors.DamagedInstallation),
    ("EOFError: marshal data too short", errors.DamagedInstallation),
    ("  Value error, Please provide a positive number. [type=value_error, ...]", errors.RefusedConfiguration),
    (
        "OSError: It looks like the config file at '/stand-ins/qwen3/config.json' is not a valid JSON file.",
        errors.DamagedConfiguration,
    ),
]

# what the log of a server shows whose engine executed an illegal instruction
CRASH = """\
Fatal Python error: Illegal instruction

Thread 0x00007f26d1 [worker] (most recent call first):
  File "/python3.11/threading.py", line 327 in wait

Current thread 0x00007f26d2 (most recent call first):
  File "/vllm/_custom_ops.py", line 3031 in cpu_attention_with_kv_cache
  File "/vllm/v1/attention/backends/cpu_attn.py", line 441 in forward
vllm-harness: EngineCore was killed by signal 4
"""
NO_SPACE = """\
ERROR 11-29 08:15:22 [core.py:1510]   File "/python3.11/multiprocessing/synchronize.py", line 57, in __init__
ERROR 11-29 08:15:22 [core.py:1510]     sl = self._semlock = _multiprocessing.SemLock(
ERROR 11-29 08:15:22 [core.py:1510] OSError: [Errno 28] No space left on device
"""
REFUSED = """\
pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig
  Value error, User-specified max_model_len (9999999) is greater than the derived max_model_len \
(max_position_embeddings=40960.0 or model_max_length=None in model's config.json). [type=value_error]
"""


@pytest.mark.parametrize(("line", "error"), LINES)
def test_cause_of_a_line(line: str, error: type[errors.StartupError], tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(f"INFO starting\n{line}\nINFO the end\n")
    diagnosed = ServerEnd(log_path=log, exit_code=1).of_start()
    assert type(diagnosed) is error
    assert diagnosed.hint
    assert diagnosed.lines
    assert str(log) in str(diagnosed)


def test_an_unknown_cause_shows_the_last_error(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("one\nSomethingError: never seen\ntwo\n")
    diagnosed = ServerEnd(log_path=log, exit_code=3).of_start()
    assert type(diagnosed) is errors.StartupError
    assert diagnosed.lines == ("SomethingError: never seen",)
    assert "exit code 3" in diagnosed.message


def test_an_oom_kill_needs_a_count_of_the_kernel(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "RuntimeError: Engine core initialization failed. Failed core proc(s): {'EngineCore': -9}\n"
    )
    assert type(ServerEnd(log_path=log, exit_code=1, oom_kills=1).of_start()) is errors.KilledByOom
    assert type(ServerEnd(log_path=log, exit_code=1).of_start()) is errors.KilledProcess


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (signal.SIGILL, errors.IllegalInstruction),
        (signal.SIGBUS, errors.NoSpaceLeft),
        (signal.SIGSEGV, errors.CrashedProcess),
        (signal.SIGABRT, errors.CrashedProcess),
        (signal.SIGKILL, errors.KilledProcess),
        (signal.SIGTERM, errors.KilledProcess),
    ],
)
def test_a_signal_names_the_process_that_it_ended(
    number: signal.Signals, error: type[errors.StartupError], tmp_path: Path
) -> None:
    log = tmp_path / "server.log"
    log.write_text("(APIServer pid=1) INFO serving\n")
    of_server = ServerEnd(log_path=log, exit_code=-number).of_start()
    assert type(of_server) is error
    assert "the API server" in of_server.message
    log.write_text(f"vllm-harness: EngineCore was killed by signal {number:d}\nException: all is lost\n")
    of_engine = ServerEnd(log_path=log, exit_code=0).of_start()
    assert type(of_engine) is error
    assert "EngineCore" in of_engine.message
    assert "EngineCore" in ServerEnd(log_path=log, exit_code=0).of_use("qwen3").message
    assert "exit code" not in of_engine.message


def test_a_killed_front_end_is_named_in_the_words_of_vllm(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("RuntimeError: Process RustFrontend (PID: 4711) died with exit code -9\n")
    diagnosed = ServerEnd(log_path=log, exit_code=1).of_start()
    assert type(diagnosed) is errors.KilledProcess
    assert "RustFrontend was killed by SIGKILL" in diagnosed.message


@pytest.mark.parametrize("left", [False, True])
def test_only_a_record_that_is_left_shows_a_killed_supervisor_of_another_run(
    left: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor alone knows the exit code, and removes the record when it ends by itself."""
    monkeypatch.setenv("VLLM_HARNESS_STATE", str(tmp_path))
    log = tmp_path / "server.log"
    log.write_text("INFO serving\n")
    record = ServerRecord(
        server_id="one", tmp="", name="qwen3", lane="scripted", environment="", log=str(log), port=1
    )
    if left:
        record.write()
    died = ReusedServer(record).why().of_use("qwen3")
    assert ("its supervisor" in died.message) is left
    assert "exit code" not in died.message


def test_a_crash_shows_where_it_happened(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(CRASH)
    died = ServerEnd(log_path=log, exit_code=0).of_use("qwen3")
    assert died.lines == (
        "Fatal Python error: Illegal instruction",
        '  File "/vllm/_custom_ops.py", line 3031 in cpu_attention_with_kv_cache',
    )


def test_a_semaphore_without_space_means_shared_memory(tmp_path: Path) -> None:
    """Python names no file; the traceback shows that the space is that of the shared memory."""
    log = tmp_path / "server.log"
    log.write_text(NO_SPACE)
    diagnosed = ServerEnd(log_path=log, exit_code=1).of_start()
    assert type(diagnosed) is errors.NoSpaceLeft
    assert "/dev/shm has" in diagnosed.hint


def test_what_a_request_logged_is_no_cause_of_a_death(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("ERROR 11-29 06:51:33 [serving.py:1] SyntaxError: Too many open files\nINFO end\n")
    died = ServerEnd(log_path=log, exit_code=0).of_use("qwen3")
    assert died.message == "server 'qwen3' ended while in use (exit code 0)"


def test_a_server_without_its_supervisor(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        "WARNING 11-29 06:51:33 [x.py:255] `OSError: [Errno 24] Too many open files`. Consider ulimit\n"
    )
    diagnosed = ServerEnd(log_path=log, exit_code=None, orphaned=True).of_start()
    assert type(diagnosed) is errors.KilledProcess
    assert diagnosed.lines == ()


def test_the_reason_of_a_refused_configuration_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(REFUSED)
    diagnosed = ServerEnd(log_path=log, exit_code=1).of_start()
    assert type(diagnosed) is errors.RefusedConfiguration
    assert "--max-model-len 9999999 is above the limit of the model, 40960" in diagnosed.message
    assert "--max-model-len 40960 or less" in diagnosed.hint


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (
            "  Value error, Unknown quantization method: nosuch. Must be one of ['awq']. [type=value_error]",
            "Unknown quantization method: nosuch",
        ),
        (
            "max_num_seqs\n  Input should be greater than or equal to 1 [type=gte, input_value=0]",
            "max_num_seqs: Input should be greater than or equal to 1",
        ),
    ],
)
def test_what_a_refused_configuration_says(lines: str, reason: str, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(
        f"ValidationError: 1 validation error for ModelConfig\n{lines}\n    For further information\n"
    )
    diagnosed = ServerEnd(log_path=log, exit_code=1).of_start()
    assert type(diagnosed) is errors.RefusedConfiguration
    assert diagnosed.message.endswith(f"vLLM refuses its configuration: {reason}")


def test_the_limit_on_open_files_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("OSError: [Errno 24] Too many open files: '/dev/null'\n")
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert f"it is {limit} now" in ServerEnd(log_path=log, exit_code=1).of_start().hint


def test_an_unknown_flag_names_the_nearest_of_this_vllm(tmp_path: Path) -> None:
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "arg_utils.py").write_text(
        'group.add_argument("--max-model-len", **of("max_model_len"))'
    )
    made = Environment("release", Path("/env/bin/python"), "3.11", "0.32.0", "cpu", None, package=tmp_path)
    log = tmp_path / "server.log"
    log.write_text("vllm: error: unrecognized arguments: --max-model-length 100\n")
    diagnosed = ServerEnd(log_path=log, exit_code=2, environment=made).of_start()
    assert diagnosed.message.endswith("does not know the flag --max-model-length")
    assert "nearest names: --max-model-len" in diagnosed.hint


def test_a_damaged_file_is_named_with_the_command_that_replaces_it(tmp_path: Path) -> None:
    made = Environment("release", Path("/envs/vllm-0.32.0-cpu/bin/python"), "3.11", "0.32.0", "cpu", None)
    log = tmp_path / "server.log"
    log.write_text(
        "  File \"/vllm/config/model.py\", line 7\n    def f(\nSyntaxError: '(' was never closed\n"
    )
    diagnosed = ServerEnd(log_path=log, exit_code=1, environment=made).of_start()
    assert type(diagnosed) is errors.DamagedInstallation
    assert "/vllm/config/model.py" in diagnosed.lines[0]
    assert "env remove vllm-0.32.0-cpu" in diagnosed.hint
    assert "env create 0.32.0 --device cpu" in diagnosed.hint


def test_a_template_with_an_error_is_no_damaged_installation(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("jinja2.exceptions.TemplateSyntaxError: unexpected '}'\n")
    assert type(ServerEnd(log_path=log, exit_code=1).of_start()) is errors.StartupError


def test_log_lines_lose_vllms_prefix(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("(APIServer pid=1) INFO here\n\n(EngineCore_DP0 pid=2) ERROR there\n")
    assert log_lines(log) == ["INFO here", "ERROR there"]
    assert log_lines(tmp_path / "none.log") == []


def test_every_error_class_has_a_rule_or_a_reason() -> None:
    by_rule = {getattr(errors, rule.error) for rule in rules()}
    elsewhere = {errors.StartupTimeout, errors.NameNotServed}
    classes = {value for value in vars(errors).values() if isinstance(value, type)}
    causes = {cls for cls in classes if issubclass(cls, errors.StartupError)}
    causes -= {errors.StartupError, errors.MachineError}
    assert causes == by_rule | elsewhere

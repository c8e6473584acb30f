"""Each cause of a failed start, provoked on a real vLLM, has its own error, which shows the decisive line."""

from __future__ import annotations

import contextlib
import dataclasses
import http.server
import json
import os
import re
import shutil
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from vllm_harness._environments import assets
from vllm_harness._environments.spec import Environment
from vllm_harness._server import blocks, errors, remote
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.waiting import NotEnoughHardware
from vllm_harness._server.phases import PHASES
from vllm_harness._server.process_tree import ids_alive
from vllm_harness._server.readiness import StartWatch
from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.supervised import Supervised

Plan = Callable[..., Launch]


def fails(
    launch: Launch,
    error: type[errors.StartupError],
    kind: type[RemoteServer] = RemoteServer,
    **options: object,
) -> errors.StartupError:
    """Starts a server that must fail with this error, and checks that it leaves nothing behind."""
    server = kind(launch, **options)  # type: ignore[arg-type]
    with pytest.raises(error) as caught, server:
        pass
    print(caught.value)
    assert caught.value.log_path is not None
    assert caught.value.log_path.exists()
    assert caught.value.hint
    assert server.server_id
    assert server.server_id not in ids_alive()
    assert not blocks.of_server(server.server_id)
    assert not list(Path(tempfile.gettempdir()).glob(f"vh-{server.server_id}"))
    return caught.value


def test_unknown_flag(launch: Plan) -> None:
    error = fails(launch("--max-model-length", "100"), errors.UnknownFlag)
    assert error.message.endswith("the flag --max-model-length")
    assert "nearest names: --max-model-len" in error.hint


def test_refused_value_of_a_flag(launch: Plan) -> None:
    error = fails(launch("--max-model-len", "many"), errors.UnknownFlag)
    assert "--max-model-len" in error.message


def test_length_above_the_limit_of_the_model(launch: Plan) -> None:
    error = fails(launch("--max-model-len", "9999999"), errors.RefusedConfiguration)
    assert "--max-model-len 9999999 is above the limit" in error.message
    assert "or less" in error.hint


def test_unknown_tool_parser_names_the_nearest(launch: Plan) -> None:
    error = fails(launch("--tool-call-parser", "hermess"), errors.UnknownParser)
    assert "hermess" in error.message
    assert "hermes" in error.hint.replace("hermess", "")


def test_unknown_reasoning_parser_names_the_nearest(launch: Plan) -> None:
    error = fails(launch("--reasoning-parser", "qwen33"), errors.UnknownParser)
    assert "qwen3" in error.hint


def test_exit_code_0(launch: Plan) -> None:
    error = fails(launch("--help"), errors.StartupError)
    assert "exit code 0" in error.message


def test_too_little_cpu_memory(
    launch: Plan, environment: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The harness refuses to start the server; if its check is switched off, vLLM's log shows the cause."""
    if environment.device != "cpu":
        pytest.skip("needs a CPU environment")
    much = launch(env={"VLLM_CPU_KVCACHE_SPACE": "100000"})
    with pytest.raises(NotEnoughHardware, match="a server needs"):
        RemoteServer(much).start()
    monkeypatch.setattr(remote, "lease_for", lambda *_, **__: None)
    fails(much, errors.CpuMemoryTooSmall)


def test_model_not_found(launch: Plan) -> None:
    error = fails(launch(model="/no/such/folder"), errors.ModelNotFound)
    assert error.lines


def test_hub_unreachable(launch: Plan) -> None:
    """Uses a nonexistent proxy, because setting HF_HUB_OFFLINE would require another fork server."""
    offline = {"HTTPS_PROXY": "http://127.0.0.1:9"}
    fails(launch(model="no-such-owner/no-such-model", env=offline), errors.HubUnreachable)


def test_unsupported_architecture(launch: Plan, tmp_path: Path) -> None:
    planned = launch()
    copy = tmp_path / "checkpoint"
    shutil.copytree(planned.model, copy)
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(json.dumps(config | {"architectures": ["NoSuchForCausalLM"]}))
    fails(dataclasses.replace(planned, model=str(copy)), errors.UnsupportedArchitecture)


def test_no_device(launch: Plan, environment: Environment, tmp_path: Path) -> None:
    if environment.device != "cpu" or not environment.pythonpath:
        pytest.skip("needs vllm-cpu, whose metadata say that it is built for CPU")
    metadata = tmp_path / "vllm-0.0.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.0.0\n")
    unknown = dataclasses.replace(environment, pythonpath=[tmp_path])
    fails(launch(environment=unknown), errors.NoCudaDevice, cold_start=True)


def test_missing_package(launch: Plan, environment: Environment, tmp_path: Path) -> None:
    """Without torch, neither the fork server nor the server itself starts."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\")\n")
    path = [tmp_path, *environment.pythonpath]
    error = fails(
        launch(environment=dataclasses.replace(environment, pythonpath=path)), errors.MissingPackage
    )
    assert "torch" in error.lines[0]


@pytest.mark.vllm_slow
def test_truncated_file_of_the_installation(launch: Plan, environment: Environment, tmp_path: Path) -> None:
    if environment.package is None:
        pytest.skip("needs an environment whose packages are in a known folder")
    torch = environment.package.with_name("torch")
    text = (torch / "__init__.py").read_text()
    (tmp_path / "torch.py").write_text(text[: text.index("import (") + len("import (")])
    path = [tmp_path, *environment.pythonpath]
    damaged = dataclasses.replace(environment, pythonpath=path)
    error = fails(launch(environment=damaged), errors.DamagedInstallation)
    assert "torch.py" in error.lines[0]
    assert "env create" in error.hint or environment.kind == "installed"


def test_interpreter_that_does_not_exist(launch: Plan, environment: Environment) -> None:
    gone = dataclasses.replace(environment, python=Path("/no/such/python"))
    error = fails(launch(environment=gone), errors.MissingPackage)
    assert "/no/such/python" in error.message


class Hangs(RemoteServer):
    """A server whose process is suspended before it is ready."""

    def _wait_until_ready(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        super()._wait_until_ready()


class Orphaned(RemoteServer):
    """A server whose supervisor is killed before it is ready."""

    def _wait_until_ready(self) -> None:
        assert isinstance(self._process, Supervised)
        assert self._process.supervisor_pid
        os.kill(self._process.supervisor_pid, signal.SIGKILL)
        super()._wait_until_ready()


def test_killed_supervisor(launch: Plan) -> None:
    error = fails(launch(), errors.KilledProcess, Orphaned)
    assert "its supervisor" in error.message
    assert error.lines == ()


def test_timeout_names_the_phase(launch: Plan) -> None:
    error = fails(launch(), errors.StartupTimeout, Hangs, startup_s=1.0)
    named = re.search(r"in phase '(.+)'$", error.message)
    assert named, error.message
    assert named[1] in [name for name, _ in PHASES]


class _Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        """Answers every request with 200."""
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


class Robbed(RemoteServer):
    """A server whose leased port is taken before it runs, by a process that answers /health."""

    thief: http.server.ThreadingHTTPServer

    def _spawn(self) -> None:
        self.thief = http.server.ThreadingHTTPServer(("127.0.0.1", self.port), _Healthy)
        threading.Thread(target=self.thief.serve_forever, daemon=True).start()
        super()._spawn()


@contextlib.contextmanager
def port_stolen(launch: Launch) -> Iterator[RemoteServer]:
    """A server whose port is taken as soon as it starts."""
    server = Robbed(launch)
    try:
        yield server
    finally:
        server.thief.shutdown()
        server.thief.server_close()


def test_an_answer_of_another_process_is_an_error(launch: Plan) -> None:
    """The error names that process, whether its answer or vLLM's end is seen first."""
    with port_stolen(launch()) as server, pytest.raises(errors.PortTaken) as caught:
        server.start()
    assert f"pid {os.getpid()}" in str(caught.value)


def test_port_taken_in_the_log_of_vllm(launch: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the harness does not check which process listens, vLLM's log still shows the cause."""
    monkeypatch.setattr(StartWatch, "_is_healthy", lambda *_: False)
    with port_stolen(launch()) as server, pytest.raises(errors.PortTaken) as caught:
        server.start()
    assert "in use" in caught.value.lines[0]


@contextlib.contextmanager
def memory_group(limit_bytes: int) -> Iterator[None]:
    """Puts this process into a new memory control group (v1), or skips the test."""
    memory = Path("/sys/fs/cgroup/memory")
    group_before = [
        line.split(":")[2]
        for line in Path("/proc/self/cgroup").read_text().splitlines()
        if ":memory:" in line
    ]
    group = memory / "vllm-harness-test"
    try:
        group.mkdir(exist_ok=True)
        (group / "memory.limit_in_bytes").write_text(str(limit_bytes))
        (group / "cgroup.procs").write_text(str(os.getpid()))
    except OSError as error:
        pytest.skip(f"needs a writable v1 memory control group: {error.strerror}")
    try:
        yield
    finally:
        (memory / group_before[0].lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def test_oom_killer(launch: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    """Replaces the lease, which would respect the control group's limit and refuse to start the server."""
    monkeypatch.setattr(remote, "lease_for", lambda *_, **__: None)
    planned = launch()
    with memory_group(500 * 2**20):
        error = fails(planned, errors.KilledByOom, cold_start=True)
    assert "signal 9" in error.message or "OOM" in error.message


@pytest.mark.parametrize(
    "share", [0.5, pytest.param(0.0, marks=pytest.mark.vllm_slow)], ids=["truncated", "empty"]
)
def test_damaged_weights(launch: Plan, tmp_path: Path, share: float) -> None:
    whole = assets.fetch("smollm2-135m")
    for path in whole.iterdir():
        (tmp_path / path.name).symlink_to(path)
    weights = tmp_path / "model.safetensors"
    weights.unlink()
    content = (whole / weights.name).read_bytes()
    weights.write_bytes(content[: int(len(content) * share)])
    planned = launch("--load-format", "auto", model=str(tmp_path))
    error = fails(planned, errors.DamagedWeights)
    assert "assets fetch" in error.hint

"""The code that forks of the fork server run: a supervisor and its server, and the server's helpers."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

# the variables with which vLLM binds a worker to cores (one per OpenMP library), and patterns for the cores
BINDINGS = {"OMP_PLACES": r"(.+)", "GOMP_CPU_AFFINITY": r"(.+)", "KMP_AFFINITY": r"proclist=\[(.+?)\]"}
PROXY = "vllm_harness_proxy"
"""The module of the proxy in front of a server that does not support middleware."""
ANSWER_LIMIT_S = 120.0


def _load_supervisor() -> Any:
    path = Path(__file__).parents[1] / "supervisor.py"
    spec = importlib.util.spec_from_file_location("vllm_harness_supervisor", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


supervisor = _load_supervisor()


def supervise(config: Any) -> int:
    """Forks a server and supervises it; returns an exit code in both processes."""
    try:
        return int(supervisor.supervise(config, ForkedServer))
    except _IsServer:
        return _serve(config)


class _IsServer(BaseException):
    """Raised in the forked server to unwind the stack that it inherited from the supervisor."""


class ForkedServer:
    """A forked server with the interface of `supervisor.Server`; raises _IsServer in the server itself."""

    def __init__(self, _: Any) -> None:
        reader, writer = os.pipe()
        self.returncode: int | None = None
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            supervisor.die_with_parent(parent)
            os.setsid()
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(writer, 1)
            os.dup2(writer, 2)
            _close_inherited()
            raise _IsServer
        os.close(writer)
        self.stdout = os.fdopen(reader, "rb")

    def poll(self) -> int | None:
        """Returns the exit code; None while the server is running."""
        if self.returncode is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
            except ChildProcessError:
                pid, status = self.pid, 0
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self) -> int:
        """Waits for the end of the server; returns the exit code."""
        while (code := self.poll()) is None:
            time.sleep(0.01)
        return code


def _close_inherited() -> None:
    """Closes the template's open files, except GPU device files, which NVML needs once it is in use."""
    for descriptor in range(3, 256):
        with suppress(OSError):
            if not str(Path(f"/proc/self/fd/{descriptor}").readlink()).startswith("/dev/nvidia"):
                os.close(descriptor)


def _serve(config: Any) -> int:
    """Runs `vllm serve` in this process; returns its exit code."""
    os.environ.clear()
    os.environ.update(config.env)
    _set_log_level()
    # add packages that only the server needs
    path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path += [folder for folder in path if folder and folder not in sys.path]
    tempfile.tempdir = None
    importlib.import_module("vllm_harness_shm").name_blocks(config.server_id)
    importlib.import_module("vllm_harness_deaths").report_deaths()
    if config.first:
        runpy.run_path(config.first)
    sys.argv = ["vllm", *config.argv[config.argv.index("vllm.entrypoints.cli.main") + 1 :]]
    if Path(config.argv[1]).stem == PROXY:
        sys.argv += ["--uds", _fork_proxy(int(config.argv[2]))]
    entry = importlib.import_module("vllm.entrypoints.cli.main")
    return entry.main() or 0


def _set_log_level() -> None:
    """Replaces the log level inherited from the template, unless a file configures vLLM's logger."""
    logger = logging.getLogger("vllm")
    if logger.handlers and not os.environ.get("VLLM_LOGGING_CONFIG_PATH"):
        level = os.environ.get("VLLM_LOGGING_LEVEL", "INFO").upper()
        logger.setLevel(level)
        for handler in logger.handlers:
            handler.setLevel(level)


def _fork_proxy(port: int) -> str:
    """Forks the proxy in front of this server; returns the path of the socket that vLLM must listen on."""
    proxy = importlib.import_module(PROXY)
    server = os.getpid()
    if os.fork() == 0:
        supervisor.die_with_parent(server)
        proxy.proxy(port).run()
        os._exit(0)
    return str(proxy.socket_path())


def answer_of_fork(ask: Callable[[], Any]) -> Any:
    """Calls a function in a forked process and returns its result; None if it fails or takes too long."""
    reader, writer = Pipe(duplex=False)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        supervisor.die_with_parent(parent)
        with suppress(BaseException):
            writer.send(ask())
        os._exit(0)
    writer.close()
    try:
        with reader:
            return reader.recv() if reader.poll(ANSWER_LIMIT_S) else None
    except EOFError:
        return None
    finally:
        os.kill(child, signal.SIGKILL)  # the child has ended, or takes too long
        os.waitpid(child, 0)


def bind_openmp() -> None:
    """Sets the threads and cores of a forked worker, which vLLM passes to spawned workers in variables."""
    if threads := os.environ.get("OMP_NUM_THREADS"):
        importlib.import_module("torch").set_num_threads(int(threads))
    for name, pattern in BINDINGS.items():
        if cores := re.search(pattern, os.environ.get(name, "")):
            os.sched_setaffinity(0, {int(core) for core in re.findall(r"\d+", cores[1])})

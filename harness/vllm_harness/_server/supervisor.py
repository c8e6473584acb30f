"""The process between the harness and one vLLM server, which never outlives its owner.

Run as `python -I supervisor.py`. It is the server's subreaper, so every descendant, even an orphaned one,
stays below it and is found and killed at the end. The owner writes one line, the configuration (see
`Config`), to standard input and holds the pipe open. The server ends when the pipe closes or the owner dies;
it has time to finish its requests if the owner has written `ready` before. After the line `keep`, the server
has no owner, and SIGTERM to the supervisor ends it. The supervisor makes everything that belongs to the
server except the record, and removes all of that at the end. It writes JSON objects to standard output, one
per line: `{"supervisor": N}`, `{"pid": N}`, `{"exited": CODE}` if the server ended by itself, and finally
`{"ended": {...}}`.

The fork template (forking/vllm_harness_template.py) runs the same code and launches the server by a fork.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

import psutil


def _beside(name: str) -> Any:
    """Imports a module of this folder, which is not on sys.path."""
    path = Path(__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"vllm_harness_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    from vllm_harness._server import blocks
else:
    blocks = _beside("blocks")

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_WAIT_S = 10.0
LOOK_EVERY_S = 2.0
CONTROL = 0
READY, KEEP = b"ready\n", b"keep\n"
TOKEN_PATTERN = re.compile(rb"\b(hf_|sk-|gsk_|ghp_|nvapi-)[A-Za-z0-9_-]{8,}")


@dataclass(frozen=True)
class Config:
    """The server that a supervisor runs, and the owner of the server.

    Attributes:
        owner: process id of the owner.
        owner_started: when the owner was started, see `started`.
        server_id: the id in the names of the server's shared memory.
        earlier_blocks: shared memory blocks from before the server, which are not removed.
        record: path of the server's record, which the owner has written; removed at the end.
        argv, env: the server's command and all its environment variables.
        log: the file to which the server's redacted output is appended.
        log_limit: bytes after which the log is truncated, while the server goes on.
        tmp: the server's own temporary and working folder; made here, removed at the end.
        secrets: values that are redacted in the log.
        grace_s: seconds between SIGTERM and SIGKILL for a server that may have requests to finish.
        first: path of a Python file that a forked server runs before it serves; empty for none.
    """

    owner: int
    owner_started: int
    server_id: str
    earlier_blocks: list[str]
    record: str
    argv: list[str]
    env: dict[str, str]
    log: str
    log_limit: int
    tmp: str
    secrets: list[str]
    grace_s: float
    first: str = ""


class Server(Protocol):
    """The interface of a launched server process."""

    pid: int
    returncode: int | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None:
        """Returns the exit code, negative for a signal; None while the process is running."""

    def wait(self) -> int:
        """Waits until the process has ended; returns the exit code."""


def main() -> int:
    """Runs the server described by the configuration on standard input."""
    line = sys.stdin.buffer.readline()
    if not line.endswith(b"\n"):
        return 1  # the owner was killed while it wrote the line
    return supervise(Config(**json.loads(line)), _launch)


def supervise(config: Config, launch: Callable[[Config], Server]) -> int:
    """Runs a server, which `launch` starts, until it ends or its owner ends it; returns an exit code."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop_reader, stop_writer = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop_writer, b"t"))
    _send(supervisor=os.getpid())
    owner_end = _watch_owner(config)
    if owner_end is None:
        _forget(config)
        return 1
    native = blocks.Native(config.earlier_blocks)
    try:
        os.mkdir(config.tmp, 0o700)  # noqa: PTH102
    except OSError as error:
        return _failed(error, config)
    # all descendants start in this folder, which identifies them if this process is killed
    os.chdir(config.tmp)
    try:
        server = launch(config)
    except OSError as error:
        _clear(config, native)
        return _failed(error, config)
    assert server.stdout is not None
    log = threading.Thread(target=_copy_log, args=(server.stdout, config), daemon=True)
    log.start()
    _send(pid=server.pid)
    serves = _wait(server, owner_end, stop_reader, native)
    code = server.returncode
    if code is not None and code >= 0:
        log.join(timeout=2)  # the other processes may still write why it ended
    ended = _end(server, config.grace_s if serves else 0.0, native)
    log.join(timeout=2)
    if code is not None:
        _send(exited=code)
    _clear(config, native)
    _send(ended=ended)
    return 0


def die_with_parent(parent: int) -> None:
    """Makes the kernel kill this process when its parent ends; exits if the parent has ended already."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def started(pid: int) -> int | None:
    """When a process was started, in clock ticks since the machine booted; None if the process has ended.

    Together with the process id, it identifies a process even if the clock is changed.
    """
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # the last one: /proc hides other users'
        return None
    state, *fields = status.rpartition(")")[2].split()
    return None if state in "ZX" else int(fields[18])


def _watch_owner(config: Config) -> int | None:
    """A descriptor that becomes readable when the owner ends; None if the owner is gone or hung up."""
    try:
        owner_end = os.pidfd_open(config.owner)
    except ProcessLookupError:
        return None
    if started(config.owner) != config.owner_started or select.select([CONTROL], [], [], 0)[0]:
        return None
    return owner_end


def _failed(error: OSError, config: Config) -> int:
    _send(failed=f"{error.strerror}: {error.filename or config.argv[0]}")
    return 1


def _clear(config: Config, native: blocks.Native) -> None:
    """Removes everything that the server has left behind, after its processes have ended."""
    blocks.remove_of(config.server_id, native.blocks)
    os.chdir("/")
    shutil.rmtree(config.tmp, ignore_errors=True)
    _forget(config)


def _forget(config: Config) -> None:
    with contextlib.suppress(OSError):
        os.unlink(config.record)  # noqa: PTH108


def _launch(config: Config) -> Server:
    return subprocess.Popen(
        config.argv,
        env=config.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=partial(die_with_parent, os.getpid()),
    )


def _wait(server: Server, owner_end: int, stop_reader: int, native: blocks.Native) -> bool:
    """Waits until the server has ended or must be ended; returns whether it may have requests to finish."""
    serves = False
    server_end = os.pidfd_open(server.pid)
    poller = select.poll()
    for descriptor in (CONTROL, stop_reader, server_end, owner_end):
        poller.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll(LOOK_EVERY_S * 1000)}
        if server_end in ready:
            server.wait()
            return False
        if stop_reader in ready or owner_end in ready:
            return serves
        if CONTROL in ready:
            words = os.read(CONTROL, 64)
            if not words:
                return serves
            serves = True
            if KEEP in words:
                poller.unregister(CONTROL)
                poller.unregister(owner_end)
        native.look(_pids)
        _reap(except_pid=server.pid)


def _end(server: Server, grace_s: float, native: blocks.Native) -> dict[str, Any]:
    """Sends SIGTERM, then SIGKILL, to all descendants; returns the content of the `ended` message."""
    start = time.monotonic()
    _stop_all()
    native.look(_pids, again=True)
    _signal_all(signal.SIGTERM)
    _signal_all(signal.SIGCONT)
    killed: list[int] = []
    while _alive(server):
        elapsed = time.monotonic() - start
        if elapsed > grace_s + KILL_WAIT_S:
            break
        if elapsed > grace_s:
            _stop_all()
            native.look(_pids, again=True)
            killed = sorted({*killed, *_signal_all(signal.SIGKILL)})
        time.sleep(0.02)
    return {"seconds": round(time.monotonic() - start, 3), "killed": killed, "survivors": _pids()}


def _stop_all() -> None:
    """Stops the process tree, so that no process ends or forks while it is inspected."""
    for _ in range(2):
        _signal_all(signal.SIGSTOP)


def _alive(server: Server) -> bool:
    server.poll()
    _reap(except_pid=server.pid if server.returncode is None else 0)
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        return True
    except ChildProcessError:
        return False  # a subreaper without children has no descendants, while a list may miss some


def _pids() -> list[int]:
    return [process.pid for process in psutil.Process().children(recursive=True)]


def _signal_all(number: signal.Signals) -> list[int]:
    reached = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
            process.send_signal(number)
            reached.append(process.pid)
    return reached


def _reap(except_pid: int) -> None:
    for process in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess, ChildProcessError):
            if process.pid != except_pid and process.status() == psutil.STATUS_ZOMBIE:
                os.waitpid(process.pid, os.WNOHANG)


def _copy_log(source: IO[bytes], config: Config) -> None:
    secrets = [secret.encode() for secret in config.secrets]
    remaining = config.log_limit
    with open(config.log, "ab", buffering=0) as log:  # noqa: PTH123
        for line in iter(lambda: source.readline(1_000_000), b""):
            if remaining <= 0:
                continue
            clean = _redacted(line, secrets)
            log.write(clean)
            remaining -= len(clean)
            if remaining <= 0:
                log.write(b"\n[log truncated: it exceeded its size limit]\n")


def _redacted(line: bytes, secrets: list[bytes]) -> bytes:
    for secret in secrets:
        line = line.replace(secret, b"[redacted]")
    return TOKEN_PATTERN.sub(rb"\1[redacted]", line)


def _send(**message: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())

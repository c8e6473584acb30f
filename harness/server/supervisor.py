"""The process between the harness and one vLLM server: the server never outlives its owner.

Run as `python -I supervisor.py`. It is the server's subreaper, so every descendant, however orphaned,
stays below it and is found and killed at the end. The owner writes one line, the configuration (see
`Config`), to standard input and holds the pipe open: closing it ends the server, and so does the owner's
death, by whatever signal. After the line `keep` it has no owner; SIGTERM to the supervisor ends it. On
standard output goes one JSON object a line: `{"supervisor": N}`, `{"pid": N}`, `{"exited": CODE}` when the
server ended by itself, and last `{"ended": {...}}`.

The fork template (vllm_harness_template.py) runs the same code with its own way of launching.
"""

from __future__ import annotations

import contextlib
import ctypes
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
from typing import IO, Any, Protocol

import psutil

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_WAIT_S = 10.0
CONTROL = 0
KEEP = b"keep\n"
TOKEN_PATTERN = re.compile(rb"\b(hf_|sk-|gsk_|ghp_|nvapi-)[A-Za-z0-9_-]{8,}")


@dataclass(frozen=True)
class Config:
    """What to run, and for whom.

    Attributes:
        owner: process id of the owner.
        argv, env, cwd: the server's command, its whole environment and working folder.
        log: file that its output is appended to, redacted.
        log_limit: bytes after which the log is cut (the server runs on).
        tmp: the server's own temporary folder; removed at the end.
        secrets: values that never reach the log.
        grace_s: seconds between TERM and KILL.
    """

    owner: int
    argv: list[str]
    env: dict[str, str]
    cwd: str
    log: str
    log_limit: int
    tmp: str
    secrets: list[str]
    grace_s: float


class Server(Protocol):
    """The launched process, as far as its supervisor knows it."""

    pid: int
    returncode: int | None
    stdout: IO[bytes] | None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        ...

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        ...


def main() -> int:
    """Runs one server from a command until it ends or its owner lets go."""
    return supervise(Config(**json.loads(sys.stdin.buffer.readline())), _launch)


def supervise(config: Config, launch: Callable[[Config], Server]) -> int:
    """Runs one server, launched as the caller says, until it ends or its owner lets go."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop_reader, stop_writer = os.pipe()
    signal.signal(signal.SIGTERM, lambda *_: os.write(stop_writer, b"t"))
    _tell(supervisor=os.getpid())
    try:
        server = launch(config)
    except OSError as error:
        _tell(failed=f"{error.strerror}: {error.filename or config.argv[0]}")
        shutil.rmtree(config.tmp, ignore_errors=True)
        return 1
    assert server.stdout is not None
    log = threading.Thread(target=_copy_log, args=(server.stdout, config), daemon=True)
    log.start()
    _tell(pid=server.pid)
    if not _wait(server, config.owner, stop_reader):
        _drain(log)
        _tell(exited=server.returncode)
    ended = _end(server, config.grace_s)
    _drain(log)
    shutil.rmtree(config.tmp, ignore_errors=True)
    _tell(ended=ended)
    return 0


def die_with_parent() -> None:
    """Has the kernel kill this process when its parent ends, however that happens."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _launch(config: Config) -> Server:
    return subprocess.Popen(
        config.argv,
        env=config.env,
        cwd=config.cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        preexec_fn=die_with_parent,
    )


def _wait(server: Server, owner: int, stop_reader: int) -> bool:
    """True when somebody wants the end, False when the server ended by itself."""
    server_end = os.pidfd_open(server.pid)
    try:
        owner_end = os.pidfd_open(owner)
    except ProcessLookupError:
        return True
    poller = select.poll()
    for descriptor in (CONTROL, stop_reader, server_end, owner_end):
        poller.register(descriptor, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poller.poll(5000)}
        if server_end in ready:
            server.wait()
            return False
        if stop_reader in ready or owner_end in ready:
            return True
        if CONTROL in ready:
            if os.read(CONTROL, 64) != KEEP:
                return True
            poller.unregister(CONTROL)
            poller.unregister(owner_end)
        _reap(except_pid=server.pid)


def _end(server: Server, grace_s: float) -> dict[str, Any]:
    """TERM, then KILL, of everything below this process; returns what it took."""
    start = time.monotonic()
    shared = _shared_memory_while_stopped()
    _signal_all(signal.SIGTERM)
    _signal_all(signal.SIGCONT)
    killed: list[int] = []
    while _alive(server):
        elapsed = time.monotonic() - start
        if elapsed > grace_s + KILL_WAIT_S:
            break
        if elapsed > grace_s:
            shared |= _shared_memory_while_stopped()
            killed = sorted({*killed, *_signal_all(signal.SIGKILL)})
        time.sleep(0.02)
    for path in shared:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)  # noqa: PTH108
    return {
        "seconds": round(time.monotonic() - start, 3),
        "killed": killed,
        "survivors": [process.pid for process in _descendants()],
    }


def _shared_memory_while_stopped() -> set[str]:
    """POSIX shared memory that the tree maps, which vLLM does not always unlink; the tree is stopped then."""
    for _ in range(2):
        _signal_all(signal.SIGSTOP)
    found = set()
    for process in _descendants():
        with contextlib.suppress(OSError), open(f"/proc/{process.pid}/maps") as maps:  # noqa: PTH123
            found |= {line.split(None, 5)[5].strip() for line in maps if " /dev/shm/" in line}
    return {path for path in found if not path.endswith("(deleted)")}


def _alive(server: Server) -> bool:
    server.poll()
    _reap(except_pid=server.pid if server.returncode is None else 0)
    return bool(_descendants())


def _descendants() -> list[psutil.Process]:
    return psutil.Process().children(recursive=True)


def _signal_all(number: signal.Signals) -> list[int]:
    reached = []
    for process in _descendants():
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
    room = config.log_limit
    with open(config.log, "ab", buffering=0) as log:  # noqa: PTH123
        for line in iter(lambda: source.readline(1_000_000), b""):
            if room <= 0:
                continue
            clean = _redacted(line, secrets)
            log.write(clean)
            room -= len(clean)
            if room <= 0:
                log.write(b"\n[log cut here: it passed its size limit]\n")


def _redacted(line: bytes, secrets: list[bytes]) -> bytes:
    for secret in secrets:
        line = line.replace(secret, b"[redacted]")
    return TOKEN_PATTERN.sub(rb"\1[redacted]", line)


def _drain(log: threading.Thread) -> None:
    log.join(timeout=2)


def _tell(**message: Any) -> None:
    with contextlib.suppress(OSError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())

"""The fork template: imports vLLM once, then forks a supervised server for each request.

The server's interpreter runs `python vllm_harness_template.py SOCKET LINGER_S STARTER`, and imports only this
folder and supervisor.py of the harness. It neither starts torch computations nor uses CUDA, since threads and
CUDA contexts do not survive a fork. A client connects to the socket (one JSON line each way) and requests:

    {"op": "fork", "config": {...}} with two file descriptors, control and status
        forks a supervisor, which forks the server; supervisor.py documents the messages on the two pipes
    {"op": "template", "socket": PATH, "model": FOLDER, "harmony": BOOL, "env": {...}}
        forks a template that has also loaded the model's tokenizer
    {"op": "hold"}
        the template lives as long as this client is connected
    {"op": "leave"}
        from now on, the template ends as soon as no client is connected
    {"op": "dismiss"}
        the template ends now, unless another client holds it; the answer says whether it ends

A template ends when no client has held it for LINGER_S seconds, or when no client is connected and its socket
is gone from its path; the servers live on with their owners. A client that only connects, to check that the
template is running, does not prolong its life.
"""

from __future__ import annotations

import atexit
import fcntl
import gc
import json
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from vllm_harness_forked import bind_openmp, supervise, supervisor
from vllm_harness_patches import apply_patches
from vllm_harness_preload import import_all, preload

Become = Callable[[], int] | dict[str, Any]
"""A function that the fork must run, which returns an exit code; or the request for another template."""
FIRST_CLIENT_S = 60.0
CREDENTIALS = struct.Struct("3i")  # pid, uid and gid at the other end of a Unix socket


def main() -> None:
    """Imports vLLM, then serves; a fork returns here to become a supervisor, a server, or a template."""
    path, linger_s, starter = sys.argv[1], float(sys.argv[2]), int(sys.argv[3])
    # servers do not get what the starter ignores or blocks, as nohup does
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    import_all()
    apply_patches()
    os.register_at_fork(after_in_child=bind_openmp)
    while True:
        gc.collect()
        gc.freeze()
        if os.getppid() != starter:  # a successor may listen at the path by now
            _leave(None)
        become = Template(path, linger_s, starter).serve()
        if not isinstance(become, dict):
            _leave(become)
        path, starter = become["socket"], os.getppid()
        preload(become)


def _leave(become: Callable[[], int] | None) -> NoReturn:
    """Exits like an interpreter, but without freeing the heap, which would take half a second."""
    try:
        code: object = become() if become else 0
    except SystemExit as end:
        code = end.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


class Template:
    """Listens for requests, and forks for them.

    Args:
        path: the path of the Unix socket.
        linger_s: seconds after which the template ends if no client holds it.
        starter: process id of the parent; if it ends before a client holds the template, the template ends.
    """

    def __init__(self, path: str, linger_s: float, starter: int) -> None:
        self._starter = starter
        self._linger_s = linger_s
        self._clients: list[socket.socket] = []
        self._holders: set[socket.socket] = set()
        self._patience_s = FIRST_CLIENT_S
        self._dismissed = False
        self._path = Path(path)
        self._listener = _listener(self._path)
        self._file = self._path.lstat()

    def serve(self) -> Become | None:
        """Serves requests. In a fork, returns what the fork becomes; in the template, None at its end."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        idle_since = time.monotonic()
        was_held = False
        while not self._dismissed and (
            self._clients or (self._can_be_found() and time.monotonic() - idle_since < self._patience_s)
        ):
            if self._holders:
                idle_since, self._patience_s, was_held = time.monotonic(), self._linger_s, True
            elif not was_held and os.getppid() != self._starter:
                break
            ready, _, _ = select.select([self._listener, *self._clients], [], [], 0.2)
            _reap()
            for source in ready:
                if source is self._listener:
                    self._clients += _accepted(self._listener)
                elif (become := self._handle(source)) is not None:
                    return become
        self._forget()
        return None

    def _forget(self) -> None:
        """Removes the note and the socket, unless they may be a successor's."""
        lock, note = self._path.stem.split("-")[0] + ".lock", self._path.with_suffix(".json")
        with suppress(OSError, ValueError, KeyError), self._path.with_name(lock).open("a") as starting:
            fcntl.flock(starting, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._can_be_found():
                self._path.unlink()
            named = json.loads(note.read_text())
            if (named["pid"], named["started"]) == (os.getpid(), supervisor.started(os.getpid())):
                note.unlink()

    def _can_be_found(self) -> bool:
        """Whether this template's socket is still at its path."""
        with suppress(OSError):
            return os.path.samestat(self._path.lstat(), self._file)
        return False

    def _handle(self, client: socket.socket) -> Become | None:
        try:
            data, descriptors = _receive(client)
        except OSError:
            data, descriptors = b"", []
        if not data:
            _close(descriptors)
            self._clients.remove(client)
            self._holders.discard(client)
            client.close()
            return None
        for line in data.splitlines():  # several short requests may arrive together
            request = json.loads(line)
            if request["op"] in ("fork", "template"):
                return self._fork(client, request, descriptors)
            self._set_lifetime(client, request["op"])
        return None

    def _fork(self, client: socket.socket, request: dict[str, Any], descriptors: list[int]) -> Become | None:
        template = os.getpid()
        pid = os.fork()
        if pid == 0:
            return self._become(template, request, descriptors)
        _close(descriptors)
        with suppress(OSError):  # the client may have been killed meanwhile
            client.sendall(json.dumps({"pid": pid}).encode() + b"\n")
        return None

    def _set_lifetime(self, client: socket.socket, op: str) -> None:
        if op == "hold":
            self._holders.add(client)
        elif op == "leave":
            self._linger_s = self._patience_s = 0.0
        else:
            self._dismissed = not self._holders - {client}
            with suppress(OSError):
                client.sendall(json.dumps({"ends": self._dismissed}).encode() + b"\n")

    def _become(self, template: int, request: dict[str, Any], descriptors: list[int]) -> Become:
        self._listener.close()
        for client in self._clients:
            client.close()
        os.setsid()
        if request["op"] == "template":
            supervisor.die_with_parent(template)
            return request
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        config = supervisor.Config(**request["config"])
        return lambda: supervise(config)


def _listener(path: Path) -> socket.socket:
    """Listens at a path; binds through a descriptor of its folder, as socket names have at most 107 bytes."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    half = f"{path.name}.{os.getpid()}"
    listener.bind(f"/proc/self/fd/{folder}/{half}")
    listener.listen(64)
    os.rename(half, path.name, src_dir_fd=folder, dst_dir_fd=folder)
    os.close(folder)
    return listener


def _accepted(listener: socket.socket) -> list[socket.socket]:
    """Accepts the next client; if it belongs to another user, closes it unread and returns an empty list."""
    client = listener.accept()[0]
    credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    pid, uid, _ = CREDENTIALS.unpack(credentials)
    if uid == os.geteuid():
        return [client]
    print(f"refused: a client of another user (pid {pid}, uid {uid})", flush=True)
    client.close()
    return []


def _receive(client: socket.socket) -> tuple[bytes, list[int]]:
    """Receives one line, and the file descriptors sent with it."""
    data, descriptors, _, _ = socket.recv_fds(client, 1 << 20, 2)
    while data and not data.endswith(b"\n"):
        more = client.recv(1 << 20)
        if not more:
            return b"", descriptors
        data += more
    return data, descriptors


def _close(descriptors: list[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _reap() -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


if __name__ == "__main__":
    main()

"""The client side of the fork server: finds or starts the template for a launch, and requests forks.

Templates differ in the interpreter, its vLLM, the variables that are read at import time, and the limits that
they inherit (see `inherited`). All runs of a user share them. Measured on CPU, a start from a template takes
a tenth of a cold start or less, since a cold start mostly imports torch and vLLM three times in a row.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from filelock import FileLock, Timeout

from vllm_harness._environments.spec import without_overlays
from vllm_harness._errors import HarnessError
from vllm_harness._files.folders import private_folder
from vllm_harness._files.locking import locked
from vllm_harness._files.paths import STATE, state_dir
from vllm_harness._files.variables import number
from vllm_harness._server.inherited import inherited
from vllm_harness._server.launch import Launch
from vllm_harness._server.private_socket import OtherUserAnswers, connect
from vllm_harness._server.supervised import Handle
from vllm_harness._server.supervisor import started

FORKING = Path(__file__).with_name("forking")
TEMPLATE = FORKING / "vllm_harness_template.py"
LINGER = "VLLM_HARNESS_LINGER_S"
LINGER_S = 300.0
HOLD, LEAVE = b'{"op": "hold"}\n', b'{"op": "leave"}\n'
FIRST = "VLLM_HARNESS_FIRST"
"""A variable that names a Python file, which each server that this process starts runs before it serves."""
IMPORT_LIMIT_S = 300.0
PATH = "PYTHONPATH"
DISMISS_LIMIT_S = 5.0
# read when a server starts, not when vLLM is imported, so that servers that differ in them share a template
READ_LATE = {
    *("TIKTOKEN_ENCODINGS_BASE", "VLLM_CPU_KVCACHE_SPACE", "VLLM_SYSTEM_START_DATE"),
    *("VLLM_CPU_OMP_THREADS_BIND", "VLLM_CPU_NUM_OF_RESERVED_CPU", "OMP_NUM_THREADS"),
    *("VLLM_ENABLE_RESPONSES_API_STORE", "VLLM_LOGGING_LEVEL"),
    *("VLLM_USE_EXPERIMENTAL_PARSER_CONTEXT", "VLLM_TOOL_JSON_ERROR_AUTOMATIC_RETRY"),
    *("VLLM_GPT_OSS_SYSTEM_TOOL_MCP_LABELS", "VLLM_GPT_OSS_HARMONY_SYSTEM_INSTRUCTIONS"),
    "PYTHON_EXECUTION_BACKEND",  # read by the packages of the demo tool server
}
READ_EARLY = (
    *("VLLM_", "HF_", "HUGGINGFACE_", "TRANSFORMERS_", "TORCH", "PYTORCH", "OMP_", "KMP_", "MKL_", "GOMP_"),
    *("CUDA_", "NCCL_", "GLOO_", "PYTHON", "LD_", "XDG_", "HOME", "TOKENIZERS_", "TRITON_", "TIKTOKEN_"),
    *("LANG", "LC_", "TZ", "MALLOC_", "GLIBC_", "OPENBLAS_", "FLASHINFER_"),
)

MODELS_HELD = 8
"""How many templates with a model's tokenizer a process keeps alive; each uses about 0.3 GiB."""
_held: dict[Path, socket.socket] = {}


class ForkServerFailed(HarnessError):
    """The template did not start; a cold start shows the cause."""


class TemplateEnded(ForkServerFailed):
    """A template has ended or was killed; another can be started."""


@dataclass(frozen=True)
class TemplateInfo:
    """The socket, process id and environment of a running base template."""

    socket: Path
    pid: int
    environment: str


def spawn(config: dict[str, Any], path: Path) -> Handle:
    """Forks a supervised server from the template that listens at a socket; see `supervisor.Config`.

    Raises:
        TemplateEnded: the template does not answer.
        OtherUserAnswers: another user's process listens at the socket.
    """
    control_read, control_write = os.pipe()
    status_read, status_write = os.pipe()
    try:
        _request(path, {"op": "fork", "config": config}, [control_read, status_write])
    except BaseException as error:
        for descriptor in (control_write, status_read):
            os.close(descriptor)
        if isinstance(error, OSError):
            raise TemplateEnded(f"the fork server does not answer: {error}") from error
        raise
    finally:
        os.close(control_read)
        os.close(status_write)
    return Handle(os.fdopen(control_write, "wb"), os.fdopen(status_read, "rb"))


def templates() -> list[TemplateInfo]:
    """The running base templates."""
    noted = map(_noted, sorted(_folder().glob("*.json")))
    return [info for info in noted if info is not None and _connects(info.socket)]


def socket_of(launch: Launch, environ: Mapping[str, str]) -> Path:
    """The path at which the base template for a launch listens."""
    return _folder() / f"{_key(launch, environ)}.sock"


def template(
    launch: Launch, environ: Mapping[str, str], progress: Callable[[str], None], *, held: int = MODELS_HELD
) -> Path:
    """Finds or starts the template for a launch; returns the path of its socket.

    Args:
        environ: the environment variables of the server.
        progress: is called with the name of each step.
        held: the maximum number of models' templates that this process keeps alive, including this one.

    Raises:
        ForkServerFailed: the template cannot be started.
        TemplateEnded: the template, or the base template that it is forked from, ended meanwhile.
        OtherUserAnswers: another user's process listens at the socket.
    """
    base = socket_of(launch, environ)
    with locked(base.with_suffix(".lock"), "another run that starts the same fork server"):
        if not _hold(base):
            progress("fork server: import")
            _sweep()
            _start(base, launch, environ)
        if not Path(launch.model).is_dir():
            return base
        special = base.with_name(f"{base.stem}-{hashlib.sha256(launch.model.encode()).hexdigest()[:8]}.sock")
        if not _hold(special):
            progress("fork server: tokenizer")
            late = {name: environ[name] for name in READ_LATE if name in environ}
            request = {"op": "template", "socket": str(special), "model": launch.model, "env": late}
            try:
                pid = _request(base, {**request, "harmony": launch.entry.harmony}, [])["pid"]
                _await(special, lambda: psutil.pid_exists(pid) and _connects(base), base.with_suffix(".log"))
            except (ForkServerFailed, OSError) as error:
                raise TemplateEnded(str(error)) from error
        _held[special] = _held.pop(special)
        _release_oldest(held)
    return special


def dismiss_unused() -> bool:
    """Ends a fork server that no process uses, and waits for its end; returns False if there is none."""
    # models' templates come before their base template, with which they would end
    return any(map(_dismissed, sorted(_folder().glob("*.sock"), reverse=True)))


def end(template: TemplateInfo) -> None:
    """Ends a base template and the templates forked from it; removes their sockets and its JSON note."""
    with suppress(ProcessLookupError):
        os.kill(template.pid, signal.SIGTERM)
    sockets = list(template.socket.parent.glob(f"{template.socket.stem}*.sock"))
    deadline = time.monotonic() + 2 * DISMISS_LIMIT_S
    while time.monotonic() < deadline and (started(template.pid) or any(map(_connects, sockets))):
        time.sleep(0.02)
    _sweep()


def _dismissed(path: Path) -> bool:
    """Asks a template to end; returns whether it ended, and therefore released its memory."""
    try:
        with connect(path) as client:
            client.settimeout(DISMISS_LIMIT_S)
            client.sendall(b'{"op": "dismiss"}\n')
            answers = client.makefile("rb")
            ends: bool = json.loads(answers.readline() or b"{}").get("ends", False)
            if ends:
                answers.read()
            return ends
    except (OSError, ValueError):
        return False


def _sweep() -> None:
    """Removes the sockets of killed templates, at which no process listens, and the notes about them."""
    for path in (*_folder().glob("*.sock"), *_folder().glob("*.json")):
        base = path.stem.split("-")[0]
        # the process that has the lock may be about to replace the socket and the note
        lock = FileLock(path.with_name(f"{base}.lock"), timeout=0)
        with suppress(Timeout, OtherUserAnswers, OSError), lock:
            if not (_noted(path) if path.suffix == ".json" else _connects(path)):
                path.unlink(missing_ok=True)


def _noted(note: Path) -> TemplateInfo | None:
    """Reads a note about a template, which may not listen yet; None if its process has ended."""
    with suppress(FileNotFoundError, ValueError, KeyError):
        info = json.loads(note.read_text())
        if info["started"] and info["started"] == started(info["pid"]):
            return TemplateInfo(Path(info["socket"]), info["pid"], info["environment"])
    return None


def _release_oldest(held: int) -> None:
    """Releases the least recently used templates, which end unless another process holds them."""
    models = [path for path in _held if "-" in path.stem]
    for path in models[:-held]:
        with _held.pop(path) as client, suppress(OSError):
            client.sendall(LEAVE)


def _key(launch: Launch, environ: Mapping[str, str]) -> str:
    early = {
        name: value
        for name, value in _of_template(environ).items()
        if name.startswith(READ_EARLY) and name not in READ_LATE
    }
    imported = map(FORKING.with_name, ("supervisor.py", "blocks.py"))
    code = [path.read_text() for path in (*sorted(FORKING.glob("*.py")), *imported)]
    parts = [str(launch.environment.python), launch.environment.fingerprint(), early, code, inherited()]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def _of_template(environ: Mapping[str, str]) -> dict[str, str]:
    """A server's variables for its template: PYTHONPATH lacks the packages that only servers import."""
    return {**environ, PATH: without_overlays(environ[PATH])} if PATH in environ else {**environ}


def _start(path: Path, launch: Launch, environ: Mapping[str, str]) -> None:
    log = path.with_suffix(".log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(launch.environment.python), str(TEMPLATE), str(path), str(_linger_s()), str(os.getpid())],
            env={**_of_template(environ), "TMPDIR": str(path.parent)},
            cwd=path.parent,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    note = {"socket": str(path), "pid": process.pid, "started": started(process.pid)}
    note["environment"] = launch.environment.describe()
    path.with_suffix(".json").write_text(json.dumps(note))
    _await(path, lambda: process.poll() is None, log)


def _await(path: Path, alive: Callable[[], bool], log: Path) -> None:
    deadline = time.monotonic() + IMPORT_LIMIT_S
    while not _hold(path):
        if not alive() or time.monotonic() > deadline:
            last = log.read_text(errors="replace").strip().splitlines()[-1:] or ["its log is empty"]
            raise ForkServerFailed(f"the fork server did not start: {last[0]}", hint=f"read its log: {log}")
        time.sleep(0.02)


def _linger_s() -> float:
    """How many seconds a fork server stays alive when no process uses it."""
    return number(os.environ, LINGER, LINGER_S)


def _hold(path: Path) -> bool:
    """Keeps a connection open, so that the template lives as long as this process; False if there is none.

    With VLLM_HARNESS_LINGER_S=0 the template does not outlive its users, whichever process started it.
    """
    if path in _held and _open(_held[path]):
        return True
    try:
        client = connect(path)
    except OSError:
        return False
    with suppress(OSError):  # the template is ending; using it will raise an error
        client.sendall(HOLD if _linger_s() else HOLD + LEAVE)
    _held[path] = client
    return True


def _open(client: socket.socket) -> bool:
    """Whether the other end is still open; a template never sends first, so there is nothing to read."""
    try:
        return client.recv(1, socket.MSG_DONTWAIT | socket.MSG_PEEK) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _connects(path: Path) -> bool:
    """Whether a template listens at a path. Raises OSError if this process cannot find it out."""
    with suppress(ConnectionRefusedError, FileNotFoundError), connect(path):
        return True
    return False


def _request(path: Path, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    with connect(path) as client:
        client.settimeout(60)
        data = json.dumps(request).encode() + b"\n"
        sent = socket.send_fds(client, [data], descriptors)
        client.sendall(data[sent:])
        answer: dict[str, Any] = json.loads(client.makefile("rb").readline() or b"{}")
        if "pid" not in answer:
            raise OSError("the fork server closed the connection")
        return answer


def _folder() -> Path:
    """The folder for the sockets, logs and notes of this user's fork servers; private to the user."""
    return private_folder(state_dir() / "fork", STATE)

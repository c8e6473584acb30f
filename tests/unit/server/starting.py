"""Forks starters of a fork server, each with its own limit, from a process that imports the harness once.

Run as `python starting.py FOLDER`. For each line of standard input, the name of a limit or an empty line, it
forks a starter, which sets the limit, finds or starts the fork server, and has it fork a process. It prints a
line of JSON: the fork server's socket and process id, and the limits of the starter and of the forked
process; or the reason why the limit cannot be set here.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vllm_harness._configuration.model_entries import load_models
from vllm_harness._environments.spec import Environment
from vllm_harness._server import fork_server
from vllm_harness._server.launch import IN_SERVER, Launch
from vllm_harness._server.supervised import Supervised
from vllm_harness._server.supervisor import started

TEMPLATE = """
import sys
sys.path.insert(0, {folder!r})
import vllm_harness_template as template
template.import_all = template.apply_patches = lambda: None
template.main()
"""
"""The fork server without its imports."""

FIRST = """
import json, os, resource, signal
from pathlib import Path

def limits():
    own = Path("/proc/self")
    umask = [line for line in (own / "status").read_text().splitlines() if line.startswith("Umask")]
    return {
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "nice": os.getpriority(os.PRIO_PROCESS, 0),
        "umask": umask,
        "affinity": sorted(os.sched_getaffinity(0)),
        "oom": (own / "oom_score_adj").read_text(),
        "mounts": str((own / "ns/mnt").readlink()),
        "group": (own / "cgroup").read_text(),
        "hangup": signal.getsignal(signal.SIGHUP) == signal.SIG_IGN,
    }
"""
"""A Python file that the forked process runs first: it notes its limits, and ends."""
NOTES = """
with open(os.environ["NOTE"], "w") as note:
    json.dump(limits(), note)
raise SystemExit(0)
"""
CLONE_NEWNS = 0x20000
LIMITS: dict[str, Callable[[], object]] = {}


def limit(function: Callable[[], object]) -> Callable[[], object]:
    """Adds a limit under the name of its function."""
    LIMITS[function.__name__] = function
    return function


@limit
def nofile() -> None:
    """Allows 64 open files."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


@limit
def nice() -> None:
    """Lowers the priority."""
    os.nice(5)


@limit
def umask() -> None:
    """Hides new files from others."""
    os.umask(0o077)


@limit
def affinity() -> None:
    """Allows one core."""
    cores = os.sched_getaffinity(0)
    if len(cores) == 1:
        raise OSError("a second core")
    os.sched_setaffinity(0, {min(cores)})


@limit
def oom() -> None:
    """Is killed first when memory is short."""
    Path("/proc/self/oom_score_adj").write_text("500")


@limit
def mounts() -> None:
    """Has a mount name space of its own."""
    if ctypes.CDLL(None).unshare(CLONE_NEWNS):
        raise OSError("the right to make a mount name space")


@limit
def group() -> None:
    """Is in a memory control group of its own, whichever version this machine has."""
    lines = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    for _, controllers, path in sorted(lines, key=lambda line: line[1], reverse=True):
        top = Path("/sys/fs/cgroup", *["memory"] * ("memory" in controllers))
        if controllers in ("", "memory"):
            own = top / path.lstrip("/") / f"vllm-harness-{os.getppid()}"
            own.mkdir(exist_ok=True)
            (own / "cgroup.procs").write_text(str(os.getpid()))
            return
    raise OSError("control groups")


@limit
def hangup() -> None:
    """Ignores SIGHUP, as under nohup; servers do not get this."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


def main(folder: Path) -> None:
    """Forks a starter for each line."""
    fork_server.TEMPLATE = folder / "template.py"
    fork_server.TEMPLATE.write_text(TEMPLATE.format(folder=str(fork_server.FORKING)))
    (folder / "first.py").write_text(FIRST + NOTES)
    for line in sys.stdin:
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            with os.fdopen(writer, "w") as output:
                json.dump(answer(line.strip(), folder), output)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as answered:
            print(answered.read(), flush=True)
        os.waitpid(pid, 0)


def answer(name: str, folder: Path) -> dict[str, Any]:
    """What a starter with a limit gets."""
    try:
        LIMITS.get(name, lambda: None)()
    except OSError as error:
        return {"needs": f"needs {error.strerror or error}"}
    environment = Environment("release", Path(sys.executable), "3.12", "0.32.0", "cpu", None)
    launch = Launch(load_models().get("qwen3"), "scripted", environment, str(folder / "none"), ())
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(IN_SERVER)}
    path = fork_server.template(launch, environ, lambda _: None)
    own: dict[str, Any] = {}
    exec(FIRST, own)
    return {
        "socket": path.name,
        "pid": json.loads(path.with_suffix(".json").read_text())["pid"],
        "starter": own["limits"](),
        "forked": forked(path, environ, folder),
    }


def forked(path: Path, environ: dict[str, str], folder: Path) -> Any:
    """The limits of a process that a fork server forks."""
    note = Path(tempfile.mkdtemp(dir=folder), "note")
    config = {
        "owner": os.getpid(),
        "owner_started": started(os.getpid()),
        "server_id": note.parent.name,
        "earlier_blocks": [],
        "record": str(note.with_name("record")),
        "argv": ["python", "-m", "vllm.entrypoints.cli.main", "serve"],
        "env": {**environ, "NOTE": str(note)},
        "log": str(note.with_name("log")),
        "log_limit": 10000,
        "tmp": str(note.with_name("tmp")),
        "secrets": [],
        "grace_s": 0.0,
        "first": str(folder / "first.py"),
    }
    server = Supervised(config, lambda config: fork_server.spawn(config, path))
    server.pid()
    server._wait_for({"eof"}, 60)
    server.end()
    return json.loads(note.read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

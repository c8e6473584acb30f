"""Forks owners of servers from this process, which has already imported the harness.

Reads one JSON object per line from standard input, and prints the id of the process that it forks for each.
This process is a subreaper: an ancestor of all processes that the owners start, which it reaps.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from vllm_harness._server.records import sweep
from vllm_harness._server.remote import RemoteServer
from vllm_harness._server.supervisor import die_with_parent

PR_SET_CHILD_SUBREAPER = 36
WITH_WORKER = {"VLLM_ENABLE_V1_MULTIPROCESSING": "1"}
"""An environment variable that makes a stand-in's engine start a worker, as on several devices."""


def main(vllm: str) -> None:
    """Forks a process for each line of the input."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    die_with_parent(os.getppid())
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    above = os.getpid()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            os.setsid()
            die_with_parent(above)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            signal.signal(signal.SIGINT, signal.default_int_handler)
            own(json.loads(line), vllm)
            return
        print(pid, flush=True)


def own(request: dict[str, str], vllm: str) -> None:
    """Starts a server and keeps it running, or only removes leftovers, as every start does first."""
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.environ["TMPDIR"] = request["tmp"]
    tempfile.tempdir = None
    if request["do"] == "sweep":
        sweep()
        return
    with RemoteServer("qwen3", lane="scripted", vllm=vllm, env=WITH_WORKER) as server:
        server.script("words")
        server.client().responses.create(model=server.model, input="hi")
        half = Path(f"{request['serving']}.half")
        half.write_text(server.url_for("/health"))
        half.rename(request["serving"])
        while True:
            signal.pause()


if __name__ == "__main__":
    main(sys.argv[1])

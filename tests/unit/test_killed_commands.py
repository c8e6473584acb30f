"""Ends commands with signals: the processes that they started end, and no temporary folder stays.

Two short processes finish instead: git, which could leave lock files in a user's working tree if it were
killed, and `pip config list`, which a file starts that runs without the harness.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.interrupts import SIGNALS
from vllm_harness._machine.processes import killed_with_parent

END_S = 300
CHILD = """#!/bin/sh
echo $$ > {fifo}
exec sleep 1000
"""
QUICK = {("search", signal.SIGTERM), ("uv", signal.SIGINT), ("parser regression", signal.SIGHUP)}
"""The cases other than SIGKILL that run without --vllm-slow."""
PARENT = """
import sys, time
from pathlib import Path
from vllm_harness._environments.spec import Environment
from vllm_harness._terminal.status import quiet
child, folder = Path(sys.argv[1]), Path(sys.argv[2])
environment = Environment("installed", child, "3.12.0", "0.32.0", "cpu", None)
"""
INTERRUPTIBLE = """
from vllm_harness._machine import interrupts
interrupts.handle_signals()
try:
    exec({code!r})
except KeyboardInterrupt:
    interrupts.end(interrupts.exit_code(0))
"""
STARTERS = {
    "parser regression": """
from vllm_harness._regression.engines.in_process import lines_of
list(lines_of(environment, ("-c", ""), {}, limit_s=900))
""",
    "search": """
from vllm_harness._regression.engines.in_process import parse_session
with parse_session(environment, limit_s=900):
    time.sleep(900)
""",
    "run of an environment": "environment.run()",
    "probe": """
from vllm_harness._environments.installed import probe
probe(child)
""",
    "uv": """
from vllm_harness._environments import installer
installer.uv_path = lambda: child
installer.run_uv("pip", "install", progress=quiet)
""",
    "interpreter search": """
from vllm_harness._environments import release_making
from vllm_harness._environments.locks import lock_for
release_making.uv_path, release_making.minors = (lambda: child), (lambda: ["3.99"])
release_making.interpreter(lock_for("0.32.0", "cpu"))
""",
    "npm": """
from vllm_harness._environments import bringing
bringing.npm_command = lambda: [str(child)]
bringing.npm_archive("package@1.0.0", folder)
""",
    "upstream's objects": """
from vllm_harness.extras.upstream.vllm_process import VllmProcess
VllmProcess(environment, scripted=False).lookup("json").dumps
""",
    "upstream's unit tests": """
from vllm_harness.extras.upstream.unit_tests import run_unit_tests
list(run_unit_tests(environment, folder, []))
""",
    "mutants' suites": """
sys.executable = str(child)
from vllm_harness.extras.mutants.suites import Suites
Suites("0.32.0", ("qwen3",)).run("plugin", folder / "startup.py", {}, folder / "log")
""",
    "mutants' maker": """
sys.executable = str(child)
from vllm_harness.extras.mutants.parsers import mutants
mutants.install_into = lambda *_, **__: None
mutants._made(child, quiet)
""",
    "suite on a node": """
sys.executable = str(child)
from vllm_harness.extras.cluster.suites.on_node import run_suite
run_suite("cell", "tests/unit", [])
""",
    "wheel for nodes": """
sys.executable = str(child)
from vllm_harness.extras.cluster.shipping import make_wheel
make_wheel(folder)
""",
    "installer on a node": """
sys.executable = str(child)
from vllm_harness.extras.bundles.node_installer import _installed
list(_installed(folder, folder))
""",
    "bundle's installer": """
from vllm_harness.extras.bundles.install import _run
_run(child, environ={})
""",
    "site": """
sys.executable = str(child)
from vllm_harness.extras.site.build import _mkdocs
_mkdocs(folder, folder, 0)
""",
}

EXTRA = re.compile(r"from vllm_harness\.extras\.(\w+)")
CASES = [
    pytest.param(
        code,
        number,
        id=f"{name}-{number.name}",
        marks=[
            *(pytest.mark.extra(extra) for extra in EXTRA.findall(code)),
            *([] if number == signal.SIGKILL or (name, number) in QUICK else [pytest.mark.vllm_slow]),
        ],
    )
    for name, code in STARTERS.items()
    for number in (signal.SIGKILL, *SIGNALS)
]

pytestmark = pytest.mark.skipif(not killed_with_parent(), reason="needs setpriv (util-linux)")


@pytest.mark.timeout(2 * END_S + 60)
@pytest.mark.parametrize(("starter", "number"), CASES)
def test_a_command_that_a_signal_ends_leaves_nothing(
    starter: str, number: signal.Signals, tmp_path: Path
) -> None:
    child, fifo, folder, temporary = (tmp_path / name for name in ("child", "fifo", "folder", "temporary"))
    os.mkfifo(fifo)
    child.write_text(CHILD.format(fifo=fifo))
    child.chmod(0o755)
    folder.mkdir()
    temporary.mkdir()
    environ = {**os.environ, "TMPDIR": str(temporary), "VLLM_HARNESS_CACHE": str(tmp_path / "cache")}
    source = PARENT + INTERRUPTIBLE.format(code=starter)
    command = [sys.executable, "-c", source, str(child), str(folder)]
    with (tmp_path / "output").open("w+b") as output:
        parent = subprocess.Popen(command, env=environ, stdout=output, stderr=output)
        try:
            started = _pidfd_of_child(fifo, parent.pid)
            output.seek(0)
            assert started is not None, output.read().decode()
            parent.send_signal(number)
            code = parent.wait(END_S)
        finally:
            parent.kill()
            parent.wait()
        output.seek(0)
        assert code == (-number if number == signal.SIGKILL else 128 + number), output.read().decode()
    try:
        assert _readable(started), "the process outlived the command"
    finally:
        os.close(started)
    with temporary_folder(temporary) as new:
        assert list(temporary.iterdir()) == [new]


def _pidfd_of_child(fifo: Path, parent: int) -> int | None:
    """A descriptor that becomes readable when the child ends; None if the parent ends without a child."""
    reader = os.open(fifo, os.O_RDWR)  # does not wait for a writer
    ended = os.pidfd_open(parent)
    try:
        return os.pidfd_open(int(os.read(reader, 100))) if reader in _readable(reader, ended) else None
    finally:
        os.close(reader)
        os.close(ended)


def _readable(*descriptors: int) -> list[int]:
    return select.select(descriptors, [], [], END_S)[0]

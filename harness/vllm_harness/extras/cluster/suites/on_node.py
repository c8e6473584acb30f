"""A suite where it runs: pytest in a process of its own, and the records that it leaves."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._errors import HarnessError
from vllm_harness._files.paths import root_of_tests
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import AnyRecord, End, Header

RAN = (0, 1, 5)
"""Exit codes of pytest whose records tell all: passed, failed, and no test of this suite applies."""
SHOWN_LINES = 15
END_S = 15.0


class SuiteError(HarnessError):
    """Pytest ended before the suite had run."""


@dataclass(frozen=True)
class SuiteResult:
    """What came of a suite.

    Attributes:
        cell: its name.
        node: the machine on which it ran.
        records: what pytest kept, without the header and the end of its run.
    """

    cell: str
    node: str
    records: tuple[AnyRecord, ...]


def run_suite(cell: str, suite: str, options: Sequence[str]) -> SuiteResult:
    """Runs a suite, and waits for its end; an interrupt is passed on, so that its servers end.

    Args:
        cell: its name.
        suite: its folder in the checkout.
        options: of pytest.

    Raises:
        SuiteError: pytest ended otherwise than after its last test; with its last lines.
        UsageError: this machine has no suites.
    """
    root = root_of_tests(suite)
    with tempfile.TemporaryDirectory(prefix="vllm-harness-suite-") as folder:
        kept, output = Path(folder) / "run", Path(folder) / "output"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            f"--rootdir={root}",
            str(root / suite),
        ]
        command += [*options, f"--vllm-report={kept}", f"--basetemp={folder}/pytest"]
        with output.open("wb") as file:
            code = _run(command, root, file.fileno())
        if code not in RAN:
            last = "\n".join(output.read_text(errors="replace").splitlines()[-SHOWN_LINES:])
            raise SuiteError(f"{cell}: pytest ended with exit code {code}:\n{last}")
        found = [record for _, record in records(kept)] if any(kept.glob("*")) else []
    left = tuple(record for record in found if not isinstance(record, Header | End))
    return SuiteResult(cell, socket.gethostname(), left)


def _run(command: Sequence[str], root: Path, output: int) -> int:
    process = subprocess.Popen(
        [*killed_with_parent(), *command],  # its servers end with it
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
    )
    try:
        return process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        raise

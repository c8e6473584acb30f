"""Runs a suite on this machine, with pytest in a separate process, and reads the records that it writes."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vllm_harness._errors import HarnessError
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._runs.reading import records
from vllm_harness._runs.records import AnyRecord, End, Header
from vllm_harness.extras.cluster.tests_root import root_of_tests

RAN = (0, 1, 5)
"""Exit codes of pytest after which records are complete: tests passed, tests failed, no tests collected."""
SHOWN_LINES = 15
END_S = 15.0


class SuiteError(HarnessError):
    """Pytest ended before the suite had run."""


@dataclass(frozen=True)
class SuiteResult:
    """The result of a suite.

    Attributes:
        cell: the name of the cell.
        node: the name of the machine on which it ran.
        records: the records that pytest wrote, without the header and the end of its run.
    """

    cell: str
    node: str
    records: tuple[AnyRecord, ...]


def run_suite(cell: str, suite: str, options: Sequence[str]) -> SuiteResult:
    """Runs a suite and waits for its end; passes an interrupt on to pytest, so that its servers end.

    Args:
        cell: the name of the cell.
        suite: the folder of the suite in the checkout.
        options: options for pytest.

    Raises:
        SuiteError: pytest ended before its last test; the message contains its last lines of output.
        UsageError: the suite is not on this machine.
    """
    root = root_of_tests(suite)
    with temporary_folder() as folder:
        run, output = folder / "run", folder / "output"
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(root / suite), *options]
        command += [f"--rootdir={root}", f"--vllm-output={run}", f"--basetemp={folder}/pytest"]
        with output.open("wb") as file:
            code = _run(command, root, file.fileno())
        if code not in RAN:
            last = "\n".join(output.read_text(errors="replace").splitlines()[-SHOWN_LINES:])
            raise SuiteError(f"{cell}: pytest ended with exit code {code}:\n{last}")
        every = [record for _, record in records(run)] if any(run.glob("*")) else []
    of_tests = tuple(record for record in every if not isinstance(record, Header | End))
    return SuiteResult(cell, socket.gethostname(), of_tests)


def _run(command: Sequence[str], root: Path, output: int) -> int:
    process = subprocess.Popen(
        [*killed_with_parent(), *command],  # its servers end with pytest
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

"""Runs the suites in a separate process, on servers that each run a Python file before they serve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._machine.tasks import interrupted_by
from vllm_harness._server.fork_server import FIRST
from vllm_harness._server.records import running, sweep
from vllm_harness.extras.cluster.tests_root import root_of_tests

SUITES = ("tests/behaviours", "tests/harmony", "tests/standard")
"""The paths of the suites that judge mutants, relative to the checkout."""
TESTS = "tests"
TEST_LIMIT_S = 240
"""The seconds after which a test counts as failed."""
COMPLETED = {0, 1, 2, 5}
"""pytest's exit codes after which the outcomes count: all passed, some failed, interrupted, no test ran."""


@dataclass(frozen=True)
class Suites:
    """A choice of tests, with the vLLM and the models to run them on.

    Attributes:
        vllm: the spec of the server environment, such as `0.32.0`.
        models: the names of entries in models.yaml.
        paths: the paths of the tests, relative to the checkout.
    """

    vllm: str
    models: tuple[str, ...]
    paths: tuple[str, ...] = SUITES

    def run(
        self,
        plugin: str,
        startup_file: Path,
        variables: Mapping[str, str],
        log: Path,
        limit_s: float | None = None,
    ) -> int | None:
        """Runs the tests in a pytest process.

        Args:
            plugin: the module of the pytest plugin to load.
            startup_file: the Python file that each server runs before it serves.
            variables: environment variables for the process.
            log: the file for the process's output; the tests' temporary files go to the same folder.
            limit_s: the seconds after which the process is killed.

        Returns:
            pytest's exit code; None if the process was killed after `limit_s`.

        Raises:
            KeyboardInterrupt: another parallel task has failed or was interrupted.
        """
        root = root_of_tests(TESTS)
        arguments = self._arguments(plugin, root, log.parent)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*killed_with_parent(), sys.executable, "-m", "pytest", *arguments],
                env={**os.environ, **variables, FIRST: str(startup_file)},
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                with interrupted_by(partial(_kill, process)):
                    return process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            except KeyboardInterrupt:
                _kill(process)
                _await_end_of(process.pid)
                raise
            finally:
                _kill(process)
                process.wait()

    def _arguments(self, plugin: str, root: Path, folder: Path) -> Sequence[str]:
        return [
            *("-q", "-p", plugin, "-p", "no:cacheprovider", "-p", "no:randomly"),
            *(f"--timeout={TEST_LIMIT_S}", f"--rootdir={root}", f"--basetemp={folder}/pytest"),
            *("--vllm-lane=scripted", f"--vllm={self.vllm}"),
            *(f"--vllm-model={model}" for model in self.models),
            *self.paths,
        ]


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kills a process and its whole session; the servers that it started end with it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _await_end_of(owner: int, wait_s: float = 30.0) -> None:
    """Waits until the servers of a killed process have ended, and removes what they left behind."""
    deadline = time.monotonic() + wait_s
    while any(record.owner == owner for record in running()) and time.monotonic() < deadline:
        time.sleep(0.05)
    sweep()

"""Runs the suites in a process of their own, on servers that each run a file before they serve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vllm_harness._files.paths import root_of_tests
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._machine.tasks import interrupted_by
from vllm_harness._server.fork_server import FIRST
from vllm_harness._server.records import await_end_of

SUITES = ("tests/behaviours", "tests/harmony", "tests/standard")
"""The suites that judge, relative to the checkout."""
TESTS = "tests"
TEST_LIMIT_S = 240
"""Seconds after which a test counts as failed."""
ENDED = {0, 1, 2, 5}
"""Exit codes of pytest after which its outcomes count: all passed, some failed, ended early, none ran."""


@dataclass(frozen=True)
class Suites:
    """Which tests run, on what.

    Attributes:
        vllm: the spec of the environment.
        models: entries of models.yaml.
        paths: of tests, relative to the checkout.
    """

    vllm: str
    models: tuple[str, ...]
    paths: tuple[str, ...] = SUITES

    def run(
        self, plugin: str, first: Path, variables: Mapping[str, str], log: Path, limit_s: float | None = None
    ) -> int | None:
        """Runs them to the end, and gives pytest's exit code; None where the time was over.

        Args:
            plugin: module of the pytest plugin that watches.
            first: the file that each server runs before it serves.
            variables: for the process.
            log: gets its output; tests have their files in its folder.

        Raises:
            KeyboardInterrupt: the tasks side by side that this is one of are to end.
        """
        root = root_of_tests(TESTS)
        arguments = self._arguments(plugin, root, log.parent)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*killed_with_parent(), sys.executable, "-m", "pytest", *arguments],
                env={**os.environ, **variables, FIRST: str(first)},
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
                await_end_of(process.pid)
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
    """Kills it with all of its session; its servers end with it."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)

"""Runs the suites in a process of their own, on servers that each run a file before they serve."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vllm_harness.files.paths import root_of_tests
from vllm_harness.machine.processes import killed_with_parent
from vllm_harness.server.fork_server import FIRST

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
            log: gets its output.
        """
        root = root_of_tests(TESTS)
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*killed_with_parent(), sys.executable, "-m", "pytest", *self._arguments(plugin, root)],
                env={**os.environ, **variables, FIRST: str(first)},
                cwd=root,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                return process.wait(limit_s)
            except subprocess.TimeoutExpired:
                return None
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _arguments(self, plugin: str, root: Path) -> Sequence[str]:
        return [
            *("-q", "-p", plugin, "-p", "no:cacheprovider", "-p", "no:randomly"),
            *(f"--timeout={TEST_LIMIT_S}", f"--rootdir={root}"),
            *("--vllm-lane=scripted", f"--vllm-spec={self.vllm}"),
            *(f"--vllm-model={model}" for model in self.models),
            *self.paths,
        ]

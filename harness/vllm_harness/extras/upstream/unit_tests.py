"""Runs upstream's tests that start no server in the server's own Python, which has vLLM."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from vllm_harness._environments.spec import Environment
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness.extras.upstream.results import TestResult

_WORKER = Path(__file__).parent / "in_vllm" / "vllm_harness_unit_tests.py"
_SETTINGS = (
    *("-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"),
    *("-o", "asyncio_default_fixture_loop_scope=function", "-q", "--continue-on-collection-errors"),
)
_COMPLETED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


def run_unit_tests(
    environment: Environment, root: Path, arguments: Sequence[str]
) -> Iterator[tuple[str, str, TestResult]]:
    """Runs tests in the environment's Python, with the same pytest as this process.

    Args:
        environment: the environment in which vLLM is installed.
        root: upstream's root, which contains the folder `tests`.
        arguments: pytest options, and test files relative to the root.

    Yields:
        The file, name and result of each test; the name is empty if the result is about the whole file.
    """
    packages = Path(pytest.__file__).parents[1]
    with temporary_folder() as folder:
        environ = environment.environ() | {
            "HF_HUB_OFFLINE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(folder),
        }
        results, output = folder / "results.jsonl", folder / "output"
        with output.open("wb") as file:
            worker = (environment.python, _WORKER, packages, results)
            ended = subprocess.run(
                [*killed_with_parent(), *map(os.fspath, worker), *_SETTINGS, *arguments],
                cwd=root,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
            ).returncode
        lines = results.read_text().splitlines() if results.exists() else []
        for line in map(json.loads, lines):
            yield line.pop("file"), line.pop("test"), TestResult(server=False, **line)
        if ended not in _COMPLETED:
            last = output.read_text(errors="replace")[-1000:]
            why = f"pytest in {environment.describe()} ended with {ended}: {last}"
            yield "tests", "", TestResult("failed", why, server=False)

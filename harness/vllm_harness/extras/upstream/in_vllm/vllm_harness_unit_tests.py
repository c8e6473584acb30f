"""Runs upstream's tests that start no server with pytest, in an interpreter that has vLLM.

usage: vllm_harness_unit_tests.py PACKAGES RESULTS PYTEST-ARGUMENTS...
PACKAGES is a folder that contains pytest and is searched after the interpreter's own packages; RESULTS is the
file to write, with a line for each test that contains a JSON object.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

ROOT_CONFTEST = "tests.conftest"
UTILS = "tests.utils"
SERVERS = ("RemoteOpenAIServer", "RemoteLaunchRenderServer", "RemoteVLLMServer")
HUB = re.compile(
    r"LocalEntryNotFoundError|OfflineModeIsEnabled|HF_HUB_OFFLINE|Hub is not reachable|huggingface\.co"
)


class StandIns:
    """Finds replacements for upstream's root conftest and for its helpers that start servers."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The spec for a module that is replaced; None for any other module."""
        if name not in (ROOT_CONFTEST, UTILS) or not path:
            return None
        file = Path(next(iter(path)), f"{name.rpartition('.')[2]}.py")
        spec = ModuleSpec(name, self, origin=str(file))  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Lets Python create the module object."""

    def exec_module(self, module: Any) -> None:
        """Defines replacements of the helpers, which skip the tests that use them."""
        if module.__name__ == UTILS:
            root = Path(module.__file__).parent.parent
            module.__dict__.update(
                dict.fromkeys(SERVERS, Unavailable), VLLM_PATH=root, __getattr__=unavailable
            )


class Unavailable:
    """Replaces a helper that starts a server; skips the test that uses it."""

    def __init__(self, *_: Any, **__: Any) -> None:
        importlib.import_module("pytest").skip("starts a server")


def unavailable(name: str) -> Any:
    """Skips a file that imports a helper without a replacement."""
    if name.startswith("__"):
        raise AttributeError(name)
    importlib.import_module("pytest").skip(f"tests.utils.{name} has no stand-in", allow_module_level=True)


class UnitTestRecorder:
    """A pytest plugin that writes the outcome of each test."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def pytest_load_initial_conftests(self) -> None:
        """Installs the import hook before upstream's conftests are imported, and before pytest's own hook."""
        sys.meta_path.insert(0, StandIns())

    def pytest_collectreport(self, report: Any) -> None:
        """Writes the outcome of a file that cannot be imported or is skipped as a whole."""
        if report.outcome != "passed" and report.nodeid.endswith(".py"):
            self._write(report.nodeid, report)

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Writes the outcome of a test: of its call, or of a setup or teardown that did not pass."""
        if report.when == "call" or report.outcome != "passed":
            self._write(report.nodeid, report)

    def _write(self, nodeid: str, report: Any) -> None:
        file, _, test = nodeid.partition("::")
        outcome, why = settled(report)
        line = {
            "file": file,
            "test": test,
            "outcome": outcome,
            "why": why,
            "details": report.longreprtext if outcome == "failed" else "",
            "seconds": round(getattr(report, "duration", 0.0), 2),
        }
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()


def settled(report: Any) -> tuple[str, str]:
    """The outcome in a report, and the reason for it; the reason is empty if the test passed."""
    text = report.longreprtext
    if report.outcome == "skipped":
        expected = getattr(report, "wasxfail", None)
        if expected is not None:
            return "skipped", f"upstream expects it to fail: {expected}"
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else text
        return "skipped", str(reason).removeprefix("Skipped: ")
    if report.outcome == "failed":
        if HUB.search(text):
            return "skipped", "needs a model from the hub"
        lines = [line[1:].strip() for line in text.splitlines() if line.startswith("E  ")]
        return "failed", next(iter(lines), text[-200:])
    return "passed", ""


def main(packages: str, results: str, *arguments: str) -> int:
    """Runs pytest and returns its exit code."""
    sys.path.append(packages)
    pytest = importlib.import_module("pytest")
    with Path(results).open("w", encoding="utf-8") as file:
        return int(pytest.main([*arguments], plugins=[UnitTestRecorder(file)]))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

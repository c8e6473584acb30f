"""The part of a review that runs the tests of the suites that a change to the serving code can affect."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from vllm_harness._errors import InfrastructureError
from vllm_harness._files.paths import checkout
from vllm_harness._machine.processes import killed_with_parent
from vllm_harness._runs.records import CaseRecord, Outcome
from vllm_harness._runs.report.run import read_run
from vllm_harness.cli.run import RunOptions
from vllm_harness.extras.review.change import Change
from vllm_harness.extras.review.choice import touched_tests
from vllm_harness.extras.review.coverage import coverage_file, read_coverage
from vllm_harness.extras.review.parsers import PartResult
from vllm_harness.extras.review.scope import Scope
from vllm_harness.extras.review.touched import ignoring, untouched_apis
from vllm_harness.extras.review.verdict import Message, Named, ShownFailure

NAME = "tests"
SUITES = ("tests/behaviours", "tests/standard")
MODEL = "qwen3"
_NO_TESTS_RAN = 5
"""The exit code of pytest if it collects no test; 0 and 1 are those of a run with and without failures."""
_JUDGED = (Outcome.PASSED, Outcome.KNOWN, Outcome.FINDING)


def run_tests(change: Change, scope: Scope, folder: Path, say: Callable[[str], None]) -> PartResult:
    """Runs the tests that run the changed lines, or the suites of the affected APIs.

    Tests that fail run again by themselves, and then on the code before the change.

    Raises:
        InfrastructureError: pytest does not run.
    """
    started = time.monotonic()
    root = checkout()
    if root is None:
        reason = "the tests are in a checkout of vllm-harness, and this one is installed"
        return PartResult("", not_run=(Named(what="tests of the serving code", reason=reason),))
    chosen, remark = _chosen(root, change, scope, say)
    if not chosen:
        return PartResult("", not_run=(Named(what="tests", reason="no test runs the changed lines"),))
    after = _results(root, chosen, change.spec, folder / "tests")
    failed = _failed(after)
    again = _results(root, _ids(root, failed), change.spec, folder / "tests-again") if failed else {}
    regressed = _failed(again)
    before = {}
    if regressed:
        vllm = change.before.vllm(say)
        before = _results(root, _ids(root, regressed), vllm.spec, folder / "tests-before")
    wrong_before = {*_failed(before)}
    return PartResult(
        NAME,
        judged=sum(case.outcome in _JUDGED for case in after.values()),
        failures=tuple(
            _failure(case, change.spec) for name, case in regressed.items() if name not in wrong_before
        ),
        flaky=tuple(name for name in failed if name not in regressed),
        not_run=(remark,) if remark else (),
        seconds=time.monotonic() - started,
    )


def _chosen(
    root: Path, change: Change, scope: Scope, say: Callable[[str], None]
) -> tuple[list[str], Named | None]:
    """The arguments of pytest that choose the tests, and what is left out."""
    coverage = read_coverage(coverage_file(change.before.vllm(say).environment))
    tests = (
        touched_tests(change.before.package, change.package, change.files, coverage)
        if len(coverage)
        else None
    )
    if tests is not None:
        return [str(root / test.test) for test in tests], None
    names = ", ".join(api.name for api in scope.apis)
    remark = Named(
        what="a choice of tests by the lines that they run",
        reason="there is no map of lines for this vLLM (`vllm-harness mutants serving --measure` makes one), "
        f"so the suites of {names} ran on {MODEL}",
    )
    return [*(str(root / suite) for suite in SUITES), *ignoring(untouched_apis(scope.apis))], remark


def _results(root: Path, tests: Sequence[str], spec: str, folder: Path) -> dict[str, CaseRecord]:
    """Runs tests, and returns their records by id."""
    options = [f"--vllm={spec}", f"--vllm-model={MODEL}", "--vllm-lane=scripted", f"--vllm-output={folder}"]
    options.append(f"--vllm-at-once={RunOptions.at_once}")
    command = [
        *killed_with_parent(),
        sys.executable,
        "-m",
        "pytest",
        f"--rootdir={root}",
        "-q",
        *tests,
        *options,
    ]
    with (folder.parent / f"{folder.name}.log").open("w") as log:
        process = subprocess.run(command, cwd=root, stdout=log, stderr=subprocess.STDOUT, check=False)
    if process.returncode not in (0, 1, _NO_TESTS_RAN):
        raise InfrastructureError(
            f"the tests of the suites did not run: pytest ended with {process.returncode}",
            hint=f"read {log.name}",
        )
    cases = () if process.returncode == _NO_TESTS_RAN else read_run(folder).cases
    return {case.id: case for case in cases}


def _failed(cases: dict[str, CaseRecord]) -> dict[str, CaseRecord]:
    return {name: case for name, case in cases.items() if case.outcome is Outcome.FINDING}


def _ids(root: Path, names: Collection[str]) -> list[str]:
    return [str(root / name) for name in names]


def _failure(case: CaseRecord, spec: str) -> ShownFailure:
    """Describes a test that fails after the change and passes before it."""
    file, _, test = case.id.partition("::")
    reason = next((each.text for each in case.findings if each.counts), case.reason)
    options = f"--vllm {spec} --vllm-model {MODEL} --vllm-lane scripted"
    return ShownFailure(
        family=file,
        group=case.target,
        case=test,
        delivery="",
        mismatch="test_failed",
        title=re.sub(r"\s+", " ", case.reason)[:200] or "a test fails",
        severity="contract",
        actual=Message(error=reason),
        expected=Message(rule="what the test asserts"),
        command=f"scripts/test '{case.id}' {options}",
    )

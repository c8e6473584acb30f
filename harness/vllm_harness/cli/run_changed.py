"""`vllm-harness run --changed`: the tests of the suites that a change of vLLM's code can touch."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import typer

from vllm_harness._errors import UsageError
from vllm_harness._regression.changed.change import Change
from vllm_harness._regression.changed.choice import touched_tests
from vllm_harness._regression.changed.coverage import TestLines, coverage_file, read_coverage
from vllm_harness._regression.changed.touched import APIS, touched_apis
from vllm_harness._terminal.tables import plain_console

console = plain_console()


def arguments_of_change(
    root: Path, suites: Sequence[str], spec: str, revision: str, models: Collection[str]
) -> list[str]:
    """What pytest is to run: the tests by the lines that they ran, where these were measured; else by API.

    Args:
        root: the checkout of the harness.
        suites: folders of tests, relative to it.
        spec: of the working tree.
        revision: that it is compared with, where it is a checkout; empty: HEAD.
        models: those that were asked for; empty: all that were measured.

    Raises:
        UsageError: there is no working tree.
        Exit: nothing has changed, or no test runs it.
    """
    if not spec:
        raise UsageError("--changed needs a working tree", hint="add --vllm tree:/path/to/vllm@0.32.0")
    change = Change.of(spec, revision, console.print)
    console.print(str(change))
    if not change.files:
        raise typer.Exit
    tests = _tests_by_lines(change, models)
    if tests is None:
        return [*(str(root / suite) for suite in suites), *_ignored_by_api(change)]
    console.print(f"{len(tests)} tests run these lines")
    if not tests:
        raise typer.Exit
    measured = dict.fromkeys(_model(test) for test in tests)
    wanted = [] if models else [f"--vllm-model={name}" for name in measured]
    return [*(str(root / test.test) for test in tests), "--vllm-lane=scripted", *wanted]


def _tests_by_lines(change: Change, models: Collection[str]) -> list[TestLines] | None:
    """The tests that ran the lines before the change; None where that is not known."""
    before = change.before.vllm(console.print).environment
    coverage = read_coverage(coverage_file(before))
    if not len(coverage):
        console.print(
            "the lines that the tests run are not measured: `vllm-harness mutants serving --measure`"
        )
        return None
    tests = touched_tests(change.before.package, change.package, change.files, coverage)
    if tests is None or not models:
        return tests
    return [test for test in tests if _model(test) in models]


def _model(test: TestLines) -> str:
    return test.target.partition("-")[2]


def _ignored_by_api(change: Change) -> list[str]:
    """Options that leave out the test files that only test APIs which the change cannot have touched."""
    touched = touched_apis(change.package, change.files)
    untouched = [api for api in APIS if api not in touched]
    if untouched:
        names = ", ".join(api.name for api in untouched)
        console.print(f"left out are the tests that are only of {names}")
    return [f"--ignore-glob=*/{api.tests}" for api in untouched]

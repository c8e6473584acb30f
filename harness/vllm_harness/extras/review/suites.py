"""`vllm-harness run --changed`: the tests of the suites that a change to vLLM's code can affect."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

import typer

from vllm_harness._errors import UsageError
from vllm_harness._terminal.tables import plain_console
from vllm_harness.extras.review.change import Change
from vllm_harness.extras.review.choice import touched_tests
from vllm_harness.extras.review.coverage import TestLines, coverage_file, read_coverage
from vllm_harness.extras.review.touched import ignoring, touched_apis, untouched_apis

console = plain_console()


def arguments_of_change(
    root: Path, suites: Sequence[str], spec: str, revision: str, models: Collection[str]
) -> list[str]:
    """The arguments with which pytest runs the tests that a change can affect.

    The tests are chosen by the lines that they run, if these were measured, and by API otherwise.

    Args:
        root: the checkout of the harness.
        suites: folders of tests, relative to `root`.
        spec: the spec of the working tree.
        revision: the revision of a checkout to compare with; empty for HEAD.
        models: the requested model entries; empty for all that were measured.

    Raises:
        UsageError: no working tree is given.
        Exit: nothing has changed, or no test runs the changed lines.
    """
    if not spec:
        raise UsageError("--changed needs a working tree", hint="add --vllm tree:/path/to/vllm@0.32.0")
    change = Change.of_tree(spec, revision, console.print)
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
    """The tests that ran the changed lines; None if the lines of the tests were not measured."""
    before = change.before.vllm(console.print).environment
    coverage = read_coverage(coverage_file(before))
    if not len(coverage):
        console.print(
            "the lines that the tests run were not measured: `vllm-harness mutants serving --measure`"
        )
        return None
    tests = touched_tests(change.before.package, change.package, change.files, coverage)
    if tests is None or not models:
        return tests
    return [test for test in tests if _model(test) in models]


def _model(test: TestLines) -> str:
    return test.target.partition("-")[2]


def _ignored_by_api(change: Change) -> list[str]:
    """The pytest options that leave out the test files of APIs that the change cannot affect."""
    untouched = untouched_apis(touched_apis(change.package, change.files))
    if untouched:
        names = ", ".join(api.name for api in untouched)
        console.print(f"the tests of {names} alone are left out")
    return ignoring(untouched)

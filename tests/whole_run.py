"""Makes a whole run of the suites fail if known deviations no longer occur."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from vllm_harness._defects.registry import known_deviations
from vllm_harness._protocol import Finding, KnownDeviation, apply_known
from vllm_harness._testing.session import RUN, TARGET, PytestRun
from vllm_harness.cli.run import SUITES

NARROWED = pytest.StashKey[bool]()
_NARROWING = ("ignore_glob", "lf", "vllm_replay_tokens", "vllm_server_arg")


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Records that tests were deselected, so the run is not complete."""
    for item in items:
        if TARGET in item.stash:
            item.config.stash[NARROWED] = True


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Finds known deviations that no longer occur, before the plugin stores the results."""
    run = session.config.stash.get(RUN, None)
    if run is None or not run.results or not is_whole(session):
        return
    if find_gone(run) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def find_gone(run: PytestRun) -> bool:
    """Finds known deviations that did not occur in a whole run, and returns whether there are any.

    Only targets on the scripted lane, where answers are deterministic, count, and only if no test failed. A
    deviation that never occurred there is fixed, or no test shows it.
    """
    for target in run.choice.targets:
        result = run.results.get(target.id)
        if result and target.lane == "scripted" and not result.counts()["failed"]:
            version = run.version(target)
            known = known_deviations(target.entry.name, version, run.defects)
            result.gone = gone(known, version, result.findings.values())
    return any(result.gone for result in run.results.values())


def is_whole(session: pytest.Session) -> bool:
    """Whether a run on the Python front end ran all suites completely, without interruption."""
    config, option = session.config, session.config.option
    return (
        not config.stash.get(NARROWED, False)
        and not any(getattr(option, name, None) for name in _NARROWING)
        and not (session.shouldstop or session.shouldfail)
        and option.vllm_frontend == "python"
        and has_every_suite(config.rootpath, config.args, option.ignore or (), config.invocation_params.dir)
    )


def has_every_suite(root: Path, arguments: Iterable[str], ignored: Iterable[str], start: Path) -> bool:
    """Whether the arguments of pytest select all suites completely.

    Args:
        root: pytest's root folder.
        arguments: the files, folders or node ids passed to pytest.
        ignored: files or folders that pytest ignores.
        start: the folder to which these paths are relative.
    """
    folders = [(start / argument).resolve() for argument in arguments if "::" not in argument]
    suites = [(root / suite).resolve() for suite in SUITES]
    left_out = [(start / path).resolve() for path in ignored]
    return all(
        suite.is_dir()
        and any(suite.is_relative_to(folder) for folder in folders)
        and not any(suite.is_relative_to(path) or path.is_relative_to(suite) for path in left_out)
        for suite in suites
    )


def gone(known: Sequence[KnownDeviation], version: str, seen: Iterable[Finding]) -> list[str]:
    """Returns a sentence for each deviation that did not occur in a whole run (rule KD101).

    Args:
        known: the known deviations of the model entry.
        version: the vLLM version of the server.
        seen: the findings of the run, at least one for each code and path.
    """
    every = {deviation.reference for deviation in known}
    findings = apply_known(seen, known, version, exercised=every)
    return [finding.text for finding in findings if finding.code == "KD101"]

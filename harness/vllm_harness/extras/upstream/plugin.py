"""The pytest plugin that runs upstream's test files on the harness's servers, and records their results."""

from __future__ import annotations

import ast
import inspect
import os
import re
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, cast

import pytest
from _pytest.runner import runtestprotocol

from vllm_harness._configuration.model_entries import Lane
from vllm_harness._environments.resolve import resolve, spec_of
from vllm_harness._errors import HarnessError
from vllm_harness._server.demo_tools import demo_tools
from vllm_harness._server.records import run_folder
from vllm_harness._terminal.tables import one_line, plain_console
from vllm_harness._testing.results import reason_of
from vllm_harness.extras.upstream import imports
from vllm_harness.extras.upstream.books import book_of, load_books
from vllm_harness.extras.upstream.faulty_answers import KINDS, read_kinds, wrong_answers
from vllm_harness.extras.upstream.release_tests import release_of
from vllm_harness.extras.upstream.results import RESULTS, show
from vllm_harness.extras.upstream.retries import count_retries
from vllm_harness.extras.upstream.run import (
    FaultyAnswerTrial,
    UpstreamRun,
    name_of,
    path_in_upstream,
)
from vllm_harness.extras.upstream.servers import UpstreamServers
from vllm_harness.extras.upstream.tests_utils import CLIENT_S, RemoteVLLMServer
from vllm_harness.extras.upstream.vllm_process import VllmProcess

RUN = pytest.StashKey[UpstreamRun]()
FINDER = pytest.StashKey[imports.StandInFinder]()
_SERVERS = ("RemoteOpenAIServer", "RemoteLaunchRenderServer", "RemoteVLLMServer")
_BY_NAME = "getfixturevalue"
_TRIAL_S = (
    30  # a wrong answer has few tokens, and a test that waits for more would wait for its whole timeout
)
_USES_SERVER = re.compile(rf"{'|'.join(_SERVERS)}|def test_\w+\([^)]*\b(?:client|server)\b")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the plugin's options; the harness's main plugin adds those for lane, environment and front end."""
    group = parser.getgroup("vllm-harness", "real vLLM servers")
    group.addoption(
        "--upstream-wrong-answers",
        metavar="KINDS",
        default="",
        help="run each of upstream's tests that passed again with wrong answers, with which it should fail: "
        f"{','.join(KINDS)}, or all",
    )
    group.addoption(
        "--upstream-no-unit-tests",
        action="store_true",
        help="omit upstream's tests that start no server, which run in the server's own Python",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Sets up the run, and installs the import hook before upstream's conftests are imported."""
    option = early_config.known_args_namespace
    try:
        load_books()
        kinds = read_kinds(option.upstream_wrong_answers)
        spec = spec_of(option.vllm, option.vllm_python)
        environment = resolve(spec, device=option.vllm_device, create=True)
        lane: Lane = option.vllm_lane or "scripted"
        os.environ.pop("VLLM_API_KEY", None)  # vLLM's tests send a key of their own, or none
        servers = UpstreamServers(environment, lane, option.vllm_frontend)
        sys.path.append(
            str(demo_tools(environment))
        )  # upstream's tests check whether gpt_oss can be imported
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error
    vllm_process = VllmProcess(environment, scripted=lane == "scripted")
    RemoteVLLMServer.servers = servers
    early_config.stash[RUN] = UpstreamRun(servers, vllm_process, kinds)
    early_config.stash[FINDER] = imports.install(vllm_process)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Makes upstream's tool_use tests also run with large models, as with their option `--extended`."""
    if config.stash[RUN].scripted and hasattr(config.option, "extended"):
        config.option.extended = True


def pytest_unconfigure(config: pytest.Config) -> None:
    """Removes the import hook."""
    if finder := config.stash.get(FINDER, None):
        sys.meta_path.remove(finder)


class _UnitTests(pytest.File):
    """A file that imports vLLM or torch and starts no server; this process does not import it."""

    def collect(self) -> list[pytest.Item]:
        """Returns no tests, since the file's tests run in the server's own Python."""
        return []


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(
    file_path: Path, parent: pytest.Collector
) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Replaces files that import vLLM or torch and start no server; the server's own Python runs those."""
    if file_path.suffix != ".py" or not file_path.name.startswith("test_"):
        return (yield)
    text = file_path.read_text()
    if not _imports_vllm(file_path) or _USES_SERVER.search(text):
        return (yield)
    config = parent.config
    arguments = [config.invocation_params.dir / arg.partition("::")[0] for arg in config.args]
    if any(file_path.is_relative_to(path) for path in arguments):
        number = len(re.findall(r"^ *(?:async )?def test_", text, re.MULTILINE))
        config.stash[RUN].unit_files[path_in_upstream(file_path)] = number
    yield
    return [_UnitTests.from_parent(parent, path=file_path)]


@cache
def _imports_vllm(path: Path) -> bool:
    """Whether a file imports vLLM or torch at its top level."""
    for node in ast.parse(path.read_text()).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        if any(name.partition(".")[0] in imports.REMOTE_PACKAGES for name in names):
            return True
    return False


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skips tests that cannot run, with reasons, and makes the tests' helpers count their retries."""
    run = config.stash[RUN]
    unit = [item for item in items if not _starts_server(item) and _imports_vllm(item.path)]
    for item in unit:
        items.remove(item)
        run.unit_files[path_in_upstream(item.path)] = run.unit_files.get(path_in_upstream(item.path), 0) + 1
    config.hook.pytest_deselected(items=unit)
    for item in items:
        result, book, test = run.result(item), book_of(item.path), name_of(item)
        result.server, result.retried_for = _starts_server(item), book.retried_for(test)
        result.any_answer = book.any_answer_for(test)
        if run.scripted and book.runs_anyway(test):
            item.own_markers = [mark for mark in item.own_markers if mark.name != "skip"]
        if reason := _why_not(item, run.scripted):
            item.add_marker(pytest.mark.skip(reason=reason))
        if isinstance(item, pytest.Function):
            count_retries(item.module, run.add_retries)


def _why_not(item: pytest.Item, scripted: bool) -> str | None:
    missing = [name for name in _fixtures(item) if name not in _definitions(item)]
    if missing:
        return f"upstream's root conftest has the fixture {missing[0]}, which computes with torch"
    if scripted and (reason := book_of(item.path).skip(name_of(item))):
        return reason
    return None


def _fixtures(item: pytest.Item) -> list[str]:
    parameters = getattr(item, "callspec", None)
    given = {"request", *(parameters.params if parameters else ())}
    return [name for name in getattr(item, "fixturenames", []) if name not in given]


def _definitions(item: pytest.Item) -> dict[str, Any]:
    information = getattr(item, "_fixtureinfo", None)
    return information.name2fixturedefs if information else {}


def _starts_server(item: pytest.Item) -> bool:
    """Whether a test, or one of its fixtures, refers to one of upstream's server classes.

    A function that calls `getfixturevalue` counts as if it did.
    """
    functions = [getattr(item, "function", None)]
    functions += [fixtures[-1].func for fixtures in _definitions(item).values()]
    return any(
        {*_SERVERS, _BY_NAME} & _names_in(inspect.unwrap(function)) for function in functions if function
    )


def _names_in(function: Any) -> set[str]:
    code = getattr(function, "__code__", None)
    return set(code.co_names) if code else set()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Makes the servers answer from the test's book."""
    with item.config.stash[RUN].scripts(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Records a test's result; a failure that shows its known defect becomes an expected failure."""
    report = yield
    run = item.config.stash[RUN]
    if run.trial is not None:
        run.trial.void |= call.excinfo is not None and "Timeout" in call.excinfo.typename
        return report
    result = run.current
    raised = call.excinfo.value if call.excinfo else None
    failure = f"{type(raised).__name__}: {raised}"
    if report.failed and raised and (defect := run.known_defect(item.path, name_of(item), failure)):
        report.outcome, report.wasxfail = "skipped", defect
        result.outcome, result.why = "defect", defect
    elif report.failed:
        result.outcome, result.why, result.details = "failed", reason_of(report), report.longreprtext
    elif report.skipped:
        expected = getattr(report, "wasxfail", None)
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        result.outcome = "failed" if expected is not None else "skipped"
        result.why = one_line((expected or reason).removeprefix("Skipped: "))
    elif report.when == "call":
        result.outcome, result.seconds = "passed", round(call.duration, 2)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
    """Runs a passed test again with wrong answers, and writes its result."""
    run = item.config.stash[RUN]
    run.current, run.used_rules, started = run.result(item), set(), time.time()
    done = yield
    if run.wrong_answers and run.scripted and run.current.outcome == "passed" and run.current.asked:
        _try_wrong_answers(run, item)
        item.session._setupstate.teardown_exact(nextitem)
    run.write(path_in_upstream(item.path), name_of(item), started)
    return done


@dataclass(frozen=True)
class _Sibling:
    """Takes the role of the next test while a test runs again, so that only the test's own fixtures end."""

    of: pytest.Item

    def listchain(self) -> list[Any]:
        """The test's collectors, as if the next test had the same ones."""
        return self.of.listchain()[:-1]


def _try_wrong_answers(run: UpstreamRun, item: pytest.Item) -> None:
    rules, result = book_of(item.path).rules(name_of(item)), run.current
    retries = result.retries
    for place, rule in enumerate(rules):
        if rule.name in run.used_rules:
            trials = (
                (kind, FaultyAnswerTrial((*rules[:place], *wrong, *rules[place + 1 :])))
                for kind, wrong in wrong_answers(rule, run.wrong_answers)
            )
            result.wrong[rule.name] = next((kind for kind, trial in trials if _fails(run, item, trial)), None)
    run.trial, result.retries = None, retries


def _fails(run: UpstreamRun, item: pytest.Item, trial: FaultyAnswerTrial) -> bool:
    """Whether a test's own code fails if the servers answer with a trial's rules."""
    run.trial, after = trial, cast("Any", _Sibling(item))
    item._initrequest()  # type: ignore[attr-defined]
    RemoteVLLMServer.client_s = _TRIAL_S
    reports = runtestprotocol(item, log=False, nextitem=after)
    RemoteVLLMServer.client_s = CLIENT_S
    calls = [report for report in reports if report.when == "call"]
    return not trial.void and any(report.failed or hasattr(report, "wasxfail") for report in calls)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """Creates the run's folder. Raises pytest.UsageError if that fails."""
    try:
        session.config.stash[RUN].release = release_of(session.config.rootpath)
        session.config.stash[RUN].start(run_folder())
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stops the servers, runs the tests that need no server, and writes the results."""
    run, option = session.config.stash[RUN], session.config.option
    run.servers.stop()
    if option.upstream_no_unit_tests or option.collectonly or session.shouldstop or session.shouldfail:
        run.results.left_out = run.unit_files
    elif run.unit_files:
        failed = run.unit_tests(session.config)
        if failed or session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED if failed else pytest.ExitCode.OK
    outdated = any(result.outdated for result in run.results.tried().values())
    if outdated and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    run.finish(run_folder(), int(session.exitstatus))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    """Prints the table of results by test file below pytest's own summary."""
    yield
    writer = terminalreporter._tw
    terminalreporter.write_sep("=", "upstream's tests")
    show(plain_console(writer._file, width=writer.fullwidth), config.stash[RUN].results)
    terminalreporter.write_line(f"results: {run_folder() / RESULTS}")

"""The hooks of a run with targets, registered when the first test that uses a server is collected."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Generator, Iterator
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pytest

from vllm_harness._configuration.targets import Target
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._files.folders import explained
from vllm_harness._files.paths import state_dir
from vllm_harness._runs.folder import RunWriter
from vllm_harness._server.leases.waiting import reclaim_with
from vllm_harness._server.records import run_folder
from vllm_harness._terminal import notices
from vllm_harness._terminal.tables import plain_console
from vllm_harness._testing import progress, with_xdist
from vllm_harness._testing.attempts import attempts_of, limit
from vllm_harness._testing.cases import CASE_OF, CaseWriter
from vllm_harness._testing.defects import DEFECT_OF, defects_of, marked
from vllm_harness._testing.exchanges import EXCHANGES, FAILED, ExchangeWriter
from vllm_harness._testing.fixtures import SEED_FIXTURE, TARGET_FIXTURE
from vllm_harness._testing.parallel import ParallelLoop
from vllm_harness._testing.quality import write_reference
from vllm_harness._testing.recorder import TARGET_OF, TRIAL_OF, is_expected, plain_traceback, settle
from vllm_harness._testing.report import REPORT, write_report
from vllm_harness._testing.results import MISSED, write
from vllm_harness._testing.run_folder import WRITER
from vllm_harness._testing.session import (
    BODY,
    NO_RUN,
    RUN,
    SEED,
    SHOWN,
    TARGET,
    case_of,
    is_for,
    is_repeated,
    servers_of,
    the_run,
)
from vllm_harness._testing.summary import show
from vllm_harness._testing.tokens import replayable
from vllm_harness._testing.traffic import TrafficRecorder


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Runs a test once for each of its targets, and for each seed of the target."""
    if NO_RUN in metafunc.config.stash:
        return
    try:
        run = the_run(metafunc.config)
    except HarnessError as error:
        if hasattr(metafunc.config, "workerinput"):  # pytest-xdist breaks on an error after collecting
            raise pytest.UsageError(str(error)) from error
        metafunc.config.stash[NO_RUN] = error  # raised once, after collecting
        return
    test = metafunc.definition
    seeds = [(target, run.seeds(target, test)) for target in run.choice.targets if _is_for(test, target)]
    pairs = [(target, seed) for target, own in seeds for seed in own]
    ids = [target.id if len(own) == 1 else f"{target.id}-seed{seed}" for target, own in seeds for seed in own]
    metafunc.parametrize((TARGET_FIXTURE, SEED_FIXTURE), pairs, ids=ids, indirect=True, scope="session")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Stores a test's target and the number of its attempts; marks tests on CUDA."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    target = parameters.get(TARGET_FIXTURE)
    if isinstance(target, Target):
        run = the_run(item.config)
        item.stash[TARGET], item.stash[SEED] = target, parameters[SEED_FIXTURE]
        repeats = len(run.seeds(target, item))
        limit(item, attempts_of(target, repeats, scripted=run.is_scripted(target)))
        if run.planned is not None and run.planned.device == "cuda":
            item.add_marker("vllm_gpu")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests without a target or a recording, and sorts the others so that each server starts once.

    Raises pytest.UsageError if the options do not make a valid run.
    """
    if error := config.stash.get(NO_RUN, None):
        raise pytest.UsageError(str(error)) from error
    left_out = [item for item in items if not _runs(item)]
    if left_out:
        items[:] = [item for item in items if _runs(item)]
        config.hook.pytest_deselected(items=left_out)
    if RUN in config.stash:
        _check_marks(config, items)
        order = [target.id for target in config.stash[RUN].choice.targets]
        items.sort(key=lambda item: order.index(item.stash[TARGET].id) if TARGET in item.stash else -1)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Names the targets of the collected tests."""
    targets = dict.fromkeys(item.stash[TARGET].id for item in items if TARGET in item.stash)
    return [f"vllm-harness: {', '.join(targets)}"] if targets and config.option.verbose >= 0 else []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Registers the writers of the run folder, the progress display, and the loop that uses forks."""
    if RUN not in session.config.stash:
        return
    try:
        if not session.config.option.collectonly:
            state_dir()
    except HarnessError as error:
        raise pytest.UsageError(str(error)) from error
    if writer := session.config.stash.get(WRITER, None):
        _write_records(session.config, writer)
    progress.follow(session, lambda item: item.stash[TARGET].id if TARGET in item.stash else "")
    if forks := session.config.option.vllm_at_once:
        import_module("openai")  # once, not in each fork
        session.config.pluginmanager.register(ParallelLoop(forks))


def _write_records(config: pytest.Config, writer: RunWriter) -> None:
    """Registers the plugins that write the run's cases and exchanges."""
    run = config.stash[RUN]
    config.pluginmanager.register(CaseWriter(writer, run.choice.targets, run.result))
    url = urlsplit(config.option.vllm_server_url or "")
    traffic = TrafficRecorder((url.hostname,) if url.hostname else ())
    traffic.install()
    config.add_cleanup(traffic.uninstall)
    config.stash[EXCHANGES] = ExchangeWriter(writer, traffic, config.option.vllm_report_all)


def _check_marks(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Rejects unknown defect ids before any test runs."""
    defects = config.stash[RUN].defects
    try:
        for item in items:
            deque(marked(item, defects), maxlen=0)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def _is_for(item: pytest.Item, target: Target) -> bool:
    """Whether a test, or a parameter set with marks, is for a target; replays run tests of the live lane."""
    return is_for(item, target, "live" if item.config.option.vllm_replay_tokens else target.lane)


def _runs(item: pytest.Item) -> bool:
    """Whether a test runs: it has a target and, in a replay, a recording, or it uses no server."""
    if TARGET not in item.stash:
        uses_server = TARGET_FIXTURE in getattr(item, "fixturenames", ())
        return not (uses_server or item.config.option.vllm_replay_tokens)
    return _is_for(item, item.stash[TARGET]) and (
        not item.config.option.vllm_replay_tokens or replayable(item)
    )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """Shows notices on the terminal despite capturing; stops idle servers for runs that wait for memory."""

    def show(text: str) -> None:
        with progress.uncaptured(session.config):
            print(f"\nvllm-harness: {text}", file=sys.stderr, flush=True)

    def give_back() -> bool:
        return RUN in session.config.stash and session.config.stash[RUN].servers.give_back()

    with notices.shown_by(show), reclaim_with(give_back):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Reserves memory for a test's servers while the run uses none, before the test's time is measured."""
    if TARGET not in item.stash:
        return (yield)
    with the_run(item.config).servers.reserved(item.stash[TARGET], servers_of(item)):
        return (yield)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Sets the outcome of a report on a target's test, and attributes for the other plugins."""
    if TARGET not in item.stash:
        yield
        return
    run, target = the_run(item.config), item.stash[TARGET]
    repeated = is_repeated(item)
    known = defects_of(item, run.version(target), target.entry.name, run.defects)
    raised = call.excinfo.value if call.excinfo else None
    with plain_traceback(item.config, is_expected(call, known)):
        outcome: Any = yield
    report: pytest.TestReport = outcome.get_result()
    settle(report, raised, known, run.defects, run.expected_skips(target), repeated)
    setattr(report, TARGET_OF, target.id)
    setattr(report, TRIAL_OF, (case_of(item), item.stash[SEED]) if repeated else None)
    if report.failed:
        item.stash[FAILED] = True
    if report.when == "call":
        shown = getattr(report, DEFECT_OF, None)
        item.stash[BODY] = "defect" if shown else report.outcome
        if shown:
            item.stash[SHOWN] = run.defects[shown[0]]
    if report.when == "teardown" and (exchanges := item.config.stash.get(EXCHANGES, None)):
        setattr(report, CASE_OF, exchanges.end(item))


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """Shows a repeated test with unexpected content as missed."""
    return (MISSED, "m", "MISSED") if report.outcome == MISSED else None


@pytest.hookimpl(tryfirst=True)
def pytest_internalerror(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Ends a run that the machine stops, such as by a full disk, with a message instead of a traceback."""
    _exit_if_of_machine(excinfo.value)


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_sessionfinish")
def pytest_sessionfinish_explained() -> Generator[None, Any, Any]:
    """Does the same at the end of a run."""
    try:
        return (yield)
    except (HarnessError, OSError) as raised:
        _exit_if_of_machine(raised)
        raise


def _exit_if_of_machine(raised: BaseException) -> None:
    if (error := explained(raised)) and error.of_machine:
        pytest.exit(str(error), error.exit_code)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the results next to the logs."""
    if RUN not in session.config.stash or not session.config.stash[RUN].results:
        return
    run = session.config.stash[RUN]
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput[with_xdist.RESULTS] = str(run_folder())
    write(run.results, run_folder() / "results.json")
    write_report(run.results, run.defects, run_folder() / REPORT)
    if path := run.config.option.vllm_write_quality_reference:
        for name, result in run.results.items():
            write_reference(path, {"target": name, "vllm": result.vllm}, result.tally)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    """Prints the results of the targets below pytest's own summary."""
    yield
    if RUN not in config.stash or not config.stash[RUN].results:
        return
    run, writer = config.stash[RUN], terminalreporter._tw
    terminalreporter.write_sep("=", "vLLM servers")
    console = plain_console(writer._file, width=writer.fullwidth)
    listed = not config.option.no_summary and {"f", "E"} <= {*terminalreporter.reportchars}
    show(console, run.choice.targets, run.results, run_folder() / REPORT, run.defects, listed=listed)

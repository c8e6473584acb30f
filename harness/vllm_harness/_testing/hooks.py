"""The hooks of a run that has targets: registered when the first test that uses a server is collected."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Generator, Iterator
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import pytest

from vllm_harness._configuration.targets import Target
from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._runs.folder import RunWriter
from vllm_harness._server.leases.waiting import reclaim_with
from vllm_harness._server.records import run_folder
from vllm_harness._terminal import notices
from vllm_harness._terminal.tables import plain_console
from vllm_harness._testing import progress, with_xdist
from vllm_harness._testing.at_once import AtOnce
from vllm_harness._testing.attempts import attempts_of, limit
from vllm_harness._testing.capture import uncaptured
from vllm_harness._testing.cases import CASE_OF, CaseWriter
from vllm_harness._testing.defects import DEFECT_OF, defects_of, marked
from vllm_harness._testing.exchanges import FAILED, KEEPER, ExchangeKeeper
from vllm_harness._testing.fixtures import SEED_FIXTURE, TARGET_FIXTURE
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
from vllm_harness._testing.watch import Watch


def parametrize(metafunc: pytest.Metafunc) -> None:
    """Runs a test once for every target it is for, and for every seed of it."""
    if NO_RUN in metafunc.config.stash:
        return
    try:
        run = the_run(metafunc.config)
    except HarnessError as error:
        if hasattr(metafunc.config, "workerinput"):  # of pytest-xdist, which breaks where collecting ends so
            raise pytest.UsageError(str(error)) from error
        metafunc.config.stash[NO_RUN] = error  # told once, after collecting
        return
    test = metafunc.definition
    seeds = [(target, run.seeds(target, test)) for target in run.choice.targets if _is_for(test, target)]
    pairs = [(target, seed) for target, of in seeds for seed in of]
    ids = [target.id if len(of) == 1 else f"{target.id}-seed{seed}" for target, of in seeds for seed in of]
    metafunc.parametrize((TARGET_FIXTURE, SEED_FIXTURE), pairs, ids=ids, indirect=True, scope="session")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Gives a test its target and the number of its attempts; marks tests on CUDA."""
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
    """Leaves out what has no target or no recording; sorts the tests so that each server starts once.

    Raises pytest.UsageError where there is no run with these options.
    """
    if error := config.stash.get(NO_RUN, None):
        raise pytest.UsageError(str(error)) from error
    _leave_out(items, lambda item: TARGET_FIXTURE in _fixtures(item) and TARGET not in item.stash)
    _leave_out(items, lambda item: TARGET in item.stash and not _is_for(item, item.stash[TARGET]))
    if config.option.vllm_replay_tokens:
        _leave_out(items, lambda item: not replayable(item))
    if RUN in config.stash:
        _check_marks(config, items)
        order = [target.id for target in config.stash[RUN].choice.targets]
        items.sort(key=lambda item: order.index(item.stash[TARGET].id) if TARGET in item.stash else -1)


def pytest_report_collectionfinish(config: pytest.Config, items: list[pytest.Item]) -> list[str]:
    """Names the targets of the collected tests."""
    targets = dict.fromkeys(item.stash[TARGET].id for item in items if TARGET in item.stash)
    return [f"vllm-harness: {', '.join(targets)}"] if targets and config.option.verbose >= 0 else []


def pytest_collection_finish(session: pytest.Session) -> None:
    """Shows how far a run with targets is, where the output is no terminal; has forks share its servers."""
    if RUN not in session.config.stash:
        return
    if writer := session.config.stash.get(WRITER, None):
        _keep(session.config, writer)
    progress.follow(session, lambda item: item.stash[TARGET].id if TARGET in item.stash else "")
    if forks := session.config.option.vllm_at_once:
        import_module("openai")  # once, not in each fork
        session.config.pluginmanager.register(AtOnce(forks))


def _keep(config: pytest.Config, writer: RunWriter) -> None:
    """Has the run's cases and exchanges written."""
    run = config.stash[RUN]
    config.pluginmanager.register(CaseWriter(writer, run.choice.targets, run.result))
    url = urlsplit(config.option.vllm_server_url or "")
    watch = Watch((url.hostname,) if url.hostname else ())
    watch.install()
    config.add_cleanup(watch.uninstall)
    config.stash[KEEPER] = ExchangeKeeper(writer, watch, config.option.vllm_report_all)


def _check_marks(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuses the id of a defect that there is not, before anything runs."""
    defects = config.stash[RUN].defects
    try:
        for item in items:
            deque(marked(item, defects), maxlen=0)
    except UsageError as error:
        raise pytest.UsageError(str(error)) from error


def _is_for(item: pytest.Item, target: Target) -> bool:
    """Whether a test, or one case of it by marks of its own, is for a target; a replay is of a live run."""
    return is_for(item, target, "live" if item.config.option.vllm_replay_tokens else target.lane)


def _leave_out(items: list[pytest.Item], unwanted: Callable[[pytest.Item], bool]) -> None:
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        (left_out if unwanted(item) else kept).append(item)
    if left_out:
        items[:] = kept
        left_out[0].config.hook.pytest_deselected(items=left_out)


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """Shows what is waited for, whatever is captured; offers the run's idle servers to runs that wait."""

    def show(text: str) -> None:
        with uncaptured(session.config):
            print(f"\nvllm-harness: {text}", file=sys.stderr, flush=True)

    def give_back() -> bool:
        return RUN in session.config.stash and session.config.stash[RUN].servers.give_back()

    with notices.shown_by(show), reclaim_with(give_back):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Has memory set aside for a test's servers while none of the run's is in use, before its time counts."""
    if TARGET not in item.stash:
        return (yield)
    with the_run(item.config).servers.reserved(item.stash[TARGET], servers_of(item)):
        return (yield)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Settles what a report of a target's test comes to."""
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
    if report.when == "teardown" and (keeper := item.config.stash.get(KEEPER, None)):
        setattr(report, CASE_OF, keeper.settle(item))


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """How a repeated test whose model answered otherwise is shown."""
    return (MISSED, "m", "MISSED") if report.outcome == MISSED else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keeps the results beside the logs."""
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
    """What became of the targets, below pytest's own summary."""
    yield
    if RUN not in config.stash or not config.stash[RUN].results:
        return
    run, writer = config.stash[RUN], terminalreporter._tw
    terminalreporter.write_sep("=", "vLLM servers")
    console = plain_console(writer._file, width=writer.fullwidth)
    listed = not config.option.no_summary and {"f", "E"} <= {*terminalreporter.reportchars}
    show(console, run.choice.targets, run.results, run_folder() / REPORT, run.defects, listed=listed)

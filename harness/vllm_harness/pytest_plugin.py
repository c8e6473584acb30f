"""The pytest plugin: real vLLM servers as fixtures, one set of tests for every lane and model entry."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from vllm_harness.configuration.targets import Target
from vllm_harness.endpoint import tls
from vllm_harness.scripted.book import Script, ScriptBook
from vllm_harness.server.leases.idle import offered
from vllm_harness.server.records import run_folder
from vllm_harness.server.remote import RemoteServer
from vllm_harness.terminal import notices
from vllm_harness.terminal.tables import plain_console
from vllm_harness.testing import options, progress, tokens
from vllm_harness.testing.at_once import AtOnce
from vllm_harness.testing.attempts import attempts_of, limit
from vllm_harness.testing.checks import Checker
from vllm_harness.testing.cuda import tell_missing_gpu
from vllm_harness.testing.defects import defect_of
from vllm_harness.testing.quality import Observed, observe, write_reference
from vllm_harness.testing.recorder import TARGET_OF, TRIAL_OF, settle
from vllm_harness.testing.repeats import sampled
from vllm_harness.testing.report import REPORT, write_report
from vllm_harness.testing.results import MISSED, write
from vllm_harness.testing.servers import make_ready, reserved, serve, uncaptured
from vllm_harness.testing.session import (
    BODY,
    REFUSED,
    RUN,
    SEED,
    TARGET,
    Server,
    case_anywhere,
    case_of,
    is_for,
    needed_by,
    result_of,
    target_of,
    the_run,
)
from vllm_harness.testing.skips import SLOW, coded
from vllm_harness.testing.summary import show
from vllm_harness.testing.wire import Tap

Check = Callable[..., None]
StreamCheck = Check


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    options.add(parser.getgroup("vllm-harness", "real vLLM servers"))


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    for marker in options.MARKERS:
        config.addinivalue_line("markers", marker)
    if config.option.vllm_at_once:
        config.pluginmanager.register(AtOnce(config.option.vllm_at_once))


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Names what a run was asked for."""
    option = config.option
    asked = {
        "model": ", ".join(option.vllm_model),
        "lane": option.vllm_lane,
        "vllm": option.vllm_spec,
        "server": option.vllm_server_url,
    }
    return [
        f"vllm-harness: {', '.join(f'{k} {v}' for k, v in asked.items() if v) or 'all this machine can run'}"
    ]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that uses a server once for every target it is for, and for every seed of it."""
    if "_target_server" not in metafunc.fixturenames:
        return
    run = the_run(metafunc.config)
    test = metafunc.definition
    seeds = [(target, run.seeds(target, test)) for target in run.choice.targets if _is_for(test, target)]
    pairs = [(target, seed) for target, of in seeds for seed in of]
    ids = [target.id if len(of) == 1 else f"{target.id}-seed{seed}" for target, of in seeds for seed in of]
    metafunc.parametrize(("_target_server", "_seed"), pairs, ids=ids, indirect=True, scope="session")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Tells a test its target and how often it may be tried; marks tests on CUDA."""
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    target = parameters.get("_target_server")
    if isinstance(target, Target):
        run = the_run(item.config)
        item.stash[TARGET], item.stash[SEED] = target, parameters["_seed"]
        limit(item, attempts_of(target, len(run.seeds(target, item))))
        if run.environment is not None and run.environment.device == "cuda":
            item.add_marker("vllm_gpu")


def _is_for(item: pytest.Item, target: Target) -> bool:
    """Whether a test, or one case of it by marks of its own, is for a target; a replay is of a live run."""
    return is_for(item, target, "live" if item.config.option.vllm_replay_tokens else target.lane)


def _is_repeated(item: pytest.Item) -> bool:
    return len(the_run(item.config).seeds(item.stash[TARGET], item)) > 1


def pytest_deselected(items: list[pytest.Item]) -> None:
    """Notes that a run is not whole."""
    for item in items:
        if TARGET in item.stash:
            the_run(item.config).narrowed = True


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what has no target, is slow or unrecorded; starts servers once; says why no GPU is used."""
    _leave_out(items, lambda item: "_target_server" in _fixtures(item) and TARGET not in item.stash)
    _leave_out(items, lambda item: TARGET in item.stash and not _is_for(item, item.stash[TARGET]))
    if config.option.vllm_replay_tokens:
        _leave_out(items, lambda item: not _replayable(item))
    if not config.option.vllm_slow:
        for item in items:
            if item.get_closest_marker("vllm_slow"):
                item.add_marker(pytest.mark.skip(reason=coded(SLOW, "run with --vllm-slow")))
    if RUN in config.stash:
        order = [target.id for target in config.stash[RUN].choice.targets]
        items.sort(key=lambda item: order.index(item.stash[TARGET].id) if TARGET in item.stash else -1)
    tell_missing_gpu(config, items, "vllm_gpu")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Shows how far the run is, where it has targets and nobody watches a terminal."""
    if RUN in session.config.stash:
        progress.follow(session, lambda item: item.stash[TARGET].id if TARGET in item.stash else "")


def _leave_out(items: list[pytest.Item], unwanted: Callable[[pytest.Item], bool]) -> None:
    if left_out := [item for item in items if unwanted(item)]:
        items[:] = [item for item in items if not unwanted(item)]
        left_out[0].config.hook.pytest_deselected(items=left_out)


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def _replayable(item: pytest.Item) -> bool:
    path = _recording(item) if TARGET in item.stash else None
    records = tokens.read(path) if path is not None and path.exists() else []
    return bool(records) and all(record.sayable for record in records)


def _recording(item: pytest.Item) -> Path | None:
    """The recording to replay."""
    folder, target = item.config.option.vllm_replay_tokens, item.stash[TARGET]
    return folder and tokens.file_in(folder / f"live-{target.entry.name}", item.nodeid, target.id)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Iterator[None]:
    """Shows who is waited for, whatever is captured; offers the run's idle servers to whoever would wait."""

    def show(text: str) -> None:
        with uncaptured(session.config):
            print(f"\nvllm-harness: {text}", file=sys.stderr, flush=True)

    def give_back() -> bool:
        return RUN in session.config.stash and session.config.stash[RUN].pool.give_back()

    with notices.shown_by(show), offered(give_back):
        yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Has memory set aside for a test's servers while none of the run's is in use, before its time counts."""
    if TARGET not in item.stash:
        return (yield)
    with reserved(the_run(item.config), item):
        return (yield)


@pytest.fixture(scope="session")
def _target_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    yield from serve(the_run(request.config), request.param)


@pytest.fixture(scope="session")
def _seed(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def _reservation(request: pytest.FixtureRequest) -> None:
    """Stands for the memory that was set aside for the test. Raises what was in the way."""
    if refused := request.node.stash.get(REFUSED, None):
        raise refused


@pytest.fixture
def vllm_server(
    _target_server: Server, _seed: int, _reservation: None, request: pytest.FixtureRequest
) -> Iterator[Server]:
    """A ready server of the target; one that died in an earlier test is started anew, which is counted."""
    server, item = _target_server, request.node
    make_ready(the_run(request.config), target_of(item), server, needed_by(item))
    kept = request.config.option.vllm_record_tokens
    records = isinstance(server, RemoteServer) and bool(kept or request.config.option.vllm_replay_tokens)
    if records:
        tokens.begin(server.endpoint)
    yield server
    if isinstance(server, RemoteServer):
        server.check()
    if records:
        _settle_tokens(tokens.taken(server.endpoint), item)


def _settle_tokens(taken: list[tokens.Record], item: pytest.Item) -> None:
    target = item.stash[TARGET]
    if kept := item.config.option.vllm_record_tokens:
        tokens.write(taken, tokens.file_in(kept / target.id, item.nodeid, target.id))
    if (replayed := _recording(item)) and (differ := tokens.differences(tokens.read(replayed), taken)):
        pytest.fail("the replay differs from the live run:\n" + "\n".join(differ), pytrace=False)


class ScriptWriter:
    """What a test scripts; on the other lanes the model says what it likes, and nothing is written.

    Attributes:
        exact: whether the model says exactly what is scripted, so that content can be compared.
    """

    def __init__(self, book: ScriptBook | None) -> None:
        self._book = book
        self.exact = book is not None

    def __call__(self, *args: Any, **options: Any) -> Script | None:
        """Adds a script; see `vllm_harness.scripted.book.ScriptBook.script`."""
        return self._book.script(*args, **options) if self._book else None


@pytest.fixture
def _book(vllm_server: Server, request: pytest.FixtureRequest) -> Iterator[ScriptBook | None]:
    if not isinstance(vllm_server, RemoteServer) or vllm_server.lane != "scripted":
        yield None
        return
    book = ScriptBook(vllm_server.endpoint, vllm_server.entry)
    replayed = _recording(request.node)
    if replayed:
        tokens.say_again(tokens.read(replayed), book)
    yield book
    if vllm_server.alive():
        if not replayed and request.node.stash.get(BODY, None) in {"passed", "failed"}:
            book.verify()
        book.close()


@pytest.fixture
def script(_book: ScriptBook | None, request: pytest.FixtureRequest) -> ScriptWriter:
    """Scripts this test's answers; at its end every script must have been used and followed."""
    return ScriptWriter(None if request.config.option.vllm_replay_tokens else _book)


@pytest.fixture
def _tap(vllm_server: Server, _seed: int, request: pytest.FixtureRequest) -> Iterator[Tap]:
    """Watches for tool calls where nothing is scripted; with --vllm-repeat sets temperature and seed."""
    repeated, observed = _is_repeated(request.node), list[Observed]()

    def seen(body: dict[str, Any], status: int, answer: bytes) -> None:
        if one := observe(body, status, answer):
            observed.append(one)

    yield Tap((lambda body: sampled(body, _seed)) if repeated else dict, seen)
    result_of(request.node).tally.add(case_anywhere(request.node), observed)


@pytest.fixture
def openai_client(vllm_server: Server, _book: ScriptBook | None, _tap: Tap) -> Iterator[OpenAI]:
    """A sync openai client for the server, answered from this test's scripts; it never retries by itself."""
    if _book:
        client = _book.client()
    else:
        client = vllm_server.client(http_client=DefaultHttpxClient(event_hooks=_tap.hooks(), verify=tls()))
    with client:
        yield client


@pytest.fixture
async def async_openai_client(
    vllm_server: Server, _book: ScriptBook | None, _tap: Tap
) -> AsyncIterator[AsyncOpenAI]:
    """An async openai client for the server, answered from this test's scripts."""
    if _book:
        client = _book.async_client()
    else:
        http_client = DefaultAsyncHttpxClient(event_hooks=_tap.async_hooks(), verify=tls())
        client = vllm_server.async_client(http_client=http_client)
    async with client:
        yield client


@pytest.fixture
def _checker(vllm_server: Server, request: pytest.FixtureRequest) -> Iterator[Checker]:
    exact = vllm_server.lane == "scripted" and not request.config.option.vllm_replay_tokens
    checker = Checker(vllm_server.known_deviations, vllm_server.vllm_version, exact)
    yield checker
    result_of(request.node).add(checker.findings)


def _called(name: str, checker: Checker, item: pytest.Item) -> None:
    if item.stash.get(BODY, None) == "passed" and name not in checker.called:
        pytest.fail(f"the test asked for {name} and never called it", pytrace=False)


@pytest.fixture
def check_stream(_checker: Checker, request: pytest.FixtureRequest) -> Iterator[Check]:
    """Validates a whole stream; fails on every finding that is not a known deviation of this entry."""
    yield _checker.stream
    _called("check_stream", _checker, request.node)


@pytest.fixture
def check_body(_checker: Checker, request: pytest.FixtureRequest) -> Iterator[Check]:
    """Validates a body, an error body included, in the same way."""
    yield _checker.body
    _called("check_body", _checker, request.node)


@pytest.fixture
def check_same(_checker: Checker, request: pytest.FixtureRequest) -> Iterator[Check]:
    """Compares a stream with the non-streaming answer to the same request: `check_same(events, body)`."""
    yield _checker.same
    _called("check_same", _checker, request.node)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Settles what a report of a target's test comes to."""
    outcome: Any = yield
    if TARGET not in item.stash:
        return
    report: pytest.TestReport = outcome.get_result()
    run, target = the_run(item.config), item.stash[TARGET]
    repeated = _is_repeated(item)
    defect = defect_of(item, run.version(target), target.entry.name)
    raised = call.excinfo.value if call.excinfo else None
    settle(report, raised, defect, run.expected_skips(target), repeated)
    setattr(report, TARGET_OF, target.id)
    setattr(report, TRIAL_OF, (case_of(item), item.stash[SEED]) if repeated else None)
    if report.when == "call":
        item.stash[BODY] = "defect" if hasattr(report, "wasxfail") else report.outcome


def pytest_report_teststatus(report: Any) -> tuple[str, str, str] | None:
    """How a repeated test whose model said otherwise is shown."""
    return (MISSED, "m", "MISSED") if report.outcome == MISSED else None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Looks for known deviations that have gone, and keeps the results beside the logs."""
    if RUN not in session.config.stash or not session.config.stash[RUN].results:
        return
    run = session.config.stash[RUN]
    if run.find_gone(session) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    write(run.results, run_folder() / "results.json")
    write_report(run.results, run_folder() / REPORT)
    if path := run.config.option.vllm_write_quality_reference:
        for name, result in run.results.items():
            write_reference(path, {"target": name, "vllm": result.vllm}, result.tally)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> Iterator[None]:
    """What became of the targets, below all that pytest itself has to say."""
    yield
    if RUN not in config.stash or not config.stash[RUN].results:
        return
    run, writer = config.stash[RUN], terminalreporter._tw
    terminalreporter.write_sep("=", "vLLM servers")
    console = plain_console(writer._file, width=writer.fullwidth)
    listed = not config.option.no_summary and {"f", "E"} <= {*terminalreporter.reportchars}
    show(console, run.choice.targets, run.results, run_folder() / REPORT, listed=listed)

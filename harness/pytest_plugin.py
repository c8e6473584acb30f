"""The pytest plugin: real vLLM servers as fixtures, one set of tests for every lane and model entry."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI
from rich.console import Console

from harness.endpoint import API_PATHS, attach
from harness.environments.resolve import resolve
from harness.environments.spec import Environment
from harness.errors import HarnessError, UsageError
from harness.gpus import gpus, visible_gpus
from harness.registry import load_registry
from harness.scripted.book import Book, Script
from harness.server.attached import AttachedServer
from harness.server.progress import ConsoleProgress
from harness.server.records import run_folder
from harness.server.remote import RemoteServer
from harness.suite import tokens
from harness.suite.checks import Checker, protocol_known
from harness.suite.defects import defect_of
from harness.suite.recorder import TARGET_OF, Recorder, settle
from harness.suite.results import TargetResult, show, write
from harness.suite.skips import NOT_SERVED, SLOW, coded, skip
from harness.targets import Choice, Machine, RunLane, Target, choose

MARKERS = (
    "gpu: the server runs on CUDA (set by the plugin)",
    "scripted: only on the scripted lane",
    "live: only on the live lane",
    "harmony: only for model entries that speak Harmony (gpt-oss)",
    "standard: only for model entries that do not speak Harmony",
    "model(*names): only for these model entries",
    "needs(*names): only for entries with these capabilities, and servers with these APIs (responses, ...)",
    "slow: takes minutes; run with --slow",
    "covers(*ids): behaviours that the test covers, as tests/coverage.yaml lists them",
    "known_defect(reference, *, versions, why, models=(), raises=...): a fault of vLLM that the test shows",
)
Server = RemoteServer | AttachedServer
Check = Callable[..., None]
StreamCheck = Check


@dataclass
class Run:
    """The state of one pytest run."""

    config: pytest.Config
    choice: Choice
    environment: Environment | None
    results: dict[str, TargetResult] = field(default_factory=dict)

    def result(self, target: str) -> TargetResult:
        """The record of a target, by its id."""
        return self.results.setdefault(target, TargetResult())

    def version(self, target: Target) -> str:
        """Version of the target's server; of one that somebody else started, once it has been asked."""
        return self.environment.vllm_version if self.environment else self.result(target.id).version

    def expected_skips(self, target: Target) -> set[str]:
        """Reason codes that a target's tests may skip for."""
        narrow = target.lane == "attached" or self.config.option.frontend == "rust"
        return {SLOW, *([NOT_SERVED] if narrow else []), *target.entry.expected_skips}


RUN = pytest.StashKey[Run]()
TARGET = pytest.StashKey[Target]()
BODY = pytest.StashKey[str]()  # what became of a test's own code


def pytest_addoption(parser: pytest.Parser) -> None:
    """The plugin's options."""
    group = parser.getgroup("vllm-harness", "real vLLM servers")
    group.addoption("--model", action="append", default=[], help="model entry or hub id; may be repeated")
    group.addoption(
        "--lane", choices=["live", "scripted"], help="one lane; default: all this machine can run"
    )
    group.addoption(
        "--vllm", metavar="SPEC", help="server environment: 0.32.0, 0.33.0@0.32.0, tree:PATH, installed"
    )
    group.addoption("--vllm-python", metavar="PATH", help="the same as --vllm installed:PATH")
    group.addoption("--device", choices=["cpu", "cuda"], help="device of the server environment")
    group.addoption("--frontend", choices=["python", "rust"], default="python", help="vLLM's HTTP front end")
    group.addoption("--models-file", type=Path, help="another models.yaml")
    group.addoption("--server-url", metavar="URL", help="test a server that somebody else started")
    group.addoption("--server-model", metavar="NAME", help="the model's name on that server")
    group.addoption("--api-key-env", metavar="NAME", help="variable that holds that server's API key")
    group.addoption("--cold-start", action="store_true", help="start servers without the fork server")
    group.addoption("--keep-servers", action="store_true", help="leave servers running for a later run")
    group.addoption("--slow", action="store_true", help="run tests marked slow as well")
    group.addoption(
        "--record-tokens", metavar="DIR", type=Path, help="keep the token ids of every generation"
    )
    group.addoption(
        "--replay-tokens", metavar="DIR", type=Path, help="say what was recorded live, on the scripted lane"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Registers the markers."""
    for marker in MARKERS:
        config.addinivalue_line("markers", marker)


def _run(config: pytest.Config) -> Run:
    """The run, made when the first test asks for a server."""
    if RUN not in config.stash:
        try:
            run = config.stash[RUN] = _prepare(config)
            config.pluginmanager.register(Recorder(run.result))
        except HarnessError as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[RUN]


def _prepare(config: pytest.Config) -> Run:
    option = config.option
    entries = load_registry(option.models_file)
    if option.server_url:
        choice = choose(entries, Machine("cpu"), models=_one_model(option.model), lane="attached")
        return Run(config, choice, None)
    environment = resolve(_spec(option), device=option.device, create=True, progress=_say)
    memory = tuple(gpu.total_bytes / 2**30 for gpu in visible_gpus()) if environment.device == "cuda" else ()
    machine = Machine(environment.device, memory, option.frontend)
    lane: RunLane | None = "scripted" if option.replay_tokens else option.lane
    return Run(config, choose(entries, machine, models=option.model, lane=lane), environment)


def _one_model(models: list[str]) -> list[str]:
    if len(models) != 1:
        raise UsageError("--server-url needs one --model", hint="the entry tells which tests apply")
    return models


def _spec(option: Any) -> str | None:
    if option.vllm and option.vllm_python:
        raise UsageError("--vllm and --vllm-python say two things", hint="give one of them")
    return f"installed:{option.vllm_python}" if option.vllm_python else option.vllm


def _say(text: str) -> None:
    Console(stderr=True, highlight=False).print(text)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Runs a test that uses a server once for every target it is for."""
    if "_target_server" in metafunc.fixturenames:
        replays = bool(metafunc.config.option.replay_tokens)
        targets = [
            t for t in _run(metafunc.config).choice.targets if _is_for(metafunc.definition, t, replays)
        ]
        metafunc.parametrize(
            "_target_server", targets, ids=[target.id for target in targets], indirect=True, scope="session"
        )


def _is_for(item: pytest.Item | pytest.Function, target: Target, replays: bool) -> bool:
    entry = target.entry
    if (item.get_closest_marker("harmony") and not entry.harmony) or (
        item.get_closest_marker("standard") and entry.harmony
    ):
        return False
    lanes = [lane for lane in ("scripted", "live") if item.get_closest_marker(lane)]
    if lanes and ("live" if replays else target.lane) not in lanes:
        return False
    named = [name for marker in item.iter_markers("model") for name in marker.args]
    needed = _needed(item) - set(API_PATHS)
    return (not named or bool({entry.name, entry.hub.id} & set(named))) and needed <= entry.capabilities


def _needed(item: pytest.Item | pytest.Function) -> set[str]:
    return {name for marker in item.iter_markers("needs") for name in marker.args}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks tests on CUDA with `gpu`."""
    target = getattr(item, "callspec", None) and item.callspec.params.get("_target_server")  # type: ignore[attr-defined]
    if isinstance(target, Target):
        item.stash[TARGET] = target
        environment = _run(item.config).environment
        if environment is not None and environment.device == "cuda":
            item.add_marker("gpu")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what is slow or unrecorded, starts servers once, says why `-m gpu` has nothing to run."""
    if config.option.replay_tokens:
        unrecorded = [item for item in items if not _replayable(item)]
        items[:] = [item for item in items if item not in unrecorded]
        config.hook.pytest_deselected(items=unrecorded)
    if not config.option.slow:
        for item in items:
            if item.get_closest_marker("slow"):
                item.add_marker(pytest.mark.skip(reason=coded(SLOW, "run with --slow")))
    if RUN in config.stash:
        order = [target.id for target in config.stash[RUN].choice.targets]
        items.sort(key=lambda item: order.index(item.stash[TARGET].id) if TARGET in item.stash else -1)
    wanted = config.option.markexpr.split()
    if "gpu" in wanted and "not" not in wanted and not any(i.get_closest_marker("gpu") for i in items):
        why = (
            "no CUDA device on this machine" if not gpus() else "the server environment is not built for CUDA"
        )
        pytest.exit(
            f"-m gpu: {why}, so nothing ran; `vllm-harness doctor` tells what is missing", returncode=2
        )


def _replayable(item: pytest.Item) -> bool:
    path = _recording(item) if TARGET in item.stash else None
    return path is not None and path.exists() and all(record.sayable for record in tokens.read(path))


def _recording(item: pytest.Item) -> Path | None:
    """The recording to replay."""
    folder, target = item.config.option.replay_tokens, item.stash[TARGET]
    return folder and tokens.file_in(folder / f"live-{target.entry.name}", item.nodeid, target.id)


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Names what a run was asked for."""
    option = config.option
    asked = {"model": option.model, "lane": option.lane, "vllm": option.vllm, "server": option.server_url}
    return [
        f"vllm-harness: {', '.join(f'{k} {v}' for k, v in asked.items() if v) or 'all this machine can run'}"
    ]


@pytest.fixture(scope="session")
def _target_server(request: pytest.FixtureRequest) -> Iterator[Server]:
    run, target = _run(request.config), request.param
    result = run.result(target.id)
    option = request.config.option
    if target.lane == "attached":
        endpoint = attach(option.server_url, option.api_key_env, target.entry.limits.request_s)
        attached = AttachedServer(endpoint, target.entry, option.server_model)
        result.environment, result.vllm = f"attached {endpoint.base_url}", attached.vllm_version
        result.version = attached.vllm_version
        result.lacking = endpoint.lacking()
        yield attached
        return
    assert run.environment is not None
    capture = request.config.pluginmanager.getplugin("capturemanager")
    server = RemoteServer(
        target.entry,
        lane=target.lane,
        vllm=run.environment,
        frontend=option.frontend,
        args=tokens.RECORD_ARGS if option.record_tokens or option.replay_tokens else (),
        cold_start=option.cold_start,
        keep=option.keep_servers,
        progress=ConsoleProgress(),
    )
    result.environment, result.vllm = server.launch.describe(), _short(server)
    with capture.global_and_fixture_disabled():
        server.start()
    result.startup_s, result.lacking = server.startup_seconds, server.endpoint.lacking()
    result.logs.append(str(server.log_path))
    try:
        yield server
    finally:
        server.stop()


def _short(server: RemoteServer) -> str:
    environment = server.environment
    rust = ", rust" if server.launch.frontend == "rust" else ""
    return f"{environment.vllm_version} {environment.device} ({environment.kind}{rust})"


@pytest.fixture
def vllm_server(_target_server: Server, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A ready server of the target; one that died in an earlier test is started anew, which is counted."""
    server = _target_server
    lacking = _run(request.config).result(request.node.stash[TARGET].id).lacking
    if missing := sorted(lacking & _needed(request.node)):
        skip(NOT_SERVED, f"this server does not serve {', '.join(API_PATHS[name] for name in missing)}")
    if isinstance(server, RemoteServer) and not server.alive():
        result = _run(request.config).result(request.node.stash[TARGET].id)
        result.restarts += 1
        server.stop()
        server.start()
        result.logs.append(str(server.log_path))
    kept = request.config.option.record_tokens
    records = isinstance(server, RemoteServer) and bool(kept or request.config.option.replay_tokens)
    if records:
        tokens.begin(server.endpoint)
    yield server
    if isinstance(server, RemoteServer):
        server.check()
    if records:
        _settle_tokens(tokens.taken(server.endpoint), request.node)


def _settle_tokens(taken: list[tokens.Record], item: pytest.Item) -> None:
    target = item.stash[TARGET]
    if kept := item.config.option.record_tokens:
        tokens.write(taken, tokens.file_in(kept / target.id, item.nodeid, target.id))
    if (replayed := _recording(item)) and (differ := tokens.differences(tokens.read(replayed), taken)):
        pytest.fail("the replay differs from the live run:\n" + "\n".join(differ), pytrace=False)


class ScriptWriter:
    """What a test scripts; on the other lanes the model says what it likes, and nothing is written.

    Attributes:
        exact: whether the model says exactly what is scripted, so that content can be compared.
    """

    def __init__(self, book: Book | None) -> None:
        self._book = book
        self.exact = book is not None

    def __call__(self, *args: Any, **options: Any) -> Script | None:
        """Adds a script; see `harness.scripted.book.Book.script`."""
        return self._book.script(*args, **options) if self._book else None


@pytest.fixture
def _book(vllm_server: Server, request: pytest.FixtureRequest) -> Iterator[Book | None]:
    if not isinstance(vllm_server, RemoteServer) or vllm_server.lane != "scripted":
        yield None
        return
    book = Book(vllm_server.endpoint, vllm_server.entry)
    replayed = _recording(request.node)
    if replayed:
        tokens.say_again(tokens.read(replayed), book)
    yield book
    if vllm_server.alive():
        if not replayed and request.node.stash.get(BODY, None) in {"passed", "failed"}:
            book.verify()
        book.close()


@pytest.fixture
def script(_book: Book | None, request: pytest.FixtureRequest) -> ScriptWriter:
    """Scripts this test's answers; at its end every script must have been used and followed."""
    return ScriptWriter(None if request.config.option.replay_tokens else _book)


@pytest.fixture
def openai_client(vllm_server: Server, _book: Book | None) -> Iterator[OpenAI]:
    """A sync openai client for the server, answered from this test's scripts; it never retries by itself."""
    with _book.client() if _book else vllm_server.client() as client:
        yield client


@pytest.fixture
async def async_openai_client(vllm_server: Server, _book: Book | None) -> AsyncIterator[AsyncOpenAI]:
    """An async openai client for the server, answered from this test's scripts."""
    async with _book.async_client() if _book else vllm_server.async_client() as client:
        yield client


@pytest.fixture
def _checker(vllm_server: Server, request: pytest.FixtureRequest) -> Iterator[Checker]:
    known = [protocol_known(deviation) for deviation in vllm_server.known_deviations]
    exact = vllm_server.lane == "scripted" and not request.config.option.replay_tokens
    checker = Checker(known, vllm_server.vllm_version, exact)
    yield checker
    _run(request.config).result(request.node.stash[TARGET].id).add(checker.findings)


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
    run, target = _run(item.config), item.stash[TARGET]
    defect = defect_of(item, run.version(target), target.entry.name)
    settle(report, call.excinfo.value if call.excinfo else None, defect, run.expected_skips(target))
    setattr(report, TARGET_OF, target.id)
    if report.when == "call":
        item.stash[BODY] = "defect" if hasattr(report, "wasxfail") else report.outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keeps the results beside the logs."""
    if RUN in session.config.stash and (results := session.config.stash[RUN].results):
        write(results, run_folder() / "results.json")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """The result table, one row a target."""
    if RUN not in config.stash or not config.stash[RUN].results:
        return
    run = config.stash[RUN]
    console = Console(file=terminalreporter._tw._file, width=max(120, terminalreporter._tw.fullwidth))
    show(console, run.choice.targets, run.results, run_folder())

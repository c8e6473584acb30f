"""The server of a target: started by this run, or attached."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from vllm_harness.configuration.targets import Target
from vllm_harness.errors import HarnessError
from vllm_harness.exchange.endpoint import API_PATHS, attach
from vllm_harness.files.redaction import secret_values
from vllm_harness.machine.gpus import describe_device
from vllm_harness.scripted.recording import RECORD_ARGS
from vllm_harness.server.attached import AttachedServer, check_header
from vllm_harness.server.progress import ConsoleProgress
from vllm_harness.server.remote import RemoteServer
from vllm_harness.testing.capture import uncaptured
from vllm_harness.testing.run_folder import WRITER
from vllm_harness.testing.session import REFUSED, PytestRun, Server, servers_of, target_of
from vllm_harness.testing.skips import NOT_SERVED, skip


def server_of(run: PytestRun, target: Target) -> Server:
    """A target's server, made when first wanted and not started yet.

    Raises HarnessError, for every test the same one, where it cannot be made.
    """
    if target.id not in run.servers:
        try:
            run.servers[target.id] = _made(run, target)
        except HarnessError as error:
            run.servers[target.id] = error
    found = run.servers[target.id]
    if isinstance(found, HarnessError):
        raise found
    return found


def serve(run: PytestRun, target: Target) -> Iterator[Server]:
    """A target's server, stopped afterwards where this run started it."""
    server = server_of(run, target)
    try:
        yield server
    finally:
        if isinstance(server, RemoteServer):
            run.pool.stop(server)
        del run.servers[target.id]


@contextmanager
def reserved(run: PytestRun, item: pytest.Item) -> Iterator[None]:
    """For one test: sets aside the memory of its servers, or notes in `REFUSED` why there is none."""
    with ExitStack() as stack:
        try:
            server = server_of(run, target_of(item))
            if isinstance(server, RemoteServer):
                stack.enter_context(run.pool.reserved(server, servers_of(item)))
        except HarnessError as error:
            item.stash[REFUSED] = error
        yield


def _made(run: PytestRun, target: Target) -> Server:
    """What it is goes into the target's record."""
    option = run.config.option
    if target.lane == "attached":
        return _attached(run, target)
    recorded = RECORD_ARGS if option.vllm_record_tokens or option.vllm_replay_tokens else ()
    server = RemoteServer(
        target.entry,
        lane=target.lane,
        vllm=run.environment(),
        frontend=option.vllm_frontend,
        args=(*option.vllm_server_arg, *recorded),
        cold_start=option.vllm_cold_start,
        keep=option.vllm_keep_servers,
        progress=ConsoleProgress(),
    )
    result = run.result(target.id)
    result.environment, result.vllm = server.launch.describe(), _short(server)
    result.frontend, result.short_version = server.launch.frontend, server.environment.short_version
    result.device = describe_device(server.environment.device)
    return server


def make_ready(run: PytestRun, target: Target, server: Server, needed: set[str]) -> None:
    """Before each test: starts the server where it does not run, and skips what it does not serve."""
    result = run.result(target.id)
    if isinstance(server, RemoteServer):
        log = server.log_path
        with uncaptured(run.config):
            result.restarts += run.pool.use(server)
        if result.startup_s is None:
            result.startup_s, result.lacking = server.startup_seconds, server.endpoint.lacking()
        if server.log_path != log:
            result.logs.append(str(server.log_path))
            result.command = server.launch.argv(server.port)
            if writer := run.config.stash.get(WRITER, None):
                writer.hide(secret_values(server.launch.environ(), result.command))
    if missing := sorted(result.lacking & needed):
        skip(NOT_SERVED, f"this server does not serve {', '.join(API_PATHS[name] for name in missing)}")


def _attached(run: PytestRun, target: Target) -> AttachedServer:
    option, result = run.config.option, run.result(target.id)
    endpoint = attach(option.vllm_server_url, option.vllm_api_key_env, target.entry.limits.request_s)
    server = AttachedServer(
        endpoint,
        target.entry,
        option.vllm_server_model,
        books=attach(option.vllm_books_url) if option.vllm_books_url else None,
        version=option.vllm_server_version,
    )
    result.environment, result.vllm = f"attached {endpoint.base_url}", server.vllm_version
    result.version, result.lacking = server.vllm_version, endpoint.lacking()
    result.short_version = server.vllm_version
    if server.books:
        check_header(server, [api for api in API_PATHS if api not in result.lacking])
    return server


def _short(server: RemoteServer) -> str:
    environment = server.environment
    rust = ", rust" if server.launch.frontend == "rust" else ""
    return f"{environment.vllm_version} {environment.device} ({environment.kind}{rust})"

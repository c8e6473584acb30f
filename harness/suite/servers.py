"""The server of a target: started by us or by somebody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from harness.endpoint import API_PATHS, attach
from harness.server.attached import AttachedServer
from harness.server.progress import ConsoleProgress
from harness.server.remote import RemoteServer
from harness.suite.session import Run
from harness.suite.skips import NOT_SERVED, skip
from harness.targets import Target

Server = RemoteServer | AttachedServer


def serve(run: Run, target: Target, args: tuple[str, ...]) -> Iterator[Server]:
    """A ready server, stopped afterwards where it is ours; what it is goes into the target's record.

    Args:
        args: server arguments besides the entry's.
    """
    option = run.config.option
    if target.lane == "attached":
        yield _attached(run, target)
        return
    assert run.environment is not None
    capture: Any = run.config.pluginmanager.getplugin("capturemanager")
    server = RemoteServer(
        target.entry,
        lane=target.lane,
        vllm=run.environment,
        frontend=option.frontend,
        args=args,
        cold_start=option.cold_start,
        keep=option.keep_servers,
        progress=ConsoleProgress(),
    )
    result = run.result(target.id)
    result.environment, result.vllm = server.launch.describe(), _short(server)
    with capture.global_and_fixture_disabled():
        server.start()
    result.startup_s, result.lacking = server.startup_seconds, server.endpoint.lacking()
    result.logs.append(str(server.log_path))
    try:
        yield server
    finally:
        server.stop()


def make_ready(run: Run, target: Target, server: Server, needed: set[str]) -> None:
    """Before each test: skips what the server does not serve, and starts one that died anew, which counts."""
    result = run.result(target.id)
    if missing := sorted(result.lacking & needed):
        skip(NOT_SERVED, f"this server does not serve {', '.join(API_PATHS[name] for name in missing)}")
    if isinstance(server, RemoteServer) and not server.alive():
        result.restarts += 1
        server.stop()
        server.start()
        result.logs.append(str(server.log_path))


def _attached(run: Run, target: Target) -> AttachedServer:
    option, result = run.config.option, run.result(target.id)
    endpoint = attach(option.server_url, option.api_key_env, target.entry.limits.request_s)
    server = AttachedServer(endpoint, target.entry, option.server_model)
    result.environment, result.vllm = f"attached {endpoint.base_url}", server.vllm_version
    result.version, result.lacking = server.vllm_version, endpoint.lacking()
    return server


def _short(server: RemoteServer) -> str:
    environment = server.environment
    rust = ", rust" if server.launch.frontend == "rust" else ""
    return f"{environment.vllm_version} {environment.device} ({environment.kind}{rust})"

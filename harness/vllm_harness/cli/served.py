"""The server that a command uses: a new server, or one that is already running."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from vllm_harness._configuration.model_entries import Lane, ModelEntry
from vllm_harness._exchange.endpoint import LOCAL, attach
from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.redaction import SHORTEST, Redactor, secret_values
from vllm_harness._scenarios.format import Scenario
from vllm_harness._scenarios.mcp_servers import RunningMcp, launch_flags, mcp_servers
from vllm_harness._scenarios.running import check_capabilities
from vllm_harness._server.attached import AttachedServer
from vllm_harness._server.demo_tools import demo_launch
from vllm_harness._server.progress import ConsoleProgress
from vllm_harness._server.remote import RemoteServer
from vllm_harness.cli.options import ServerOptions

Mcp = Mapping[str, RunningMcp]


@contextmanager
def served_by(
    server_options: ServerOptions,
    entry: ModelEntry,
    lane: Lane,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    host: str = LOCAL,
) -> Iterator[VllmServer]:
    """Yields the server that the options name; a new server gets these flags and environment variables."""
    if server_options.server_url is not None:
        endpoint = attach(server_options.server_url, server_options.api_key_env, entry.limits.request_s)
        yield AttachedServer(endpoint, entry, model=server_options.server_model)
        return
    with RemoteServer(
        entry,
        lane=lane,
        vllm=server_options.environment(),
        frontend=server_options.frontend or "python",
        args=args,
        env=env,
        host=host,
        cold_start=server_options.cold_start,
        progress=ConsoleProgress(),
    ) as server:
        yield server


@contextmanager
def served_for(
    scenario: Scenario, server_options: ServerOptions, entry: ModelEntry, args: Sequence[str] = ()
) -> Iterator[tuple[VllmServer, Mcp | None]]:
    """Yields the server for a scenario; a new server can call the scenario's MCP servers.

    Raises:
        UsageError: the model lacks a capability that the scenario needs, or a built-in tool lacks its key.
    """
    lane = server_options.lane_of(entry, scriptable=scenario.scriptable)
    if server_options.server_url is not None:
        with served_by(server_options, entry, lane) as server:
            yield server, None
        return
    hint = "`vllm-harness models` lists the capabilities of each entry"
    check_capabilities(scenario, entry, scripted=lane == "scripted", hint=hint)
    with mcp_servers(scenario.mcp) as mcp:
        flags, env = launch_flags(mcp.values())
        if scenario.built_in:
            flags, env = demo_launch(scripted=lane == "scripted", search="web_search" in scenario.built_in)
        with served_by(server_options, entry, lane, [*flags, *args], env) as server:
            yield server, mcp


def redactor(server: VllmServer | None = None) -> Redactor:
    """A redactor for the secrets in this process's environment, and for a server's secrets."""
    theirs: Sequence[str] = ()
    if isinstance(server, RemoteServer):
        theirs = secret_values(server.launch.env, server.launch.args)
    elif server is not None:
        theirs = [server.endpoint.api_key]
    return Redactor([*secret_values(os.environ), *(each for each in theirs if len(each) >= SHORTEST)])

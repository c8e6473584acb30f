"""Makes the record of a server for a run folder."""

from __future__ import annotations

from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.redaction import secret_values
from vllm_harness._machine.gpus import describe_device
from vllm_harness._runs.folder import RunWriter
from vllm_harness._runs.records import TargetRecord
from vllm_harness._server.remote import RemoteServer


def target_record(server: VllmServer, name: str, writer: RunWriter | None = None) -> TargetRecord:
    """Makes a server's record (with command and log if it runs); `writer` hides its secrets from now on."""
    entry = server.entry
    about = {"id": name, "title": entry.name, "family": entry.family, "lane": server.lane}
    if not isinstance(server, RemoteServer):
        where = f"attached {server.endpoint.base_url}"
        return TargetRecord(**about, vllm=server.vllm_version, environment=where)
    launch, environment, runs = server.launch, server.environment, server.alive()
    command = launch.argv(server.port) if runs else []
    if writer:
        writer.hide(secret_values(launch.environ(), command))
    return TargetRecord(
        **about,
        vllm=environment.short_version,
        environment=launch.describe(),
        frontend=launch.frontend,
        device=describe_device(environment.device),
        command=tuple(command),
        logs=(str(server.log_path),) if runs else (),
        startup_s=server.startup_seconds if runs else None,
    )

"""The run folder of a command: begun or gone on with, and ended however the command ends."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from vllm_harness.errors import HarnessError
from vllm_harness.exchange.server import VllmServer
from vllm_harness.files.redaction import secret_values
from vllm_harness.machine.gpus import describe_device
from vllm_harness.runs.beginning import new_header
from vllm_harness.runs.folder import RunWriter
from vllm_harness.runs.records import End, Kind, Target
from vllm_harness.server.remote import RemoteServer

INTERRUPTED = 130


@contextmanager
def kept_run(kind: Kind, folder: Path, name: str = "", seed: int | None = None) -> Iterator[RunWriter]:
    """Keeps a run in a folder, or goes on with the one that is there; yields the writer of its records.

    Args:
        kind: of the run.
        folder: of the run.
        name: what people call it.
        seed: of what is drawn.
    """
    with RunWriter.resume(folder, new_header(kind, name, seed), secret_values(os.environ)) as writer:
        code, stopped = 0, ""
        try:
            yield writer
        except typer.Exit as ended:
            code = ended.exit_code
            raise
        except HarnessError as error:
            code, stopped = error.exit_code, error.message
            raise
        except BaseException as error:
            code, stopped = INTERRUPTED, type(error).__name__
            raise
        finally:
            writer.write(End(at=time.time(), exit_code=code, stopped=stopped))


def target_of(server: VllmServer, writer: RunWriter, name: str) -> Target:
    """The record of a server; what is secret in its command is never written.

    Args:
        server: that runs.
        writer: of the run.
        name: id of the record.
    """
    entry = server.entry
    about = {"id": name, "title": entry.name, "family": entry.family}
    if not isinstance(server, RemoteServer):
        where = f"attached {server.endpoint.base_url}"
        return Target(**about, lane=server.lane, vllm=server.vllm_version, environment=where)
    command = server.launch.argv(server.port)
    writer.hide(secret_values(server.launch.environ(), command))
    return Target(
        **about,
        lane=server.lane,
        vllm=server.environment.short_version,
        environment=server.launch.describe(),
        frontend=server.launch.frontend,
        device=describe_device(server.environment.device),
        command=tuple(command),
        logs=(str(server.log_path),),
        startup_s=server.startup_seconds,
    )

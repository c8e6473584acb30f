"""Starts a server's process under a supervisor: by forking the fork server, or cold."""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from vllm_harness._files.redaction import secret_values
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._server import blocks, fork_server
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.allocation import models_held
from vllm_harness._server.records import ServerRecord
from vllm_harness._server.reusable import identity
from vllm_harness._server.supervised import Spawn, Supervised, spawn_cold
from vllm_harness._server.supervisor import started

GRACE_S = 10.0
LOG_LIMIT = 256 * 2**20
SOCKET_PATH_BYTES = 107
SOCKET_NAME_BYTES = 60  # for the socket names that vLLM makes in the temporary folder


@dataclass(frozen=True)
class Spawner:
    """Starts one server's process; `env` binds it to leased GPUs, and `show` is called with each step."""

    launch: Launch
    port: int
    log_path: Path
    env: Mapping[str, str]
    show: Callable[[str], None]

    def forked(self) -> tuple[Supervised, ServerRecord] | None:
        """Forks a server from a template; tries a second template if the first was killed.

        Returns None if the server has to start cold.
        """
        for fallback in ("forked again", "cold start"):
            try:
                template = self._template()
                return self._supervised(partial(fork_server.spawn, path=template))
            except fork_server.TemplateEnded as error:
                # the template may have forked a server, but the next server has another id and folder
                self.show(f"{fallback}, since {error}")
            except fork_server.ForkServerFailed as error:
                self.show(f"cold start, since {error}")
                break
        return None

    def cold(self) -> tuple[Supervised, ServerRecord]:
        """Starts a server in a new interpreter.

        Raises:
            ForkServerFailed: a Python file has to run first, which only forked servers support.
        """
        if os.environ.get(fork_server.FIRST):
            raise fork_server.ForkServerFailed(
                f"a server that starts cold does not run the file that {fork_server.FIRST} names",
                hint="use the fork server instead of a cold start",
            )
        return self._supervised(spawn_cold)

    def _template(self) -> Path:
        try:
            return fork_server.template(self.launch, self.launch.environ(), self.show, held=models_held())
        except OSError as error:
            raise fork_server.ForkServerFailed(str(error)) from error

    def _supervised(self, spawn: Spawn) -> tuple[Supervised, ServerRecord]:
        """Starts a supervisor, which starts the server; the record is written first."""
        record = self._new_record()
        environ = {
            **self.launch.environ(),
            **self.env,
            "TMPDIR": record.tmp,
            names.SCRIPT_DIR: record.tmp,
            names.SERVER_ID: record.server_id,
        }
        argv = self.launch.argv(self.port)
        of_record = ("owner", "owner_started", "server_id", "earlier_blocks", "log", "tmp")
        config = {
            **{name: getattr(record, name) for name in of_record},
            "record": str(record.path()),
            "argv": argv,
            "env": environ,
            "log_limit": LOG_LIMIT,
            "secrets": secret_values(environ, argv),
            "grace_s": GRACE_S,
            "first": os.environ.get(fork_server.FIRST, ""),
        }
        record.write()
        try:
            return Supervised(config, spawn), record
        except BaseException:
            record.remove()
            raise

    def _new_record(self) -> ServerRecord:
        server_id = uuid.uuid4().hex[:12]
        return ServerRecord(
            server_id=server_id,
            tmp=str(_tmp_base() / f"vh-{server_id}"),
            name=self.launch.name,
            lane=self.launch.lane,
            environment=self.launch.environment.describe(),
            log=str(self.log_path),
            host=self.launch.host,
            port=self.port,
            certificate=self.launch.certificate,
            identity=identity(self.launch),
            owner=os.getpid(),
            owner_started=started(os.getpid()) or 0,
            earlier_blocks=sorted(blocks.names()),
        )


def _tmp_base() -> Path:
    """The folder for servers' temporary folders; its path is short enough for vLLM's sockets."""
    base = Path(tempfile.gettempdir())
    return base if len(str(base)) <= SOCKET_PATH_BYTES - SOCKET_NAME_BYTES else Path("/tmp")

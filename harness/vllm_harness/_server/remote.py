"""RemoteServer: a real vLLM server as a context manager, planned and started when it is entered."""

from __future__ import annotations

import os
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import requests

from vllm_harness._configuration.model_entries import Frontend, Lane, ModelEntry, load_models
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.endpoint import Endpoint, ask
from vllm_harness._exchange.server import VllmServer
from vllm_harness._files.redaction import secret_values
from vllm_harness._machine import gpus
from vllm_harness._machine.oom import oom_kills
from vllm_harness._machine.side_by_side import go_on
from vllm_harness._scripted.book import Script, ScriptBook
from vllm_harness._scripted.in_server import vllm_harness_names as names
from vllm_harness._server import blocks, errors, fork_server, kept
from vllm_harness._server.diagnosis import diagnose, last_words, log_lines
from vllm_harness._server.launch import LOCAL, Launch, plan_launch
from vllm_harness._server.leases.allocation import Start, lease_for, models_held, taken_gib
from vllm_harness._server.leases.claims import Claim
from vllm_harness._server.leases.gpus import used_before
from vllm_harness._server.leases.ports import NoFreePort, describe_holder, is_free, lease_port, listeners
from vllm_harness._server.phases import PhaseTracker
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.progress import NoProgress, StartProgress
from vllm_harness._server.records import ServerRecord, run_folder, running, sweep
from vllm_harness._server.supervised import Spawn, Supervised, spawn_cold
from vllm_harness._server.supervisor import started

POLL_S = 0.1
GRACE_S = 10.0
LOG_LIMIT = 256 * 2**20
HEALTH_TIMEOUT_S = 5.0
PORT_FREE_S = 10.0
GPU_FREE_S = 60.0
SOCKET_PATH_BYTES = 107
SOCKET_NAME_BYTES = 60  # of the socket names that vLLM makes in the temporary folder


class RemoteServer(VllmServer):
    """Starts vLLM's OpenAI server for a model entry, and ends it whatever happens.

    Constructing one installs, fetches and starts nothing; entering it does.

        with RemoteServer("gpt-oss", lane="scripted") as server:
            server.script("Hello!")
            server.client().responses.create(model=server.model, input="Hi")

    Args:
        model: name or hub id of an entry in models.yaml, an entry, or a whole Launch.
        lane: `live` (real weights) or `scripted` (stand-in checkpoint, scripted tokens).
        vllm: the server's environment, or its spec (`0.32.0`, `0.33.0@0.32.0`, `tree:/path`, `installed`); by
            default the vLLM of this interpreter, else the newest locked release.
        frontend: the HTTP front end of vLLM that is to answer.
        args: `vllm serve` flags after the entry's own; the last of two equal flags counts.
        env: variables over the entry's own.
        host: the address of this machine that it listens on, where clients elsewhere are to reach it.
        port: a fixed port; by default a free one is leased.
        cold_start: start a new interpreter, not a fork of the fork server.
        keep: leave it running at the end, and adopt an equal server that an earlier run kept.
        startup_s: seconds until it must be ready; by default the entry's limit.
        progress: receives the progress of the start.

    Raises:
        UsageError: models.yaml has no such entry; on entering, where there is no such lane or environment.
        StartupError: on entering; a subclass names the cause.
        StopFailed: on leaving, when a process survives, or the port or GPU memory is not given back.
    """

    def __init__(
        self,
        model: str | ModelEntry | Launch,
        *,
        lane: Lane = "live",
        vllm: str | Environment | None = None,
        frontend: Frontend = "python",
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        host: str = LOCAL,
        port: int | None = None,
        cold_start: bool = False,
        keep: bool = False,
        startup_s: float | None = None,
        progress: StartProgress | None = None,
        models_file: Path | None = None,
    ) -> None:
        if isinstance(model, str):
            model = load_models(models_file).get(model)
        self.entry: ModelEntry = model.entry if isinstance(model, Launch) else model
        self.model = self.entry.name
        self.lane: Lane = model.lane if isinstance(model, Launch) else lane
        self._planned = model if isinstance(model, Launch) else None
        self._vllm = vllm
        self._plan = partial(
            plan_launch, lane=lane, args=tuple(args), env=dict(env or {}), frontend=frontend, host=host
        )
        self._fixed_port = port
        self._cold_start = cold_start
        self.keep = keep
        self.adopted = False
        self.forked = False
        self._startup_s = startup_s or self.entry.limits.startup_s
        self._progress = progress or NoProgress()
        self._process: Supervised | kept.Adopted | None = None
        self._lease: Claim | None = None
        self._record: ServerRecord | None = None
        self._pid: int | None = None
        self._hardware: Claim | None = None
        self._named_books: dict[str, ScriptBook] = {}
        self.log_path: Path = Path()
        self.server_id = ""
        self.startup_seconds = 0.0
        self.phases: dict[str, float] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @cached_property
    def launch(self) -> Launch:
        """What is started: planned by the first access, which creates the environment and fetches assets."""
        if self._planned:
            return self._planned
        environment = self._vllm if isinstance(self._vllm, Environment) else resolve(self._vllm, create=True)
        return self._plan(self.entry, environment)

    @property
    def environment(self) -> Environment:
        """The interpreter that has vLLM."""
        return self.launch.environment

    @property
    def vllm_version(self) -> str:
        """The server's vLLM."""
        return self.environment.vllm_version

    @property
    def pid(self) -> int:
        """Process id of the API server."""
        if self._pid is None:
            raise self._not_running()
        return self._pid

    @property
    def port(self) -> int:
        """The port it listens on."""
        if self._lease is not None:
            return self._lease.port
        if self._record is not None:
            return self._record.port
        raise self._not_running()

    def _not_running(self) -> errors.ServerError:
        return errors.ServerError(f"server {self.model!r} is not running", hint="use it in its `with` block")

    @property
    def endpoint(self) -> Endpoint:
        """Its address, for clients."""
        port = self.port  # there is none before the start, and then nothing is planned for this question
        return Endpoint(
            f"http://{self.launch.host}:{port}",
            api_key=self.launch.api_key,
            request_s=self.entry.limits.request_s,
        )

    @property
    def books(self) -> Endpoint | None:
        """Where a script book is written; None on the live lane."""
        return self.endpoint if self.lane == "scripted" else None

    def book(self, name: str = "default") -> ScriptBook:
        """A script book on this server (scripted lane only); books do not see each other."""
        if self.books is None:
            raise errors.ServerError(f"server {self.model!r} is on the live lane", hint="use lane='scripted'")
        return self._named_books.setdefault(name, ScriptBook(self.books, self.entry, name=name))

    def script(self, *say: Any, **options: Any) -> Script:
        """Adds a script to the default book; see `ScriptBook.script`."""
        return self.book().script(*say, **options)

    def alive(self) -> bool:
        """Whether the server still runs."""
        return self._process is not None and not self._process.ended

    def check(self) -> None:
        """Raises ServerDied, with the last lines of the log, when the server ended by itself."""
        if self._process is not None and self._process.ended:
            raise errors.ServerDied(
                f"server {self.model!r} ended while in use (exit code {self._process.exit_code})",
                hint="read the whole log; restart() starts the server again",
                lines=last_words(self.log_path),
                log_path=self.log_path,
            )

    def start(self) -> None:
        """Starts the server and waits until it is ready."""
        sweep()
        self._named_books.clear()
        if not self.keep:
            self._start()
            return
        identity = kept.identity(self.launch)
        with kept.locked_start(identity):
            if not self._adopt(identity):
                self._start()

    def _start(self) -> None:
        launch = self.launch  # planned before there is a log, or a lease
        self.log_path = _unused(run_folder(), f"{self.model}-{self.lane}")
        self._lease = leased_port(self._fixed_port)
        try:
            self._hardware = lease_for(launch, forked=self.forkable)
            self._spawn()
            self._wait_until_ready()
            self._leave_if_kept()
        except BaseException:
            self._stop_quietly()
            raise
        finally:
            self._progress.stop()

    def _adopt(self, identity: str) -> bool:
        record = kept.find(identity, self.model, self.launch.api_key)
        if record is None:
            return False
        self._process, self._record, self._pid = kept.Adopted(record), record, record.pid
        self.log_path, self.startup_seconds, self.adopted = Path(record.log), 0.0, True
        return True

    def _leave_if_kept(self) -> None:
        if self.keep and self._process is not None and self._record is not None:
            self._process.keep()
            self._record = replace(self._record, kept=True)
            self._record.write()

    def restart(self) -> None:
        """Ends the server and starts it again, on the same port, with a new log."""
        port = self.port
        self._end()
        fixed, self._fixed_port = self._fixed_port, port
        try:
            self.start()
        finally:
            self._fixed_port = fixed

    def stop(self) -> None:
        """Ends the server, and waits until its processes, its port and its GPU memory are given back.

        A kept server goes on running; `vllm-harness serve stop` ends it.
        """
        if self.keep and self._process is not None and not self._process.ended:
            self._process, self._pid, self._record = None, None, None
            self._release_leases()
            return
        self._end()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if self._hardware and self._measurable and self._pid is not None and self.alive():
            with suppress(OSError):  # a failure to note the measurement must not prevent the end
                self._learn()
        self._process = None
        try:
            survivors = process.end()
            if self._record is not None:
                self._record.remove()
            if survivors:
                raise errors.StopFailed(
                    f"processes {survivors} survived SIGKILL",
                    hint="see what they wait for: `ps -o pid,stat,wchan,cmd`",
                    log_path=self.log_path,
                )
            self._check_given_back()
        finally:
            self._pid, self._record = None, None
            self._release_leases()

    def _stop_quietly(self) -> None:
        try:
            self._end()
        except errors.StopFailed as error:
            self._progress.phase(self.model, f"cleaning up failed: {error.message}", 0.0)
        finally:
            self._release_leases()

    def _release_leases(self) -> None:
        for lease in (self._lease, self._hardware):
            if lease is not None:
                lease.release()
        self._lease = self._hardware = None

    def _spawn(self) -> None:
        self._started = time.monotonic()
        self._oom_before = oom_kills()
        self._tracker = PhaseTracker(self.log_path)
        forked = self._from_template()
        if forked is None and os.environ.get(fork_server.FIRST):
            raise fork_server.ForkServerFailed(
                f"a server that starts cold does not run the file of {fork_server.FIRST}",
                hint="use the fork server, and no cold start",
            )
        self.forked = forked is not None
        process, record = forked or self._supervised(spawn_cold)
        self._process, self._record = process, record
        supervisor, self._pid = process.supervisor_pid, process.pid()
        if supervisor:
            self._record = replace(
                record,
                supervisor=supervisor,
                supervisor_started=started(supervisor) or 0,
                pid=self._pid or 0,
            )
            self._record.write()
        if process.failure:
            raise errors.MissingPackage(
                f"the server cannot be executed: {process.failure}",
                hint="`vllm-harness env list` shows the environments of this machine",
                log_path=self.log_path,
            )

    def _from_template(self) -> tuple[Supervised, ServerRecord] | None:
        """A server forked from a template, or a second one where the first was killed; None: start cold."""
        if not self.forkable:
            return None
        for fallback in ("forked again", "cold start"):
            try:
                template = self._template()
                return self._supervised(partial(fork_server.spawn, path=template))
            except fork_server.TemplateEnded as error:
                # it may have forked nevertheless: the next server has its own id and folder
                self._show(f"{fallback}, since {error}")
            except fork_server.ForkServerFailed as error:
                self._show(f"cold start, since {error}")
                break
        return None

    def _supervised(self, spawn: Spawn) -> tuple[Supervised, ServerRecord]:
        """Starts a supervisor with a server; the record is written before anything else exists."""
        record = self._new_record()
        self.server_id = record.server_id
        environ = {
            **self.launch.environ(),
            **(self._hardware.env if self._hardware else {}),
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
            supervisor=0,
            supervisor_started=0,
            tmp=str(_tmp_base() / f"vh-{server_id}"),
            name=self.model,
            lane=self.lane,
            environment=self.environment.describe(),
            log=str(self.log_path),
            port=self.port,
            pid=0,
            identity=kept.identity(self.launch),
            owner=os.getpid(),
            owner_started=started(os.getpid()) or 0,
            earlier_blocks=sorted(blocks.names()),
        )

    @property
    def forkable(self) -> bool:
        """Whether it is to be started from the fork server."""
        return not self._cold_start

    def _template(self) -> Path:
        """The fork server's template for this launch."""
        try:
            return fork_server.template(self.launch, self.launch.environ(), self._show, held=models_held())
        except OSError as error:
            raise fork_server.ForkServerFailed(str(error)) from error

    def _show(self, step: str) -> None:
        self._progress.phase(self.model, step, time.monotonic() - self._started)

    def _wait_until_ready(self) -> None:
        process = self._process
        assert process is not None
        self.phases = {"import": 0.0}
        while True:
            elapsed = time.monotonic() - self._started
            if self._tracker.advance():
                self.phases.setdefault(self._tracker.phase, elapsed)
            self._progress.phase(self.model, self._tracker.phase, elapsed)
            go_on()
            if process.ended:
                raise self._diagnosis()
            if self._healthy():
                break
            if elapsed > self._startup_s:
                raise errors.StartupTimeout(
                    f"{self.model!r} was not ready after {self._startup_s:.0f} s, "
                    f"in phase {self._tracker.phase!r}",
                    hint="raise limits.startup_s of the entry, or look in the log for the slow step",
                    lines=log_lines(self.log_path)[-3:],
                    log_path=self.log_path,
                )
            time.sleep(POLL_S)
        self._check_name()
        self._settle()
        self.startup_seconds = time.monotonic() - self._started
        self._progress.done(self.model, self.startup_seconds)

    def _settle(self) -> None:
        """Notes in the lease the memory that the server has taken, and that it may still take."""
        if self._hardware and self._measurable:
            taken = self._learn()
            self._hardware.settle(gib=max(taken, Start(self.launch, self.forked).need_gib()), used=taken)

    @property
    def _measurable(self) -> bool:
        """Whether its memory is the machine's, not a GPU's."""
        return self.environment.device == "cpu"

    def _learn(self) -> float:
        """Measures the memory that the server takes now, GiB, for later leases."""
        assert self._process is not None
        taken = taken_gib(self._process.supervisor_pid or self.pid)
        Start(self.launch, self.forked).learn(taken)
        return taken

    def _healthy(self) -> bool:
        """Whether the own server answers; another process on the port is an error, never an answer."""
        try:
            answer = ask("GET", self.url_for("/health"), timeout=HEALTH_TIMEOUT_S)
        except requests.RequestException:
            return False
        if listeners(self.port) - tree_pids(self.pid):
            raise errors.PortTaken(
                f"port {self.port} is held by {describe_holder(self.port)}, not by the started server",
                hint="leave the port out, then the harness leases a free port",
                log_path=self.log_path,
            )
        return answer.status_code == 200

    def _check_name(self) -> None:
        answer = self.endpoint.get("/v1/models", timeout=HEALTH_TIMEOUT_S * 4)
        served = [model.get("id") for model in answer.json().get("data", [])] if answer.ok else []
        if self.model not in served:
            raise errors.NameNotServed(
                f"the server is healthy but /v1/models (HTTP {answer.status_code}) lists {served}, "
                f"not {self.model!r}",
                hint="do not override --served-model-name",
                log_path=self.log_path,
            )

    def _diagnosis(self) -> errors.StartupError:
        assert self._process is not None
        return diagnose(
            log_path=self.log_path,
            exit_code=self._process.exit_code,
            oom_kills=oom_kills() - self._oom_before,
            port=self.port,
        )

    def _check_given_back(self) -> None:
        deadline = time.monotonic() + PORT_FREE_S
        while not is_free(self.port):
            if time.monotonic() > deadline:
                raise errors.StopFailed(
                    f"port {self.port} is still held by {describe_holder(self.port)}",
                    hint="end that process",
                    log_path=self.log_path,
                )
            time.sleep(POLL_S)
        before = used_before(self._hardware) if self._hardware else {}
        if before and (held := gpus.wait_for_memory(before, limit_s=GPU_FREE_S)):
            raise errors.StopFailed(
                f"GPU memory did not come back within {GPU_FREE_S:.0f} s: {gpus.describe_gpus(held)}",
                hint="end the process named above; memory without a process is a leak of vLLM",
                log_path=self.log_path,
            )


def leased_port(port: int | None) -> Claim:
    """A lease of a port, or of a free one. Raises NoFreePort, naming the server that holds it."""
    try:
        return lease_port(port)
    except NoFreePort as error:
        holder = next((record for record in running() if record.port == port), None)
        if holder is None:
            raise
        command = f"vllm-harness serve stop {holder.name}" if holder.kept else f"kill {holder.owner}"
        raise NoFreePort(
            f"port {port} is held by your {holder.lane} server {holder.name!r} (log: {holder.log})",
            hint=f"end it by `{command}`, or leave the port out: the harness then leases a free port",
        ) from error


def _tmp_base() -> Path:
    """The parent of a server's folder, with a path short enough for vLLM's sockets."""
    base = Path(tempfile.gettempdir())
    return base if len(str(base)) <= SOCKET_PATH_BYTES - SOCKET_NAME_BYTES else Path("/tmp")


def _unused(folder: Path, stem: str) -> Path:
    for path in (folder / f"{stem}-{number}.log" for number in count(1)):
        with suppress(FileExistsError):  # another process of this run may start servers too
            path.touch(mode=0o600, exist_ok=False)
            break
    return path

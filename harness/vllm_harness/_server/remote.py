"""RemoteServer: a real vLLM server as a context manager, planned and started on entering it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Self

from vllm_harness._configuration.model_entries import Frontend, Lane, ModelEntry, load_models
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._exchange.endpoint import LOCAL, Endpoint
from vllm_harness._exchange.server import VllmServer
from vllm_harness._machine import gpus
from vllm_harness._scripted.book import Script, ScriptBook
from vllm_harness._server import errors, reusable
from vllm_harness._server.launch import Launch, plan_launch
from vllm_harness._server.leases.allocation import Start, lease_for
from vllm_harness._server.leases.claims import Claim
from vllm_harness._server.leases.gpus import used_before
from vllm_harness._server.leases.ports import describe_holder, lease_port, wait_until_free
from vllm_harness._server.progress import StartProgress
from vllm_harness._server.readiness import StartWatch
from vllm_harness._server.records import ServerRecord, new_log, run_folder, sweep
from vllm_harness._server.spawning import Spawner
from vllm_harness._server.supervised import Supervised
from vllm_harness._server.supervisor import started

PORT_FREE_S = 10.0
GPU_FREE_S = 60.0


class RemoteServer(VllmServer):
    """Starts vLLM's OpenAI-compatible server for a model entry, and ends it in any case.

    The constructor installs, fetches and starts nothing; entering the context does.

        with RemoteServer("gpt-oss", lane="scripted") as server:
            server.script("Hello!")
            server.client().responses.create(model=server.model, input="Hi")

    Args:
        model: name or hub id of an entry in models.yaml, a `ModelEntry`, or a whole `Launch`.
        lane: `live` (real weights) or `scripted` (stand-in checkpoint, scripted tokens).
        vllm: the server environment, or its spec (`0.32.0`, `0.33.0@0.32.0`, `tree:/path`, `installed`); by
            default the vLLM of this interpreter, or else the newest locked release.
        frontend: vLLM's HTTP front end.
        args: flags of `vllm serve`, which override the entry's own.
        env: environment variables, which override the entry's own.
        host: the address to listen on; clients on other machines cannot reach the default.
        port: the port to listen on; by default a free one is leased.
        cold_start: start a new interpreter instead of forking the fork server.
        keep: leave the server running at the end, and reuse an identical server that an earlier run left.
        startup_s: seconds within which the server must be ready; by default the entry's limit.
        progress: receives the progress of the start.
        models_file: the models.yaml to read; by default, the project's own.

    Raises:
        UsageError: models.yaml lacks the entry; on entering, the lane or the environment does not exist.
        StartupError: on entering, the server does not start; a subclass names the cause.
        StopFailed: on leaving, a process survived, or the port or GPU memory was not released.
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
        self.forkable = not cold_start
        self.keep = keep
        self.reused = False
        self._startup_s = startup_s or self.entry.limits.startup_s
        self._progress = progress or StartProgress()
        self._process: Supervised | reusable.ReusedServer | None = None
        self._port_lease: Claim | None = None
        self._hardware_lease: Claim | None = None
        self._record: ServerRecord | None = None
        self._pid: int | None = None
        self.forked = False
        self._named_books: dict[str, ScriptBook] = {}
        self.log_path: Path = Path()
        self.server_id = ""
        self.startup_seconds = 0.0
        self.phases: dict[str, float] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @cached_property
    def launch(self) -> Launch:
        """The plan for the start; the first access creates the environment and fetches assets."""
        if self._planned:
            return self._planned
        environment = self._vllm if isinstance(self._vllm, Environment) else resolve(self._vllm, create=True)
        return self._plan(self.entry, environment)

    @property
    def environment(self) -> Environment:
        """The environment in which vLLM is installed."""
        return self.launch.environment

    @property
    def vllm_version(self) -> str:
        """The version of the server's vLLM."""
        return self.environment.vllm_version

    @property
    def pid(self) -> int:
        """The process id of the API server."""
        if self._pid is None:
            raise self._not_running()
        return self._pid

    @property
    def port(self) -> int:
        """The port that the server listens on."""
        if self._port_lease is not None:
            return self._port_lease.port
        if self._record is not None:
            return self._record.port
        raise self._not_running()

    def _not_running(self) -> errors.ServerError:
        return errors.ServerError(f"server {self.model!r} is not running", hint="use it in its `with` block")

    @property
    def endpoint(self) -> Endpoint:
        """The server's address, for clients."""
        port = self.port  # before the start, this raises an error, so that nothing is planned
        return self.launch.endpoint(port)

    @property
    def books(self) -> Endpoint | None:
        """The address that accepts script books; None on the live lane."""
        return self.endpoint if self.lane == "scripted" else None

    def book(self, name: str = "default") -> ScriptBook:
        """The script book with a name (scripted lane only); a request uses the scripts of one book only."""
        if self.books is None:
            raise errors.ServerError(f"server {self.model!r} is on the live lane", hint="use lane='scripted'")
        return self._named_books.setdefault(name, ScriptBook(self.books, self.entry, name=name))

    def script(self, *say: Any, **options: Any) -> Script:
        """Adds a script to the default book; see `ScriptBook.script`."""
        return self.book().script(*say, **options)

    def alive(self) -> bool:
        """Whether the server is running."""
        return self._process is not None and not self._process.ended

    def check(self) -> None:
        """Raises ServerDied, which says why, if the server has ended by itself."""
        if (process := self._process) and process.ended:
            end = self._watch.end(process.exit_code) if isinstance(process, Supervised) else process.why()
            raise end.of_use(self.model)

    def start(self) -> None:
        """Starts the server and waits until it is ready."""
        sweep()
        self._named_books.clear()
        if not self.keep:
            self._start()
            return
        identity = reusable.identity(self.launch)
        with reusable.locked_start(identity):
            if not self._reuse(identity):
                self._start()

    def _start(self) -> None:
        launch = self.launch  # plan before there is a log or a lease
        self.log_path = new_log(run_folder(), f"{self.model}-{self.lane}")
        self._port_lease = lease_port(self._fixed_port)
        try:
            self._hardware_lease = lease_for(launch, forked=self.forkable)
            self._spawn()
            self._wait_until_ready()
            if self.keep:
                self._detach()
        except BaseException:
            self._stop_quietly()
            raise
        finally:
            self._progress.stop()

    def _reuse(self, identity: str) -> bool:
        record = reusable.find_reusable(identity, self.model, self.launch.api_key)
        if record is None:
            return False
        self._process, self._record, self._pid = reusable.ReusedServer(record), record, record.pid
        self.log_path, self.startup_seconds, self.reused = Path(record.log), 0.0, True
        return True

    def _spawn(self) -> None:
        self._watch = StartWatch(
            self.launch,
            port=self.port,
            log_path=self.log_path,
            limit_s=self._startup_s,
            progress=self._progress,
        )
        gpu_env = self._hardware_lease.env if self._hardware_lease else {}
        spawner = Spawner(self.launch, self.port, self.log_path, gpu_env, self._watch.show)
        forked = spawner.forked() if self.forkable else None
        process, record = forked or spawner.cold()
        self._process, self._record = process, record
        self.forked, self.server_id = forked is not None, record.server_id
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

    def _wait_until_ready(self) -> None:
        assert isinstance(self._process, Supervised)
        self.phases = self._watch.phases
        self._watch.wait(self._process, self.endpoint)
        self._process.ready()
        if self._memory_lease:
            self._measured_start.settle(self._memory_lease, self._process.supervisor_pid or self.pid)
        self.startup_seconds = self._watch.elapsed_s
        self._progress.done(self.model, self.startup_seconds)

    def _detach(self) -> None:
        """Lets the server outlive this process."""
        assert isinstance(self._process, Supervised)
        assert self._record is not None
        self._process.keep()
        self._record = replace(self._record, kept=True)
        self._record.write()

    @property
    def _memory_lease(self) -> Claim | None:
        """The lease of main memory; None on CUDA."""
        return self._hardware_lease if self.environment.device == "cpu" else None

    @property
    def _measured_start(self) -> Start:
        return Start(self.launch, self.forked)

    def restart(self) -> None:
        """Ends the server and starts it again on the same port, with a new log."""
        port = self.port
        self._end()
        fixed, self._fixed_port = self._fixed_port, port
        try:
            self.start()
        finally:
            self._fixed_port = fixed

    def stop(self) -> None:
        """Ends the server, and waits until its processes, its port and its GPU memory are released.

        With `keep`, the server goes on running until `vllm-harness serve stop` ends it.
        """
        if self.keep and self.alive():
            self._process, self._pid, self._record = None, None, None
            self._release_leases()
            return
        self._end()

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        if self._memory_lease and self._pid is not None and self.alive():
            with suppress(OSError):  # a failure to note the measurement must not prevent the end
                self._measured_start.measure(process.supervisor_pid or self._pid)
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
            self._check_released()
        finally:
            self._pid, self._record = None, None
            self._release_leases()

    def _check_released(self) -> None:
        if not wait_until_free(self.port, PORT_FREE_S):
            raise errors.StopFailed(
                f"port {self.port} is still held by {describe_holder(self.port)}",
                hint="end that process",
                log_path=self.log_path,
            )
        before = used_before(self._hardware_lease) if self._hardware_lease else {}
        if before and (held := gpus.wait_for_memory(before, limit_s=GPU_FREE_S)):
            raise errors.StopFailed(
                f"GPU memory was not released within {GPU_FREE_S:.0f} s: {gpus.describe_gpus(held)}",
                hint="end the process named above; memory without a process is a leak of vLLM",
                log_path=self.log_path,
            )

    def _stop_quietly(self) -> None:
        try:
            self._end()
        except errors.StopFailed as error:
            self._progress.phase(self.model, f"cleaning up failed: {error.message}", 0.0)
        finally:
            self._release_leases()

    def _release_leases(self) -> None:
        for lease in (self._port_lease, self._hardware_lease):
            if lease is not None:
                lease.release()
        self._port_lease = self._hardware_lease = None

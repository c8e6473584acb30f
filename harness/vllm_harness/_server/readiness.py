"""Watches a server's start: which phase it is in, when it is ready, and why it fails."""

from __future__ import annotations

import time
from pathlib import Path
from urllib.parse import urlsplit

import requests

from vllm_harness._exchange.endpoint import Endpoint, ask
from vllm_harness._machine.control_groups import oom_kills
from vllm_harness._machine.tasks import raise_if_interrupted
from vllm_harness._server import errors
from vllm_harness._server.diagnosis import ServerEnd, log_lines
from vllm_harness._server.launch import Launch
from vllm_harness._server.leases.ports import describe_holder, listeners
from vllm_harness._server.phases import PhaseTracker
from vllm_harness._server.process_tree import tree_pids
from vllm_harness._server.progress import StartProgress
from vllm_harness._server.supervised import Supervised

POLL_S = 0.1
HEALTH_TIMEOUT_S = 5.0


class StartWatch:
    """Watches a server's start, which begins now; `phases` maps each phase to the second when it began."""

    def __init__(
        self, launch: Launch, *, port: int, log_path: Path, limit_s: float, progress: StartProgress
    ) -> None:
        self._name, self._environment = launch.name, launch.environment
        self._port = port
        self._log_path = log_path
        self._limit_s = limit_s
        self._progress = progress
        self._start = time.monotonic()
        self._earlier_oom_kills = oom_kills()
        self._tracker = PhaseTracker(log_path)
        self.phases = {"import": 0.0}

    @property
    def elapsed_s(self) -> float:
        """Seconds since the start began."""
        return time.monotonic() - self._start

    def show(self, step: str) -> None:
        """Reports a step to the progress display."""
        self._progress.phase(self._name, step, self.elapsed_s)

    def end(self, exit_code: int | None) -> ServerEnd:
        """Describes the end of the server, whenever it came."""
        return ServerEnd(
            log_path=self._log_path,
            exit_code=exit_code,
            orphaned=exit_code is None,
            oom_kills=oom_kills() - self._earlier_oom_kills,
            port=self._port,
            environment=self._environment,
        )

    def wait(self, process: Supervised, endpoint: Endpoint) -> None:
        """Waits until the server is ready.

        Raises:
            StartupError: the server did not start; a subclass names the cause.
            KeyboardInterrupt: the waiting task was interrupted.
        """
        while True:
            elapsed_s = self.elapsed_s
            if self._tracker.advance():
                self.phases.setdefault(self._tracker.phase, elapsed_s)
            self.show(self._tracker.phase)
            raise_if_interrupted()
            if process.ended:
                raise self.end(process.exit_code).of_start()
            if self._is_healthy(process, endpoint):
                break
            if elapsed_s > self._limit_s:
                raise errors.StartupTimeout(
                    f"{self._name!r} was not ready after {self._limit_s:.0f} s, "
                    f"in phase {self._tracker.phase!r}",
                    hint="raise limits.startup_s of the entry, or look in the log for the slow step",
                    lines=log_lines(self._log_path)[-3:],
                    log_path=self._log_path,
                )
            time.sleep(POLL_S)
        self._check_name(endpoint)

    def _is_healthy(self, process: Supervised, endpoint: Endpoint) -> bool:
        """Whether the server is healthy; it is an error if another process answers on its port."""
        try:
            answer = ask("GET", endpoint.url_for("/health"), endpoint.ca, timeout=HEALTH_TIMEOUT_S)
        except requests.RequestException as error:
            if not (refused := str(error).partition("certificate verify failed: ")[2]):
                return False
            raise errors.StartupError(
                f"clients refuse the server's certificate {endpoint.ca}: {refused.partition(' (_ssl')[0]}",
                hint=f"make a certificate whose subjectAltName has {urlsplit(endpoint.base_url).hostname}",
                log_path=self._log_path,
            ) from error
        if listeners(self._port) - tree_pids(process.pid() or 0):
            raise errors.PortTaken(
                f"port {self._port} is held by {describe_holder(self._port)}, not by the started server",
                hint="leave the port out; the harness then leases a free port",
                log_path=self._log_path,
            )
        return answer.status_code == 200

    def _check_name(self, endpoint: Endpoint) -> None:
        answer = endpoint.get("/v1/models", timeout=HEALTH_TIMEOUT_S * 4)
        served = [model.get("id") for model in answer.json().get("data", [])] if answer.ok else []
        if self._name not in served:
            raise errors.NameNotServed(
                f"the server is healthy but /v1/models (HTTP {answer.status_code}) lists {served}, "
                f"not {self._name!r}",
                hint="do not override --served-model-name",
                log_path=self._log_path,
            )

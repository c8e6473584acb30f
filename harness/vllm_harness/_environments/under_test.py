"""The vLLM under test: an environment and a front end."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._terminal.status import Progress, quiet

if TYPE_CHECKING:
    from vllm_harness._machine.shard import Preparation


def _this_process() -> str:
    return f"{socket.gethostname()} {os.getpid()}"


@dataclass(frozen=True)
class VllmUnderTest:
    """The vLLM under test: spec, environment, front end, and the process that resolved the environment."""

    spec: str
    environment: Environment
    frontend: Frontend = "python"
    process: str = field(default_factory=_this_process, compare=False)

    def here(self, progress: Progress = quiet) -> VllmUnderTest:
        """Returns this vLLM, after finding or making its environment again if another process resolved it.

        Raises:
            HarnessError: see `resolve`.
        """
        if self.process == _this_process():
            return self
        device = self.environment.device if self.environment.kind == "release" else None
        environment = resolve(self.spec or None, device, create=True, progress=progress)
        return replace(self, environment=environment, process=_this_process())

    @property
    def preparation(self) -> Preparation:
        """The preparation that makes the environment on a machine before the environment is used."""
        from vllm_harness._machine.shard import Preparation  # only a run in shards has preparations

        return Preparation(f"vLLM {self.spec}", self._prepare)

    def _prepare(self, say: Progress) -> None:
        self.here(say)

    @property
    def name(self) -> str:
        """The name in results: the spec, followed by the front end unless that is `python`."""
        return self.spec if self.frontend == "python" else f"{self.spec}+{self.frontend}"

    @property
    def described(self) -> str:
        """The full description of the environment and its front end."""
        described = self.environment.describe()
        return described if self.frontend == "python" else f"{described}, {self.frontend} front end"

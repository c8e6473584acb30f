"""A vLLM that is tested: an environment, and the front end that answers."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field, replace

from vllm_harness._configuration.model_entries import Frontend
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.spec import Environment
from vllm_harness._machine.shard import Preparation, Say
from vllm_harness._terminal.status import quiet


def _this_process() -> str:
    return f"{socket.gethostname()} {os.getpid()}"


@dataclass(frozen=True)
class VllmUnderTest:
    """A vLLM: the environment as in `--vllm`, and resolved, and the front end that answers.

    Attributes:
        process: that resolved the environment.
    """

    spec: str
    environment: Environment
    frontend: Frontend = "python"
    process: str = field(default_factory=_this_process, compare=False)

    def here(self, progress: Say = quiet) -> VllmUnderTest:
        """This vLLM in the process that asks: resolved anew, and made, where it came from another one.

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
        """What makes the environment on a machine before the work that needs it."""
        return Preparation(f"vLLM {self.spec}", self._prepare)

    def _prepare(self, say: Say) -> None:
        self.here(say)

    @property
    def name(self) -> str:
        """What its cells are found by."""
        return self.spec if self.frontend == "python" else f"{self.spec}+{self.frontend}"

    @property
    def described(self) -> str:
        """The environment in full."""
        described = self.environment.describe()
        return described if self.frontend == "python" else f"{described}, {self.frontend} front end"

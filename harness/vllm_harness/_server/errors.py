"""Server errors: a class for each cause, with the decisive lines of the server's log."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vllm_harness._errors import HarnessError


class ServerError(HarnessError):
    """An error of a vLLM server.

    Args:
        message: what happened.
        hint: what to try.
        lines: the decisive lines of the server's log.
        log_path: the path of the whole log.
    """

    __module__ = "vllm_harness"

    def __init__(
        self, message: str, *, hint: str = "", lines: Sequence[str] = (), log_path: Path | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.lines = tuple(lines)
        self.log_path = log_path

    def __str__(self) -> str:
        parts = [self.message]
        parts += [f"  log: {line}" for line in self.lines]
        if self.hint:
            parts.append(f"  try: {self.hint}")
        if self.log_path:
            parts.append(f"  whole log: {self.log_path}")
        return "\n".join(parts)


class StartupError(ServerError):
    """The server did not start; a subclass names the cause if it is known."""

    __module__ = "vllm_harness"


class MachineError(StartupError):
    """The server did not start because of the state of this machine."""

    of_machine = True


class NoCudaDevice(MachineError):
    """The server needs a CUDA device, and the machine does not have one."""


class GpuOutOfMemory(MachineError):
    """There is too little free GPU memory."""


class CpuMemoryTooSmall(MachineError):
    """There is too little free memory on the NUMA node, or none left for the KV cache."""


class KvCacheTooSmall(StartupError):
    """The memory left for the KV cache is too small for a request of the model's full length."""


class ModelNotFound(StartupError):
    """The model's name is neither that of a local folder nor that of a repository on the hub."""


class DamagedWeights(StartupError):
    """A weights file is truncated, or its content does not match its header."""


class HubUnreachable(MachineError):
    """The model hub cannot be reached, and the model is not in the local cache."""


class GatedModel(StartupError):
    """The model's repository requires an accepted licence and a token."""


class UnknownParser(StartupError):
    """This vLLM does not have the requested tool parser or reasoning parser."""


class UnknownFlag(StartupError):
    """This vLLM does not know a flag, or refuses its value."""


class UnsupportedArchitecture(StartupError):
    """This vLLM does not support the model's architecture."""


class PortTaken(MachineError):
    """Another process listens on the server's port."""


class WrongTorchBuild(StartupError):
    """vLLM's compiled kernels do not match the installed torch."""


class MissingOperator(StartupError):
    """vLLM's Python code calls a compiled operator that the installed kernels lack."""


class MissingPackage(StartupError):
    """The server's environment lacks a Python package or vLLM itself."""


class KilledByOom(MachineError):
    """The kernel's OOM killer ended a process of the server."""


class KilledProcess(MachineError):
    """Someone ended a process of the server, or its supervisor, by a signal."""


class CrashedProcess(StartupError):
    """A process of the server crashed in native code."""


class IllegalInstruction(MachineError):
    """A process of the server executed an instruction that this machine does not have or allow."""


class NoSpaceLeft(MachineError):
    """A disk or /dev/shm is full, or too small."""


class TooManyFiles(MachineError):
    """The limit on open files is too low."""


class DamagedInstallation(StartupError):
    """A file of the server's environment is truncated or damaged."""


class DamagedConfiguration(StartupError):
    """A configuration file of the model is empty or damaged."""


class RefusedConfiguration(StartupError):
    """vLLM refuses its configuration, such as a length above the model's limit."""


class StartupTimeout(MachineError):
    """The server was not ready within its time limit."""


class NameNotServed(StartupError):
    """The server is healthy, but `/v1/models` does not list the model's name."""


class ServerDied(ServerError):
    """The server ended while it was in use."""

    __module__ = "vllm_harness"


class StopFailed(ServerError):
    """The server left something behind: a process, the port, or GPU memory."""

    __module__ = "vllm_harness"

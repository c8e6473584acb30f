"""Groups of options that several commands share, and the objects that they select."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from vllm_harness._configuration.model_entries import Device, Frontend, Lane, ModelEntry, load_models
from vllm_harness._environments.resolve import resolve, spec_of
from vllm_harness._environments.spec import Environment
from vllm_harness._terminal.tables import plain_console


@dataclass(frozen=True)
class VllmOptions:
    """Options that choose which vLLM a server runs, and how."""

    vllm: str | None = None
    vllm_python: Path | None = None
    device: Device | None = None
    frontend: Frontend | None = None
    cold_start: bool = False
    models_file: Path | None = None

    def entry(self, model: str) -> ModelEntry:
        """The model entry with this name."""
        return load_models(self.models_file).get(model)

    def environment(self) -> Environment:
        """The server environment, which is created if it does not exist yet."""
        return environment(self.vllm, self.vllm_python, self.device)


@dataclass(frozen=True)
class ServerOptions(VllmOptions):
    """Options that choose the server for a command: a new server, or one that is already running."""

    lane: Lane | None = None
    server_url: str | None = None
    server_model: str | None = None
    api_key_env: str | None = None

    def lane_of(self, entry: ModelEntry, *, scriptable: bool = True) -> Lane:
        """The lane that the options name; by default the scripted lane if possible, else the live lane."""
        return self.lane or ("scripted" if scriptable and "scripted" in entry.lanes else "live")


def environment(vllm: str | None, vllm_python: Path | None, device: Device | None) -> Environment:
    """The server environment that the options name, which is created if it does not exist yet."""
    console = plain_console(stderr=True)
    return resolve(spec_of(vllm, vllm_python), device=device, create=True, progress=console.print)

"""Plans a server environment: finds its version and device without making it."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments.locks import lock_for
from vllm_harness._environments.resolve import default_device, default_spec, resolve
from vllm_harness._environments.spec import Spec, parse
from vllm_harness._environments.tree import Tree


@dataclass(frozen=True)
class PlannedEnvironment:
    """A server environment that may not exist yet: its spec, its device and its version of vLLM."""

    spec: str
    device: Device
    vllm_version: str


def plan(spec: str | None = None, device: Device | None = None) -> PlannedEnvironment:
    """Plans the environment that `resolve` would return, without installing or writing anything.

    The arguments and errors are the same as for `resolve`.
    """
    text = spec or default_spec(device or default_device())
    parsed = parse(text)
    if parsed.kind == "release":
        assert parsed.version
        lock = lock_for(parsed.version, device or default_device())
        return PlannedEnvironment(text, lock.device, parsed.version)
    if parsed.kind == "installed" or device == "cuda":  # `resolve` rejects grafts and trees for CUDA
        environment = resolve(text, device)
        return PlannedEnvironment(text, environment.device, environment.vllm_version)
    return PlannedEnvironment(text, "cpu", _version(parsed))


def _version(parsed: Spec) -> str:
    """The version of a graft's or tree's Python code; for a tree without a version, that of its kernels."""
    kernels = lock_for(parsed.kernels, "cpu")
    of_tree = Tree.at(parsed.tree).version if parsed.tree else None
    return parsed.version or of_tree or kernels.version

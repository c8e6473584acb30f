"""What is known of a server environment before it is made: enough to choose what a run exercises."""

from __future__ import annotations

from dataclasses import dataclass

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments.locks import lock_for
from vllm_harness._environments.resolve import default_device, default_spec, resolve
from vllm_harness._environments.spec import Spec, parse
from vllm_harness._environments.tree import Tree


@dataclass(frozen=True)
class PlannedEnvironment:
    """A server environment that need not be there yet.

    Attributes:
        spec: names it, for `resolve`.
        device: what vLLM is built for there.
        vllm_version: version of vLLM's Python code.
    """

    spec: str
    device: Device
    vllm_version: str


def plan(spec: str | None = None, device: Device | None = None) -> PlannedEnvironment:
    """What `resolve` would give; nothing is made, installed or downloaded, and no file is written.

    Args:
        spec: as for `resolve`.
        device: as for `resolve`.

    Raises:
        UsageError: malformed spec, no lock for that release, no vLLM in that tree, or the other device.
        NoVllmError: the interpreter has no vLLM.
    """
    text = spec or default_spec(device or default_device())
    wanted = parse(text)
    if wanted.kind == "release":
        assert wanted.version
        lock = lock_for(wanted.version, device or default_device())
        return PlannedEnvironment(text, lock.device, wanted.version)
    if wanted.kind == "installed" or device == "cuda":  # grafts and trees are refused for CUDA there
        found = resolve(text, device)
        return PlannedEnvironment(text, found.device, found.vllm_version)
    return PlannedEnvironment(text, "cpu", _version(wanted))


def _version(wanted: Spec) -> str:
    """Version of a graft or tree over the kernels that it names, else the newest."""
    kernels = lock_for(wanted.kernels, "cpu")
    of_tree = Tree.at(wanted.tree).version if wanted.tree else None
    return wanted.version or of_tree or kernels.version

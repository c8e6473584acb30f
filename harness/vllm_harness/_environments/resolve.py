"""Resolves a spec to the environment that it names."""

from __future__ import annotations

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments import installed, locks, release
from vllm_harness._environments.spec import Environment, parse
from vllm_harness._errors import UsageError
from vllm_harness._terminal.status import Progress, quiet


def default_device() -> Device:
    """`cuda` if there is a GPU that CUDA_VISIBLE_DEVICES does not hide, and otherwise `cpu`."""
    from vllm_harness._machine.gpus import visible_gpus  # slow to import, and often not needed

    return "cuda" if visible_gpus() else "cpu"


def default_spec(device: Device) -> str:
    """The default spec: this interpreter if it has vLLM, and otherwise the newest release."""
    if installed.current_has_vllm():
        return "installed"
    return locks.lock_for(None, device).version


def spec_of(vllm: str | None, vllm_python: object | None) -> str | None:
    """The given spec, or the spec for an interpreter's path. Raises UsageError if both are given."""
    if vllm and vllm_python:
        raise UsageError(
            f"the environment is named twice: {vllm}, and the interpreter {vllm_python}",
            hint="name it only once",
        )
    return f"installed:{vllm_python}" if vllm_python else vllm


def resolve(
    spec: str | None = None, device: Device | None = None, create: bool = False, progress: Progress = quiet
) -> Environment:
    """Returns the environment that a spec names.

    Args:
        spec: `0.32.0`, `0.33.0@0.32.0`, `tree:/path@0.32.0`, `installed` or `installed:/path/to/python`;
            None for `default_spec`.
        device: cpu or cuda; None for the machine's device (release) or that of the vLLM build (installed). A
            graft or tree is always for cpu.
        create: whether to make the environment if it is missing.
        progress: receives a line for each step.

    Raises:
        UsageError: the spec is malformed, the release has no lock, the tree has no vLLM, or the device does
            not match.
        NoVllmError: the interpreter has no vLLM.
        MissingEnvironmentError: the environment has not been made, and `create` is False.
        InstallError, BrokenEnvironmentError: the environment cannot be made.
    """
    parsed = parse(spec or default_spec(device or default_device()))
    if parsed.kind == "release":
        assert parsed.version
        device = device or default_device()
        if create:
            return release.create(parsed.version, device, progress=progress)
        return release.find(parsed.version, device)
    if parsed.kind in ("graft", "tree"):
        from vllm_harness._environments import graft

        if device == "cuda":
            raise UsageError(
                f"`{spec}` is for cpu only: grafts and trees take their kernels from CPU builds",
                hint="leave the device out; for CUDA, install that vLLM and name its interpreter",
            )
        return (graft.create if create else graft.find)(parsed, progress=progress)
    environment = installed.environment(parsed.python)
    if device and device != environment.device:
        raise UsageError(
            f"{environment.python} has vLLM built for {environment.device}, not {device}",
            hint="leave the device out, or name a release, such as 0.32.0",
        )
    return environment

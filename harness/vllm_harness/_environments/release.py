"""Releases: virtual environments, each made from a lock and named after it."""

from __future__ import annotations

import sys
from pathlib import Path

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments import store
from vllm_harness._environments.locks import Lock, lock_for
from vllm_harness._environments.spec import Environment
from vllm_harness._terminal.status import Progress, quiet

PYTHONS = ("3.11", "3.12", "3.13")
"""The versions of Python on which a server can run."""


def find(version: str, device: Device) -> Environment:
    """Finds the environment of a release. Raises UsageError (no lock) and MissingEnvironmentError."""
    lock = lock_for(version, device)
    for minor in minors():
        if environment := store.read(folder_of(lock, minor)):
            return environment
    raise store.MissingEnvironmentError(
        f"the environment of vLLM {version} ({device}) has not been made yet",
        hint=f"vllm-harness env create {version} --device {device}",
    )


def create(version: str, device: Device, *, progress: Progress = quiet) -> Environment:
    """Finds the environment of a release, or makes it.

    Raises:
        UsageError: the release has no lock.
        InstallError: a package is missing, the network is unavailable, or the disk is full.
        BrokenEnvironmentError: vLLM cannot be imported.
    """
    try:
        return find(version, device)
    except store.MissingEnvironmentError:
        from vllm_harness._environments.release_making import make

        return make(lock_for(version, device), progress)


def minors() -> list[str]:
    """The Python versions on which a server can run, this interpreter's first."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    return sorted(PYTHONS, key=lambda minor: minor != running)


def folder_of(lock: Lock, minor: str) -> Path:
    """The folder of the environment of a release with this Python, such as `3.12`."""
    return store.environments_folder() / f"{lock.name}-py{minor}-{lock.digest}"

"""The folders of the harness: its data files, its cache, its state."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import platformdirs

from vllm_harness._errors import UsageError
from vllm_harness._files.folders import Purpose, own_folder, shared_folder

APP = "vllm-harness"
CACHE = Purpose("the cache", "VLLM_HARNESS_CACHE")
STATE = Purpose("the state folder", "VLLM_HARNESS_STATE")
_PACKAGE = Path(__file__).resolve().parents[1]
_DATA = _PACKAGE / "_data"
"""Where an installed package has its data files; a checkout has them at its top."""


def checkout() -> Path | None:
    """The checkout that the package runs from, which has the suites; None where it is installed."""
    return None if _DATA.is_dir() else _PACKAGE.parents[1]


def root_of_tests(tests: str) -> Path:
    """The folder that has a folder of tests: the checkout, or where this process runs, as shipped with a run.

    Raises:
        UsageError: there is none.
    """
    for root in filter(None, (checkout(), Path.cwd())):
        if (root / tests).is_dir():
            return root
    raise UsageError(
        f"{socket.gethostname()} has no {tests}",
        hint="run this in a checkout of vllm-harness, or have the tests shipped: VLLM_HARNESS_RAY_SHIP=1",
    )


def data_path(name: str) -> Path:
    """Path of a data file of the project (`models.yaml`, `env`): in the checkout, else in the package."""
    return (checkout() or _DATA) / name


def cache_dir() -> Path:
    """Folder of downloads and environments, kept between runs (`VLLM_HARNESS_CACHE` overrides it).

    Raises:
        UntrustedFolder: another user could have written to it.
    """
    return shared_folder(Path(os.environ.get(CACHE.variable) or platformdirs.user_cache_dir(APP)), CACHE)


def state_dir() -> Path:
    """Folder of logs, leases and run records (`VLLM_HARNESS_STATE` overrides it).

    Raises:
        UntrustedFolder: another user could have written to it.
    """
    return own_folder(Path(os.environ.get(STATE.variable) or platformdirs.user_state_dir(APP)), STATE)


def run_folder(kind: str, name: str) -> Path:
    """Folder of a run: the path given, or, of a bare name, the folder of that name for runs of its kind."""
    path = Path(name)
    return path if path.is_dir() or os.sep in name else state_dir() / kind / name

"""The paths of the harness's data files, cache and state."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from vllm_harness._files.folders import Purpose, own_folder, shared_folder

APP = "vllm-harness"
CACHE = Purpose("the cache", "VLLM_HARNESS_CACHE")
STATE = Purpose("the state folder", "VLLM_HARNESS_STATE")
_PACKAGE = Path(__file__).resolve().parents[1]
_DATA = _PACKAGE / "_data"
"""The folder of an installed package's data files; in a checkout, they are in the root folder."""


def checkout() -> Path | None:
    """The checkout that the package runs from; None if the package is installed."""
    return None if _DATA.is_dir() else _PACKAGE.parents[1]


def data_path(name: str) -> Path:
    """The path of a data file or folder (`models.yaml`, `env`) in the checkout, or else in the package."""
    return (checkout() or _DATA) / name


def cache_dir() -> Path:
    """The folder of downloads and environments (`VLLM_HARNESS_CACHE` overrides it).

    Raises:
        UntrustedFolder: another user could have written to it.
    """
    return shared_folder(Path(os.environ.get(CACHE.variable) or platformdirs.user_cache_dir(APP)), CACHE)


def state_dir() -> Path:
    """The folder of logs, leases and run records (`VLLM_HARNESS_STATE` overrides it).

    Raises:
        UntrustedFolder: another user could have written to it.
    """
    return own_folder(Path(os.environ.get(STATE.variable) or platformdirs.user_state_dir(APP)), STATE)


def run_folder(kind: str, name: str) -> Path:
    """The folder of a run that is given as a path, or as the bare name of a stored run of this kind."""
    path = Path(name)
    return path if path.is_dir() or os.sep in name else state_dir() / kind / name

"""Where the harness keeps things: its data files, its cache, its runs."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

APP = "vllm-harness"


def data_path(name: str) -> Path:
    """Path of a data file of the project (`models.yaml`, `env`): in the checkout, else in the package."""
    package = Path(__file__).resolve().parent
    checkout = package.parent / name
    return (
        checkout
        if (package.parent / "pyproject.toml").exists() and checkout.exists()
        else package / "_data" / name
    )


def cache_dir() -> Path:
    """Folder of downloads and environments, kept between runs (`VLLM_HARNESS_CACHE` overrides it)."""
    return _made(Path(os.environ.get("VLLM_HARNESS_CACHE") or platformdirs.user_cache_dir(APP)))


def state_dir() -> Path:
    """Folder of logs, leases and run records (`VLLM_HARNESS_STATE` overrides it)."""
    return _made(Path(os.environ.get("VLLM_HARNESS_STATE") or platformdirs.user_state_dir(APP)))


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path

"""Fixtures: a small bundle, and a separate cache for each test."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest

from vllm_harness._environments.locks import lock_for
from vllm_harness.extras.bundles.parts import pack

HERE = {
    "python": ".".join(map(str, sys.version_info[:2])),
    "machine": platform.machine(),
    "system": sys.platform,
}


ABOUT = {
    **HERE,
    "vllm": "0.32.0",
    "device": "cpu",
    "lock": lock_for("0.32.0", "cpu").digest,
    "without_torch": False,
    "models": [],
    "assets": [],
    "hub": [],
}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("VLLM_HARNESS_CACHE", str(folder))
    return folder


@pytest.fixture
def content(tmp_path: Path) -> Path:
    """A folder to pack: 2500 bytes in three files, one of them empty."""
    folder = tmp_path / "content"
    for name, size in {"wheels/a.whl": 1700, "wheels/b.whl": 0, "assets/t/tokenizer.json": 800}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(i * len(name) % 251 for i in range(size)))
    return folder


@pytest.fixture
def bundle(tmp_path: Path, content: Path) -> Path:
    """A bundle with the folder `content` in three parts, for this machine and the lock of 0.32.0."""
    folder = tmp_path / "bundle"
    folder.mkdir()
    pack(content, folder, 1000, ABOUT)
    return folder

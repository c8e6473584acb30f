"""Fixtures: the release as it is uploaded, and an environment in which only the release is installed."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from vllm_harness._environments.installer import run_uv

CHECKOUT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Release:
    """The files of a release that are uploaded to the package index.

    Attributes:
        sdist: the source distribution.
        wheel: the wheel, built from the source distribution.
    """

    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class Installation:
    """An environment in which the wheel is installed.

    Attributes:
        folder: the environment's folder.
    """

    folder: Path

    @property
    def package(self) -> Path:
        """The folder of the installed import package."""
        return next(self.folder.glob("lib/python*/site-packages/vllm_harness"))

    def run(self, command: str, *arguments: str, within: Path) -> subprocess.CompletedProcess[str]:
        """Runs a command of the environment in a folder; the output includes standard error."""
        return subprocess.run(
            [str(self.folder / "bin" / command), *arguments],
            cwd=within,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )


@pytest.fixture(scope="session")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The release built from this checkout, with the hatchling of this environment."""
    folder = tmp_path_factory.mktemp("release")
    offline = ("--no-build-isolation", "--python", sys.executable)
    run_uv("build", *offline, "--out-dir", folder, CHECKOUT, progress=print)
    return Release(next(folder.glob("*.tar.gz")), next(folder.glob("*.whl")))


@pytest.fixture(scope="session")
def installation(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """An environment with only the wheel and its locked dependencies."""
    folder = tmp_path_factory.mktemp("installation") / "venv"
    run_uv("venv", "--python", sys.executable, folder, progress=print)
    lock = CHECKOUT / "env" / "harness.lock"
    run_uv("pip", "install", "--python", folder, "--constraint", lock, release.wheel, progress=print)
    return Installation(folder)

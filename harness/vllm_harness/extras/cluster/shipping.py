"""Prepares what is sent to the nodes: a wheel of the harness, and the versions of its dependencies."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from vllm_harness._errors import HarnessError, UsageError
from vllm_harness._files.paths import checkout
from vllm_harness._machine.processes import run_captured

NAME = "vllm-harness"
SHIP = "VLLM_HARNESS_RAY_SHIP"
"""The environment variable to set to `0` if the nodes already have the harness in the same version."""
PASSED_ON = ("VLLM_HARNESS_LEASE_WAIT_S",)
_ON_NODE = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"


class ShippingError(HarnessError):
    """No wheel of the harness can be made."""


def variables() -> dict[str, str]:
    """Environment variables for all processes of a run on nodes; they make fork servers end with the run."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {"VLLM_HARNESS_LINGER_S": "0", **passed_on}


def runtime_env(folder: Path, tests: bool = False, extra: str = "") -> dict[str, Any]:
    """Ray's runtime environment for the workers of a run.

    Args:
        folder: an empty folder for the files to send, which must exist until Ray is connected.
        tests: whether to send the checkout's tests and the packages that they import.
        extra: the name of an extra, such as `load`, whose packages the nodes need.

    Raises:
        UsageError: the variable `SHIP` is neither 0 nor 1.
        ShippingError: no wheel can be made.
    """
    if not ships():
        return {"env_vars": variables()}
    wheel = make_wheel(folder)
    if tests:
        _copy_tests(folder)
    further = [*(_of_tests() if tests else ()), *(_required(NAME, extra) if extra else ())]
    return {
        "env_vars": variables(),
        "working_dir": str(folder),
        "uv": {
            "packages": [*pins(further), f"{_ON_NODE}/{wheel.name}"],
            "uv_pip_install_options": ["--quiet"],
        },
    }


def ships() -> bool:
    """Whether a run sends the harness to the nodes. Raises UsageError if `SHIP` is neither 0 nor 1."""
    value = os.environ.get(SHIP, "1")
    if value not in ("0", "1"):
        raise UsageError(f"{SHIP} is {value!r}, neither 0 nor 1", hint=f"set {SHIP} to 0 or 1, or unset it")
    return value == "1"


def make_wheel(folder: Path) -> Path:
    """Makes a wheel of the harness that runs here: built from the checkout, or packed from the installation.

    Raises:
        ShippingError: the build fails.
    """
    root = checkout()
    if root is None:
        return _packed(folder)
    command = (sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder)
    built = run_captured(*command, cwd=root)
    if built.returncode:
        raise ShippingError(
            f"no wheel can be built from {root}:\n{built.stderr.strip()[-800:]}",
            hint=f"install hatchling beside the harness, or set {SHIP}=0 if the nodes have the harness",
        )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _packed(folder: Path) -> Path:
    distribution = importlib.metadata.distribution(NAME)
    wheel = folder / f"vllm_harness-{distribution.version}-py3-none-any.whl"
    files = [file for file in distribution.files or () if _is_of_wheel(file)]
    if not files:
        raise ShippingError(
            f"the installed {NAME} has no record of its files", hint=f"install it again, or set {SHIP}=0"
        )
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            archive.write(Path(str(file.locate())), file.as_posix())
    return wheel


def _is_of_wheel(file: importlib.metadata.PackagePath) -> bool:
    outside = file.parts[0] == ".." or "__pycache__" in file.parts
    return not outside and file.name not in ("INSTALLER", "REQUESTED", "direct_url.json")


def _copy_tests(folder: Path) -> None:
    root = _checkout()
    shutil.copytree(root / "tests", folder / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", folder)  # pytest's settings


def _of_tests() -> list[str]:
    """The packages that the tests import and that are installed here."""
    project = tomllib.loads((_checkout() / "pyproject.toml").read_text())
    requirements = [text for text in project["dependency-groups"]["dev"] if isinstance(text, str)]
    names = [canonicalize_name(Requirement(text).name) for text in requirements]
    installed = {canonicalize_name(each.name) for each in importlib.metadata.distributions()}
    return [name for name in names if name in installed]


def _checkout() -> Path:
    root = checkout()
    if root is None:
        raise ShippingError(
            "the installed harness has no tests to send", hint="run the command in a checkout of the harness"
        )
    return root


def pins(further: Sequence[str] = ()) -> list[str]:
    """Pins of the dependencies of the harness and of further packages, as installed: `httpx==0.28.1`."""
    versions = {name: importlib.metadata.version(name) for name in further}
    pending = [NAME, *further]
    while pending:
        for name in _required(pending.pop()):
            if name not in versions:
                versions[name] = importlib.metadata.version(name)
                pending.append(name)
    return [f"{name}=={version}" for name, version in sorted(versions.items())]


def _required(name: str, extra: str = "") -> Iterator[str]:
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield canonicalize_name(requirement.name)

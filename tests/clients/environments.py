"""Environments of third-party clients; each is a folder in the cache that is made on first use."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

from vllm_harness._environments.installer import InstallError, run_uv
from vllm_harness._errors import HarnessError
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import Progress, quiet

HERE = Path(__file__).parent
RUN_S = 300
NO_INDEX = (
    r"error sending request|dns error|[Cc]onnect|ENOTFOUND|ECONN|EAI_AGAIN|ETIMEDOUT|timed out|"
    r"Failed to fetch|provided package locations|network connectivity is disabled|ENOTCACHED"
)


class NotToBeHadError(HarnessError):
    """This machine lacks Node or access to a package index, which the client needs."""


class ClientFailedError(AssertionError):
    """The client's program failed; the message includes the end of its output."""


class Client(BaseModel):
    """An entry in clients.yaml; the header of that file explains the fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    kind: Literal["python", "node"]
    requirements: tuple[str, ...]
    program: str
    cases: dict[Literal["responses", "chat", "messages"], tuple[str, ...]]
    env: dict[str, str] = {}

    @property
    def folder(self) -> Path:
        """The folder of the client's environment, which may not exist yet."""
        made_of = json.dumps([self.kind, self.requirements, sys.version_info[:2]])
        return cache_dir() / "clients" / f"{self.name}-{hashlib.sha256(made_of.encode()).hexdigest()[:8]}"

    def make(self, progress: Progress = quiet) -> None:
        """Makes the client's environment unless it exists.

        Raises:
            NotToBeHadError: Node is missing, or no package index can be reached.
            InstallError: the installation failed for another reason.
        """
        with locked_for_making(self.folder, progress):
            if self.folder.exists():
                return
            progress(f"making the environment of {self.name}")
            try:
                with temporary_folder(self.folder.parent) as half:
                    {"python": _make_python, "node": _make_node}[self.kind](half, self.requirements, progress)
                    half.rename(self.folder)
            except InstallError as error:
                if re.search(NO_INDEX, str(error)):
                    raise NotToBeHadError(f"{self.name}: no package index can be reached") from error
                raise

    def run(self, *arguments: str, environ: Mapping[str, str]) -> Any:
        """Runs the client's program and parses the JSON that the program prints.

        Raises:
            NotToBeHadError: Node is missing.
            ClientFailedError: the program failed or timed out.
        """
        program = HERE / "programs" / self.program
        if self.kind == "python":
            command, source = [str(self.folder / "bin" / "python"), "-P", str(program)], ""
        else:  # passed as standard input, so that Node looks up packages in the working folder
            command, source = [_tool("node"), "--input-type=module", "-"], program.read_text()
        try:
            done = subprocess.run(
                [*command, *arguments],
                input=source,
                cwd=self.folder,
                env={**os.environ, **self.env, **environ},
                capture_output=True,
                text=True,
                timeout=RUN_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise ClientFailedError(f"{self.name} did not finish in {RUN_S} s: {error.stderr}") from error
        if done.returncode:
            raise ClientFailedError(f"{self.name} failed:\n{done.stderr[-4000:]}")
        return json.loads(done.stdout)


def clients() -> dict[str, Client]:
    """Returns the clients in clients.yaml by name."""
    data = yaml.safe_load((HERE / "clients.yaml").read_text())
    return {name: Client(name=name, **fields) for name, fields in data.items()}


def _make_python(folder: Path, requirements: Sequence[str], progress: Progress) -> None:
    run_uv("venv", "--relocatable", "--allow-existing", "--python", sys.executable, folder, progress=progress)
    python = folder / "bin" / "python"
    run_uv("pip", "install", "--python", python, *requirements, progress=progress)


def _make_node(folder: Path, requirements: Sequence[str], progress: Progress) -> None:
    _tool("node")
    command = [_tool("npm"), "install", "--no-audit", "--no-fund", "--ignore-scripts", "--save-exact"]
    done = subprocess.run(
        [*command, "--prefix", str(folder), *requirements],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise InstallError(f"`npm install` failed:\n    {done.stderr[-2000:]}")


def _tool(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise NotToBeHadError(f"{name} is not installed on this machine", hint="install Node.js 20 or newer")
    return found

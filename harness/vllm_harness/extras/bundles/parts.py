"""Packs a folder into a manifest and parts: its files, concatenated and split at the part size."""

from __future__ import annotations

import hashlib
import json
import lzma
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

from vllm_harness.extras.bundles import install

PART_NAME = "part-{:04}"


class _Parts:
    """An output stream that continues in a new file (part) whenever a file is full."""

    def __init__(self, folder: Path, size: int) -> None:
        self._folder, self._size = folder, size
        self._file: BinaryIO | None = None
        self._space = 0
        self._digest = hashlib.sha256()
        self.made: list[dict[str, Any]] = []

    def write(self, block: bytes) -> None:
        """Appends a block, which may span several parts."""
        while block:
            if not self._space:
                self._next()
            assert self._file is not None
            piece, block = block[: self._space], block[self._space :]
            self._file.write(piece)
            self._digest.update(piece)
            self._space -= len(piece)

    def close(self) -> None:
        """Closes the current part."""
        if self._file is not None:
            self._file.close()
            size, sha256 = self._size - self._space, self._digest.hexdigest()
            self.made.append({"name": Path(self._file.name).name, "size": size, "sha256": sha256})
            self._file = None

    def _next(self) -> None:
        self.close()
        path = self._folder / PART_NAME.format(len(self.made) + 1)
        self._file, self._space, self._digest = path.open("wb"), self._size, hashlib.sha256()


def pack(
    content: Path, bundle: Path, part_size: int, about: Mapping[str, Any], *, compressed: bool = False
) -> dict[str, Any]:
    """Writes the parts, the manifest and the installer into `bundle`.

    Args:
        content: the folder to pack; symbolic links are followed.
        bundle: an existing folder.
        part_size: the maximum size of a part in bytes.
        about: keys to add to the manifest, read by `install.check_machine` and `place.install`.
        compressed: compress all files together, with xz.

    Returns:
        The manifest: `format`, `compressed`, the keys of `about`, and `files` and `parts` with their hashes.
    """
    parts = _Parts(bundle, part_size)
    compressor = lzma.LZMACompressor(preset=6) if compressed else None
    files = []
    for path in sorted(path for path in content.rglob("*") if path.is_file()):
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(install.BLOCK):
                parts.write(compressor.compress(block) if compressor else block)
                digest.update(block)
        name = path.relative_to(content).as_posix()
        files.append({"path": name, "size": path.stat().st_size, "sha256": digest.hexdigest()})
    if compressor:
        parts.write(compressor.flush())
    parts.close()
    manifest = {
        "format": install.FORMAT,
        **about,
        "compressed": compressed,
        "files": files,
        "parts": parts.made,
    }
    (bundle / install.MANIFEST).write_text(json.dumps(manifest, indent=1))
    shutil.copyfile(install.__file__, bundle / "install.py")
    return manifest

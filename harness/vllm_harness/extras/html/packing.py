"""Packs JSON for the page: compressed, in characters without a special meaning in HTML."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

BLOCK = 400_000  # characters of JSON in a block


def packed(value: Any) -> str:
    """Compresses a JSON value and encodes it in base64; equal values give equal texts."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # half a surrogate pair is valid in JSON, but not in UTF-8
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode()


class Blocks:
    """Collects the details of cases in packed blocks of several cases, which are quick to unpack.

    Args:
        room: the maximum number of characters of all packed blocks together.
    """

    def __init__(self, room: int) -> None:
        self.packed: list[str] = []
        self._room = room
        self._open: list[Any] = []
        self._size = 0

    @property
    def full(self) -> bool:
        """Whether there is no room left."""
        return self._room <= 0

    def add(self, detail: Any) -> tuple[int, int]:
        """Adds the details of a case; returns the index of the block, and the index within the block."""
        place = (len(self.packed), len(self._open))
        self._open.append(detail)
        self._size += len(json.dumps(detail))
        if self._size >= BLOCK:
            self.close()
        return place

    def close(self) -> None:
        """Packs the current block."""
        if self._open:
            self.packed.append(packed(self._open))
            self._room -= len(self.packed[-1])
        self._open, self._size = [], 0

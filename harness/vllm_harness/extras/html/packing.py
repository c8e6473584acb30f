"""JSON packed for a page: zipped, and in letters that mean nothing to HTML."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

BLOCK = 400_000  # characters of JSON that are packed together


def packed(value: Any) -> str:
    """A JSON value, zipped, in base64; the same text for the same value."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    # half a surrogate pair is a text of JSON, but not of UTF-8
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode()


class Blocks:
    """Details of cases, packed several together, so that one is quickly unpacked and all are small.

    Args:
        room: characters that all blocks may have together.
    """

    def __init__(self, room: int) -> None:
        self.packed: list[str] = []
        self._room = room
        self._open: list[Any] = []
        self._size = 0

    @property
    def full(self) -> bool:
        """Whether there is no room for more."""
        return self._room <= 0

    def add(self, detail: Any) -> tuple[int, int]:
        """Keeps a detail; the number of its block, and its place there."""
        place = (len(self.packed), len(self._open))
        self._open.append(detail)
        self._size += len(json.dumps(detail))
        if self._size >= BLOCK:
            self.close()
        return place

    def close(self) -> None:
        """Packs what is open."""
        if self._open:
            self.packed.append(packed(self._open))
            self._room -= len(self.packed[-1])
        self._open, self._size = [], 0

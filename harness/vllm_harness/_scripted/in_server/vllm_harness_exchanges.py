"""What the model was given and generated in requests that their client named: tokens, each with its text.

Runs inside the server, imports nothing of the harness beyond this folder.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import vllm_harness_uses as uses

KEPT = 512
SHOWN_TOKENS = 8192
JOINED = 8  # tokens: of one character, at most
NO_CHARACTER = "\ufffd"

Decode = Callable[[list[int]], Awaitable[str]]
Pieces = list[dict[str, Any]]


@dataclass(frozen=True)
class NamedRequest:
    """A request that was scripted: its use, and the tokens of each take."""

    use: str
    takes: list[list[int]]
    by_choice: bool


class Exchanges:
    """The last requests that their clients named, by their names."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, NamedRequest] = OrderedDict()
        self._texts: dict[int, str] = {}

    def keep(self, name: str, exchange: NamedRequest) -> None:
        """Keeps a request."""
        self._kept[name] = exchange
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    async def generations(self, name: str, decode: Decode) -> list[dict[str, Any]]:
        """The generations of a request, in order: prompt and output in pieces; none of an unknown request."""
        if (kept := self._kept.get(name)) is None:
            return []
        found = []
        for status in uses.read_statuses(kept.use):
            index = status["choice" if kept.by_choice else "take"]
            take = kept.takes[index] if index < len(kept.takes) else []
            prompt = uses.read_prompt(kept.use, status["take"], status["choice"])
            found.append(
                {
                    "choice": status["choice"],
                    "prompt": await self._pieces(prompt, decode),
                    "output": await self._pieces(take[: status["position"]], decode),
                }
            )
        return found

    async def _pieces(self, ids: list[int], decode: Decode) -> Pieces:
        """Tokens with their texts; those that only make a character together are one piece."""
        pieces: Pieces = []
        held: list[int] = []
        for token in ids[:SHOWN_TOKENS]:
            held.append(token)
            text = await self._text(held, decode)
            if not text.endswith(NO_CHARACTER) or len(held) == JOINED:
                pieces.append({"ids": held, "text": text})
                held = []
        if rest := held + ids[SHOWN_TOKENS:]:
            pieces.append({"ids": rest, "text": await decode(rest)})
        return pieces

    async def _text(self, ids: list[int], decode: Decode) -> str:
        if len(ids) > 1:
            return await decode(ids)
        if ids[0] not in self._texts:
            self._texts[ids[0]] = await decode(ids)
        return self._texts[ids[0]]

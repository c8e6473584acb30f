"""The prompts and outputs of requests that a client named in a header: tokens with their texts.

Runs inside the server and imports nothing from the harness outside this folder.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import vllm_harness_uses as uses

KEPT = 512
SHOWN_TOKENS = 8192
JOINED = 8  # the largest number of tokens in one character
NO_CHARACTER = "\ufffd"

Decode = Callable[[list[int]], Awaitable[str]]
Pieces = list[dict[str, Any]]


@dataclass(frozen=True)
class NamedRequest:
    """A scripted request: the id of its use, its takes as token ids, and whether they are for choices."""

    use: str
    takes: list[list[int]]
    by_choice: bool


class Exchanges:
    """The latest requests that a client named, by that name."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, NamedRequest] = OrderedDict()

    def keep(self, name: str, request: NamedRequest) -> None:
        """Keeps a request, and drops the oldest if there are too many."""
        self._kept[name] = request
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    async def generations(self, name: str, decode: Decode) -> list[dict[str, Any]]:
        """The prompt and output of each generation of a request, in pieces; empty for an unknown request."""
        if (request := self._kept.get(name)) is None:
            return []
        generations = []
        for status in uses.read_statuses(request.use):
            index = status["choice" if request.by_choice else "take"]
            take = request.takes[index] if index < len(request.takes) else []
            prompt = uses.read_prompt(request.use, status["take"], status["choice"])
            generations.append(
                {
                    "choice": status["choice"],
                    "prompt": await _pieces(prompt, decode),
                    "output": await _pieces(take[: status["position"]], decode),
                }
            )
        return generations


async def texts(ids: list[int], decode: Decode) -> list[str]:
    """The text that each token completes; empty for a token that begins or continues a character."""
    pieces = await _pieces(ids, decode)
    return [text for piece in pieces for text in ([""] * (len(piece["ids"]) - 1) + [piece["text"]])]


async def _pieces(ids: list[int], decode: Decode) -> Pieces:
    """Token ids with their texts; tokens that form a character only together become one piece."""
    pieces: Pieces = []
    pending: list[int] = []
    for token in ids[:SHOWN_TOKENS]:
        pending.append(token)
        text = await decode(pending)
        if not text.endswith(NO_CHARACTER) or len(pending) == JOINED:
            pieces.append({"ids": pending, "text": text})
            pending = []
    if rest := pending + ids[SHOWN_TOKENS:]:
        pieces.append({"ids": rest, "text": await decode(rest)})
    return pieces

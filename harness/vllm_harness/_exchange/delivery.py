"""How the tokens of an answer arrive (a delivery), and the code that represents a delivery in files.

A code is `[API:]SHAPE[_NUMBER...][_with_end][:LOAD]`, such as `whole`, `tokens_3`, `all_with_end`,
`cut_at_3_7`, `chat:tokens_1` or `chat:whole:together`. A scripted server holds the delivery that a rule of
its book, or the header `x-vllm-harness-delivery` of a request, names; without one, vLLM merges tokens that it
has not sent yet.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator


class Chunking(StrEnum):
    """How a text is divided into chunks.

    `EVERY_CUT` and `RANDOM_CUTS` stand for several divisions. Each distinct answer is reported
    once, with the number of the first division that led to it.
    """

    WHOLE = "whole"
    """Not streamed."""
    TOKENS = "tokens"
    """The same number of tokens in each chunk."""
    ALL = "all"
    """All tokens in one chunk."""
    HELD_BACK = "held_back"
    """One token in each chunk, its text delayed by some characters, as a stop string in the request does."""
    CUT_AT = "cut_at"
    """Chunks that end after specified tokens."""
    CUT_AFTER = "cut_after"
    """Chunks that end with the tokens that complete specified characters of the text."""
    EVERY_CUT = "every_cut"
    """Two chunks; the cut is made after each token in turn."""
    RANDOM_CUTS = "random_cuts"
    """Chunks of random sizes, drawn with fixed seeds."""


class Api(StrEnum):
    """The HTTP API that delivers an answer."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


class Concurrency(StrEnum):
    """Whether a request was sent alone, or at the same time as others."""

    ALONE = "alone"
    TOGETHER = "together"


def _any_of(codes: type[StrEnum]) -> str:
    return "|".join(codes)


_CODE = re.compile(
    rf"(?:(?P<api>{_any_of(Api)}):)?(?P<shape>{_any_of(Chunking)})(?P<numbers>(?:_\d+)*)"
    rf"(?P<with_end>_with_end)?(?::(?P<load>{_any_of(Concurrency)}))?"
)


@dataclass(frozen=True)
class Delivery:
    """How the tokens of an answer arrive.

    Attributes:
        shape: how the text is divided.
        tokens: the number of tokens per chunk if the shape is `TOKENS`.
        with_end: whether the token that ends the turn is part of the last chunk instead of a separate chunk.
        cuts: the token counts after which a chunk ends if the shape is `CUT_AT`, or the character counts if
            the shape is `CUT_AFTER`.
        api: the HTTP API; None if parsers run in process.
        load: the server's load, in cases that compare answers under different loads.
    """

    shape: Chunking
    tokens: int = 0
    with_end: bool = False
    cuts: tuple[int, ...] = ()
    api: Api | None = None
    load: Concurrency | None = None

    @property
    def code(self) -> str:
        """The delivery as a code that does not change between versions; `parse` reads it."""
        return ":".join(part for part in (self.api, self.chunks, self.load) if part)

    @property
    def chunks(self) -> str:
        """The part of the code that a server needs: without API and load."""
        numbers = self.cuts or ((self.tokens,) if self.tokens else ())
        return "_".join([self.shape, *map(str, numbers), *(["with_end"] if self.with_end else [])])

    @property
    def of_single_tokens(self) -> bool:
        """Whether each token arrives in a separate chunk."""
        return self.chunks == "tokens_1"

    @property
    def is_held_by_server(self) -> bool:
        """Whether a scripted server can deliver so: in chunks, by one division."""
        return self.shape not in (Chunking.WHOLE, Chunking.EVERY_CUT, Chunking.RANDOM_CUTS)

    @classmethod
    def of_sizes(cls, *sizes: int) -> Delivery:
        """Chunks of these numbers of tokens; the rest of the answer is the last chunk."""
        return cls(Chunking.CUT_AT, cuts=tuple(accumulate(sizes)))

    @classmethod
    def around(cls, marker: str, text: str) -> Delivery:
        """Chunks that end before and after each occurrence of a marker in a text, as far as tokens do."""
        edges = {edge for match in re.finditer(re.escape(marker), text) for edge in match.span() if edge}
        return cls(Chunking.CUT_AFTER, cuts=tuple(sorted(edges)))

    def __str__(self) -> str:
        return self.code

    @classmethod
    def parse(cls, code: str) -> Delivery:
        """Parses a delivery code. Raises ValueError if the code is invalid."""
        match = _CODE.fullmatch(code)
        if match is None:
            raise ValueError(f"{code!r} is not a delivery such as whole, tokens_3, all_with_end, cut_at_3_7")
        shape = Chunking(match["shape"])
        numbers = tuple(int(number) for number in match["numbers"].split("_") if number)
        cut = shape in (Chunking.CUT_AT, Chunking.CUT_AFTER)
        valid = cut or (len(numbers) == 1 if shape is Chunking.TOKENS else not numbers)
        if not valid:
            raise ValueError(f"{code!r} is not a delivery: {shape} cannot have {len(numbers)} numbers")
        return cls(
            shape,
            tokens=numbers[0] if shape is Chunking.TOKENS else 0,
            with_end=match["with_end"] is not None,
            cuts=numbers if cut else (),
            api=Api(match["api"]) if match["api"] else None,
            load=Concurrency(match["load"]) if match["load"] else None,
        )

    @property
    def is_streamed(self) -> bool:
        """Whether the answer arrives in chunks."""
        return self.shape is not Chunking.WHOLE


def deliveries(codes: str) -> tuple[Delivery, ...]:
    """Parses delivery codes that are separated by spaces."""
    return tuple(Delivery.parse(code) for code in codes.split())


def delivery_of(value: Delivery | str | Sequence[int]) -> Delivery:
    """A delivery, given as such, as a code, or as the numbers of tokens in its chunks.

    Raises:
        ValueError: the code is invalid, or a chunk has no token.
    """
    if isinstance(value, Delivery):
        return value
    if isinstance(value, str):
        return Delivery.parse(value)
    if not value or not all(isinstance(size, int) and size > 0 for size in value):
        raise ValueError(f"{value!r} is not a list of the numbers of tokens in chunks")
    return Delivery.of_sizes(*value)


DeliveryField = Annotated[
    Delivery,
    PlainValidator(delivery_of, json_schema_input_type=str | list[int]),
    PlainSerializer(lambda delivery: delivery.code, return_type=str),
]
"""A delivery as the field of a pydantic model; in JSON and YAML it is the code."""


def not_held(delivery: Mapping[str, Any]) -> str:
    """Says how an answer was delivered that was not delivered as its script asks."""
    chunks = " and ".join(map(str, delivery["chunks"])) or "chunks that the server cannot see"
    return f"the delivery {delivery['code']} was not held; vLLM took {chunks}"


def like_in_process(delivery: Delivery) -> Delivery:
    """Returns the in-process delivery for an HTTP delivery, or the same delivery if none corresponds."""
    if delivery.api is None or delivery.load is Concurrency.TOGETHER:
        return delivery
    return replace(delivery, api=None, load=None)

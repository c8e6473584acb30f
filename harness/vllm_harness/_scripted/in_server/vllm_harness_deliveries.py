"""Delivers scripted answers in exactly the chunks that their requests name.

vLLM's API server merges what the engine generates while the server is busy (`RequestOutputCollector` in
`v1/engine/output_processor.py`), so its chunks depend on the load. For a request with a delivery, the tokens
wait here instead, and are merged by vLLM's own `RequestOutput.add` until a chunk is complete. Runs inside the
server and imports nothing from the harness outside this folder.
"""

from __future__ import annotations

import importlib
import json
import re
from collections import OrderedDict, deque
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import vllm_harness_uses as uses

PROCESSOR = "vllm.v1.engine.output_processor"
KEPT = 4096
NAME_TOKENS = ("/v1/chat/completions", "/v1/completions")  # their events may have the ids of their tokens
BY_TEXT = "cut_after"
_CODE = re.compile(r"(tokens|all|held_back|cut_at|cut_after)((?:_\d+)*)(_with_end)?")


class DeliveryError(ValueError):
    """The code is not a delivery that a server can make."""


def sizes_of(code: str, texts: Sequence[str]) -> list[int]:
    """The number of tokens in each chunk of an answer.

    Args:
        code: a delivery's code, such as `tokens_3`, `all_with_end`, `cut_at_3_7`, or `cut_after_12` (with the
            token that completes the 12th character).
        texts: the text of each token; the last token ends the turn and is a chunk of its own, unless the code
            ends in `_with_end`.

    Raises:
        DeliveryError: the code is not a delivery of a stream.
    """
    match = _CODE.fullmatch(code)
    if match is None:
        raise DeliveryError(f"{code!r} is not a delivery such as tokens_3, all, cut_at_3_7, cut_after_12")
    shape, numbers = match[1], [int(number) for number in match[2].split("_") if number]
    length = len(texts)
    last = length if match[3] else length - 1
    if shape == BY_TEXT:
        ends = list(accumulate(map(len, texts)))
        cuts = [next((n for n, end in enumerate(ends, 1) if end >= place), last) for place in numbers]
    elif shape == "cut_at":
        cuts = numbers
    else:
        step = {"tokens": numbers[0] if numbers else 1, "held_back": 1, "all": length}[shape]
        cuts = list(range(step, last, max(1, step)))
    edges = sorted({0, *(cut for cut in cuts if 0 < cut < last), last, length})
    return [end - start for start, end in pairwise(edges)]


class Chunks:
    """The chunks of one answer: those that are planned, and those that the serving code has taken."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes = sizes
        self.left = deque(sizes)
        self.taken: list[int] = []
        self.pending: Any = None
        self.count = 0

    def completed(self, output: Any, tokens: int, finished: bool) -> Any:
        """Adds an output of the engine; returns the chunk that it completes, or None."""
        if self.pending is None:
            self.pending = output
        else:
            self.pending.add(output, aggregate=True)
        self.count += tokens
        if self.count < (self.left[0] if self.left else 1) and not finished:
            return None
        if self.left:
            self.left.popleft()
        chunk, self.pending, self.count = self.pending, None, 0
        return chunk

    @property
    def held(self) -> bool:
        """Whether the chunks taken so far are the planned ones; the answer may have ended early."""
        edges = {*accumulate(self.sizes)}
        *inner, end = accumulate([0, *filter(None, self.taken)])
        return inner[1:] == sorted(edge for edge in edges if edge < end)


class ServedDelivery:
    """How the server delivers the answers to one request.

    Args:
        code: the delivery's code.
        sizes: for each take of the script, the number of tokens in each chunk.
        by_choice: whether the takes are for choices instead of successive generations.
    """

    def __init__(self, code: str, sizes: list[list[int]], by_choice: bool) -> None:
        self.code = code
        self.sizes = sizes
        self.by_choice = by_choice
        self.chunks: list[Chunks] = []
        self.turn = -1

    def generation(self, choice: int) -> Chunks:
        """The chunks of the next generation, or of another choice of it."""
        if choice == 0:
            self.turn += 1
        take = min(choice, len(self.sizes) - 1) if self.by_choice else self.turn
        chunks = Chunks(self.sizes[take] if 0 <= take < len(self.sizes) else [])
        self.chunks.append(chunks)
        return chunks

    def report(self) -> dict[str, Any]:
        """The code, the chunks that the serving code took, and whether they are those of the code."""
        taken = [chunks.taken for chunks in self.chunks]
        return {
            "code": self.code,
            "chunks": taken,
            "held": any(taken) and all(chunks.held for chunks in self.chunks),
        }


_DELIVERIES: OrderedDict[str, ServedDelivery] = OrderedDict()


def deliver(use: str, delivery: ServedDelivery) -> None:
    """Sets the delivery of the answers to a request; that of the oldest request is dropped in time."""
    _DELIVERIES[use] = delivery
    if len(_DELIVERIES) > KEPT:
        _DELIVERIES.popitem(last=False)


def install() -> None:
    """Makes the collector of vLLM's API server, which runs in this process, deliver exactly."""
    processor = importlib.import_module(PROCESSOR)
    collector, owner = processor.RequestOutputCollector, processor.OutputProcessor
    if not hasattr(collector, "exact"):
        collector.exact = None
        for holder, name, make in (
            (owner, "add_request", _adding),
            (collector, "put", _putting),
            (collector, "get", _getting),
            (collector, "get_nowait", _getting_nowait),
        ):
            setattr(holder, name, make(getattr(holder, name)))


class CountedStream:
    """Counts the tokens in the chunks of a stream whose events name them (`return_token_ids`).

    Args:
        delivery: the delivery of the answer, which this process does not hold.
        send: the ASGI `send` to which the answer is forwarded.
    """

    def __init__(self, delivery: ServedDelivery, send: Any) -> None:
        self.delivery = delivery
        self.forward = send
        self.chunks: dict[int, Chunks] = {}
        self.left = b""

    async def send(self, message: dict[str, Any]) -> None:
        """Reads and forwards an ASGI message of the answer."""
        *lines, self.left = (self.left + message.get("body", b"")).split(b"\n")
        for line in lines:
            if line.startswith(b"data: {") and b'"token_ids"' in line:
                for choice in json.loads(line.removeprefix(b"data: ")).get("choices") or ():
                    self._count(choice.get("index", 0), len(choice.get("token_ids") or ()))
        await self.forward(message)

    def _count(self, choice: int, tokens: int) -> None:
        if choice not in self.chunks:
            self.chunks[choice] = self.delivery.generation(choice)
        self.chunks[choice].taken.append(tokens)


class _Exact:
    """What a collector has of its request's delivery."""

    def __init__(self, delivery: ServedDelivery) -> None:
        self.delivery = delivery
        self.choices: dict[int, Chunks] = {}
        self.ready: deque[Any] = deque()

    def put(self, output: Any) -> None:
        (completion,) = output.outputs  # deltas of several choices come one by one
        chunks = self.choices[completion.index]
        finished = completion.finish_reason is not None
        if chunk := chunks.completed(output, len(completion.token_ids), finished):
            self.ready.append(chunk)

    def take(self, output: Any) -> None:
        (completion,) = output.outputs
        self.choices[completion.index].taken.append(len(completion.token_ids))


def _adding(add_request: Any) -> Any:
    def add(
        self: Any,
        request: Any,
        prompt: Any,
        parent_req: Any = None,
        request_index: int = 0,
        queue: Any = None,
        *more: Any,
        **named: Any,
    ) -> Any:
        args = getattr(request.sampling_params, "extra_args", None) or {}
        delivery = _DELIVERIES.get(args.get(uses.USE, ""))
        if delivery is not None and queue is not None and queue.aggregate:
            queue.exact = queue.exact or _Exact(delivery)
            queue.exact.choices[request_index] = delivery.generation(request_index)
        return add_request(self, request, prompt, parent_req, request_index, queue, *more, **named)

    return add


def _putting(put: Any) -> Any:
    def put_chunk(self: Any, output: Any) -> None:
        if self.exact is None or isinstance(output, Exception):
            put(self, output)
            return
        self.exact.put(output)
        if self.output is None and self.exact.ready:
            put(self, self.exact.ready.popleft())

    return put_chunk


def _getting(get: Any) -> Any:
    async def get_chunk(self: Any) -> Any:
        return _taken(self, await get(self))

    return get_chunk


def _getting_nowait(get_nowait: Any) -> Any:
    def get_chunk(self: Any) -> Any:
        output = get_nowait(self)
        return output if output is None else _taken(self, output)

    return get_chunk


def _taken(self: Any, output: Any) -> Any:
    if self.exact is not None:
        self.exact.take(output)
        if self.output is None and self.exact.ready:
            self.output = self.exact.ready.popleft()
            self.ready.set()
    return output

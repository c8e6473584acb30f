"""Sends a request twice: for an answer as a body and for an answer as a stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Body = TypeVar("Body")
Stream = TypeVar("Stream")


def body_and_stream(
    body: Callable[[], Body], stream: Callable[[], Stream], *, exact: bool
) -> tuple[Body, Stream]:
    """Returns the answers to both requests; if both fail, raises the error of the body.

    Args:
        exact: whether the answer is scripted. If so, both requests run at once and share engine steps;
            a real model might answer differently in a larger batch, so its requests run in turn.
    """
    if not exact:
        return body(), stream()
    with ThreadPoolExecutor(1) as pool:
        streamed = pool.submit(stream)
        return body(), streamed.result()

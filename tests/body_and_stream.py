"""Sends a request twice, for a body and for a stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Body = TypeVar("Body")
Stream = TypeVar("Stream")


def body_and_stream(
    body: Callable[[], Body], stream: Callable[[], Stream], *, exact: bool
) -> tuple[Body, Stream]:
    """Returns the answers to both requests; an error of the body is raised first.

    Args:
        exact: whether the answer is scripted. Then both requests run at the same time and share the engine's
            steps; a real model might answer differently in a larger batch.
    """
    if not exact:
        return body(), stream()
    with ThreadPoolExecutor(1) as pool:
        streamed = pool.submit(stream)
        return body(), streamed.result()

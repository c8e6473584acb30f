"""A request answered as a body and as a stream."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Body = TypeVar("Body")
Stream = TypeVar("Stream")


def body_and_stream(
    body: Callable[[], Body], stream: Callable[[], Stream], *, exact: bool
) -> tuple[Body, Stream]:
    """What both requests answer; an error of the body comes first.

    Args:
        exact: whether the server says what the test scripted. Then both are sent at once and share the steps
            of the engine; a model of its own might say something else in a larger batch.
    """
    if not exact:
        return body(), stream()
    with ThreadPoolExecutor(1) as pool:
        streamed = pool.submit(stream)
        return body(), streamed.result()

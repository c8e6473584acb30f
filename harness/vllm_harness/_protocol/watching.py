"""A wrapper around an SDK's stream that validates the stream while the caller iterates over it."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar

from vllm_harness._protocol.core.events import Api
from vllm_harness._protocol.core.findings import Finding, Severity
from vllm_harness._protocol.streams import StreamValidator

T = TypeVar("T")


class ProtocolViolation(AssertionError):
    """A watched stream broke the contract of its API.

    Attributes:
        findings: the errors of the stream.
    """

    __module__ = "vllm_harness"

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("\n".join(map(str, findings)))
        self.findings = findings


class Watched(Generic[T]):
    """Iterates over a stream and validates it; delegates every other attribute to the stream.

    Attributes:
        validator: checks the events; its `findings` grow while the caller iterates.
    """

    def __init__(
        self, stream: Iterable[T] | AsyncIterable[T], validator: StreamValidator, raises: bool
    ) -> None:
        self._stream = stream
        self._raises = raises
        self.validator = validator

    @property
    def findings(self) -> list[Finding]:
        """All findings so far."""
        return self.validator.findings

    def __iter__(self) -> Iterator[T]:
        assert isinstance(self._stream, Iterable)
        for event in self._stream:
            self.validator.feed(event)  # type: ignore[arg-type]
            yield event
        self._end()

    async def __aiter__(self) -> AsyncIterator[T]:
        assert isinstance(self._stream, AsyncIterable)
        async for event in self._stream:
            self.validator.feed(event)  # type: ignore[arg-type]
            yield event
        self._end()

    def _end(self) -> None:
        self.validator.close()
        errors = [finding for finding in self.findings if finding.severity is Severity.ERROR]
        if errors and self._raises:
            raise ProtocolViolation(errors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __enter__(self) -> Watched[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()  # type: ignore[union-attr]

    async def __aenter__(self) -> Watched[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stream.close()  # type: ignore[union-attr]


def watch(
    stream: Iterable[T],
    *,
    api: Api | None = None,
    request: Mapping[str, Any] | None = None,
    raises: bool = True,
) -> Watched[T]:
    """Wraps a stream so that it is validated while the caller iterates over it.

    Args:
        stream: the stream that the SDK's `create(stream=True)` returned.
        api: "responses", "chat" or "messages"; None infers it from the first event.
        request: the request body, if known.
        raises: whether the iteration raises at the end of a stream with errors.

    Returns:
        The wrapped stream; it yields the same events.

    Raises:
        ProtocolViolation: the stream had errors, and `raises` is set; raised by the iteration at its end.
    """
    return Watched(stream, StreamValidator(api=api, request=request), raises)


def watch_async(
    stream: AsyncIterable[T],
    *,
    api: Api | None = None,
    request: Mapping[str, Any] | None = None,
    raises: bool = True,
) -> Watched[T]:
    """The counterpart of `watch` for the asynchronous client."""
    return Watched(stream, StreamValidator(api=api, request=request), raises)

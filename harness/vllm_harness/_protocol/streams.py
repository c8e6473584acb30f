"""Validates streams of any API: the incremental validator, and the functions built on it."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any

from vllm_harness._protocol.chat.stream import ChatValidator
from vllm_harness._protocol.core import rules
from vllm_harness._protocol.core.events import AnyEvent, Api, decode, plain
from vllm_harness._protocol.core.findings import Finding, Severity, brief
from vllm_harness._protocol.core.report import MAX_FINDINGS, Report
from vllm_harness._protocol.core.sse import SSEEvent
from vllm_harness._protocol.messages.schema import EVENTS as MESSAGES_EVENTS
from vllm_harness._protocol.messages.stream import MessagesValidator
from vllm_harness._protocol.responses.stream import MAX_HELD, ResponsesValidator

AnyValidator = ResponsesValidator | ChatValidator | MessagesValidator


class StreamValidator:
    """Checks a stream event by event; apart from the accumulated text, its memory use does not grow.

    Args:
        api: "responses", "chat" or "messages"; None infers it from the first event.
        request: the request body, if known, which allows further checks.
        resumed: whether the stream begins in the middle (`starting_after`); None infers it from the first
            event.
        max_held: the maximum number of characters of texts and items to keep for comparison.
        max_findings: the maximum number of findings to keep.
    """

    def __init__(
        self,
        *,
        api: Api | None = None,
        request: Mapping[str, Any] | None = None,
        resumed: bool | None = None,
        max_held: int = MAX_HELD,
        max_findings: int = MAX_FINDINGS,
    ) -> None:
        self._report = Report(max_findings)
        self._api = api
        self._request = dict(request) if request is not None else None
        self._resumed = resumed
        self._max_held = max_held
        self._validator: AnyValidator | None = None
        self._index = 0
        self._framed = False
        self._done_mark = False

    @property
    def findings(self) -> list[Finding]:
        """All findings so far, up to `max_findings`."""
        return self._report.findings

    @property
    def dropped(self) -> int:
        """The number of findings beyond `max_findings`."""
        return self._report.dropped

    def feed(self, event: AnyEvent) -> list[Finding]:
        """Checks the next event (a dict, an SDK's event object, or an SSEEvent).

        Returns:
            The findings about this event.
        """
        report = self._report
        before = len(report.findings)
        if isinstance(event, SSEEvent):
            self.read(event)
        else:
            self._count()
            self._take(event if type(event) is dict else plain(event))
        return report.findings[before:] if len(report.findings) > before else []

    def read(self, event: SSEEvent) -> dict[str, Any] | None:
        """Checks the next event of a byte stream, as `feed` does.

        Returns:
            The JSON object of the event; None if the event has none.
        """
        self._count()
        value = self._from_sse(event)
        if value is not None:
            self._take(value, event)
        return value

    def _count(self) -> None:
        self._report.index = self._index
        self._index += 1

    def _take(self, value: dict[str, Any], framed: SSEEvent | None = None) -> None:
        self._report.recent.append(value)
        try:
            (self._validator or self._choose(value)).feed(value)
            if framed is not None:
                self._check_name(framed, value)
        except RecursionError:
            self._report.add(rules.SE103, problem="it is nested too deeply")

    def close(self) -> list[Finding]:
        """Checks the end of the stream.

        Returns:
            The findings about the end; `findings` also contains the earlier ones.
        """
        before = len(self._report.findings)
        validator = self._validator or self._choose({})
        self._report.index = max(self._index - 1, 0)
        validator.close()
        if self._framed and isinstance(validator, ChatValidator) and not self._done_mark:
            self._report.add(rules.SE107, "$", "data: [DONE]", "the end")
        return self._report.findings[before:]

    def _choose(self, event: Mapping[str, Any]) -> AnyValidator:
        is_chat = self._done_mark or "choices" in event or ("error" in event and "type" not in event)
        is_messages = event.get("type") in MESSAGES_EVENTS
        api = self._api or ("chat" if is_chat else "messages" if is_messages else "responses")
        if api == "messages":
            self._validator = MessagesValidator(self._report, max_held=self._max_held)
        elif api == "chat":
            self._validator = ChatValidator(self._report, request=self._request, max_held=self._max_held)
        else:
            self._validator = ResponsesValidator(
                self._report, request=self._request, resumed=self._resumed, max_held=self._max_held
            )
        return self._validator

    def _from_sse(self, event: SSEEvent) -> dict[str, Any] | None:
        """The JSON object of an event; None if the event is the end mark or cannot be read."""
        self._framed = True
        report, data = self._report, event.data
        if event.bad_utf8:
            report.add(rules.SE104, "$")
        if self._done_mark:
            report.add(rules.SE108, "$", "nothing", data[:80], once="done")
        if data.strip() == "[DONE]":
            self._done_mark = True
            named = isinstance(self._validator, ResponsesValidator | MessagesValidator)
            if named or self._api in ("responses", "messages"):
                report.add(rules.SE106, "$", "nothing", "[DONE]")
            return None
        value: object = None
        problem = "not an object"
        try:
            value = decode(data)
        except (ValueError, RecursionError) as error:
            problem = str(error)[:120]
        payload = value if type(value) is dict else None
        if event.truncated:
            severity = None if payload is None else Severity.INFO
            report.add(rules.SE105, "$", "a blank line after the event", "the end", severity)
        elif payload is None:
            report.add(rules.SE103, "$", "one JSON object", data[:80], problem=problem)
        return payload

    def _check_name(self, event: SSEEvent, value: Mapping[str, Any]) -> None:
        if isinstance(self._validator, ChatValidator):
            return
        if event.event is None:
            self._report.add(rules.SE102, "$", f"event: {value.get('type')}", "nothing", once="name")
        elif event.event != value.get("type"):
            self._report.add(rules.SE101, "$.type", event.event[:80], brief(value.get("type")))


def validate_stream(
    events: Iterable[AnyEvent],
    *,
    api: Api | None = None,
    request: Mapping[str, Any] | None = None,
    resumed: bool | None = None,
) -> list[Finding]:
    """Checks a whole stream.

    Args:
        events: event objects of the SDKs, dicts, or SSEEvents (`validate_stream(parse_sse(chunks))`).
        api: "responses", "chat" or "messages"; None infers it from the first event.
        request: the request body, if known.
        resumed: whether the stream begins in the middle (`starting_after`); None infers it from the first
            event.

    Returns:
        The findings in the order of the stream; empty if it is clean.
    """
    validator = StreamValidator(api=api, request=request, resumed=resumed)
    for event in events:
        validator.feed(event)
    validator.close()
    return validator.findings


async def validate_stream_async(
    events: AsyncIterable[AnyEvent],
    *,
    api: Api | None = None,
    request: Mapping[str, Any] | None = None,
    resumed: bool | None = None,
) -> list[Finding]:
    """The counterpart of `validate_stream` for asynchronous iterables."""
    validator = StreamValidator(api=api, request=request, resumed=resumed)
    async for event in events:
        validator.feed(event)
    validator.close()
    return validator.findings

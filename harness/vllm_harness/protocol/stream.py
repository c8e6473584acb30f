"""Streams: the incremental validator, and the front doors built on it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, Literal

from pydantic import BaseModel

from vllm_harness.protocol.chat import ChatValidator
from vllm_harness.protocol.findings import MAX_FINDINGS, Finding, Report, Severity, brief
from vllm_harness.protocol.messages import MessagesValidator
from vllm_harness.protocol.messages_objects import EVENTS as MESSAGES_EVENTS
from vllm_harness.protocol.responses import MAX_HELD, ResponsesValidator
from vllm_harness.protocol.rules import SEVERITIES
from vllm_harness.protocol.sse import SSEEvent

Api = Literal["responses", "chat", "messages"]
AnyEvent = Mapping[str, Any] | BaseModel | SSEEvent

_DEEP = frozenset(
    {
        *("response", "item", "part", "choices", "annotation", "error", "delta", "output"),
        *("message", "content_block", "content"),
    }
)
AnyValidator = ResponsesValidator | ChatValidator | MessagesValidator


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_decode = json.JSONDecoder(parse_constant=_refuse).decode


class StreamValidator:
    """Checks a stream event by event; memory is constant in its length apart from the accumulated text.

    Args:
        api: "responses", "chat" or "messages"; None judges by the first event.
        request: the request body, when it is known; more can be checked then.
        resumed: it begins in the middle (`starting_after`); None judges by its first event.
        max_held: characters of text and items kept for comparison.
        max_findings: findings kept.
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
        self._report = Report(SEVERITIES, max_findings)
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
        """How many findings were more than `max_findings`."""
        return self._report.dropped

    def feed(self, event: AnyEvent) -> list[Finding]:
        """Takes the next event (a dict, an event object of an SDK, or an SSEEvent).

        Returns:
            The findings about this event.
        """
        report = self._report
        before = len(report.findings)
        report.index = self._index
        self._index += 1
        if type(event) is dict:
            value = event
        elif isinstance(event, SSEEvent):
            found = self._from_sse(event)
            if found is None:
                return report.findings[before:]
            value = found
        else:
            value = plain(event)
        report.recent.append(value)
        try:
            (self._validator or self._choose(value)).feed(value)
            if self._framed and isinstance(event, SSEEvent):
                self._check_name(event, value)
        except RecursionError:
            report.add("SE103", "the event nests too deeply")
        return report.findings[before:] if len(report.findings) > before else []

    def close(self) -> list[Finding]:
        """Ends the stream.

        Returns:
            The findings about its end; all of them are in `findings`.
        """
        before = len(self._report.findings)
        validator = self._validator or self._choose({})
        self._report.index = max(self._index - 1, 0)
        validator.close()
        if self._framed and isinstance(validator, ChatValidator) and not self._done_mark:
            self._report.add("SE107", "the stream does not end with [DONE]", "$", "data: [DONE]", "the end")
        return self._report.findings[before:]

    def _choose(self, event: Mapping[str, Any]) -> AnyValidator:
        of_chat = self._done_mark or "choices" in event or ("error" in event and "type" not in event)
        of_messages = event.get("type") in MESSAGES_EVENTS
        api = self._api or ("chat" if of_chat else "messages" if of_messages else "responses")
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
        """The JSON object of an event; None where it is the end mark or unreadable."""
        self._framed = True
        report, data = self._report, event.data
        if event.bad_utf8:
            report.add("SE104", "the event is not UTF-8", "$")
        if self._done_mark:
            report.add("SE108", "an event after [DONE]", "$", "nothing", data[:80], once="done")
        if data.strip() == "[DONE]":
            self._done_mark = True
            named = isinstance(self._validator, ResponsesValidator | MessagesValidator)
            if named or self._api in ("responses", "messages"):
                report.add("SE106", "[DONE] in a stream of named events", "$", "nothing", "[DONE]")
            return None
        value: object = None
        problem = "not an object"
        try:
            value = _decode(data)
        except (ValueError, RecursionError) as error:
            problem = str(error)[:120]
        found = value if type(value) is dict else None
        if event.cut:
            severity = None if found is None else Severity.INFO
            message = "the stream ends within an event"
            report.add("SE105", message, "$", "a blank line after the event", "the end", severity)
        elif found is None:
            message = f"the data is not one JSON object: {problem}"
            report.add("SE103", message, "$", "one JSON object", data[:80])
        return found

    def _check_name(self, event: SSEEvent, value: Mapping[str, Any]) -> None:
        if isinstance(self._validator, ChatValidator):
            return
        if event.event is None:
            self._report.add(
                "SE102",
                "the event has no event: line",
                "$",
                f"event: {value.get('type')}",
                "nothing",
                once="name",
            )
        elif event.event != value.get("type"):
            self._report.add(
                "SE101",
                "the event: line is not the type in the data",
                "$.type",
                event.event[:80],
                brief(value.get("type")),
            )


def plain(event: object) -> dict[str, Any]:
    """An event as JSON values, with only the fields the server sent.

    Args:
        event: an event object of an SDK, any pydantic model, or a mapping.

    Raises:
        TypeError: it is none of these.
    """
    if isinstance(event, BaseModel):
        fields = event.__dict__
        sent = event.__pydantic_fields_set__
        if sent.isdisjoint(_DEEP) or type(fields.get("delta")) is str:
            own = {key: fields[key] for key in sent if key in fields}
            return {**own, **(event.__pydantic_extra__ or {})}
        return event.model_dump(exclude_unset=True, by_alias=True, warnings=False)
    if isinstance(event, Mapping):
        return dict(event)
    raise TypeError(f"not an event: {type(event).__name__}")


def as_json(event: AnyEvent) -> dict[str, Any] | None:
    """An event of any kind as JSON values; None for an SSEEvent that carries no JSON object."""
    if not isinstance(event, SSEEvent):
        return plain(event)
    try:
        value = _decode(event.data)
    except (ValueError, RecursionError):
        return None
    return value if type(value) is dict else None


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
        api: "responses", "chat" or "messages"; None judges by the first event.
        request: the request body, when it is known.
        resumed: it begins in the middle (`starting_after`); None judges by its first event.

    Returns:
        The findings in the order of the stream; empty for a clean one.
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
    """The twin of `validate_stream` for asynchronous iterables."""
    validator = StreamValidator(api=api, request=request, resumed=resumed)
    async for event in events:
        validator.feed(event)
    validator.close()
    return validator.findings

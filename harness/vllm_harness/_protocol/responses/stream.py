"""The checks of a Responses stream, event by event: its lifecycle here, its items and texts in other modules.

They are based on recorded OpenAI traffic (64 streams, 6,753 events); each rule's page states its evidence.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.fields import check_fields, type_names
from vllm_harness._protocol.core.findings import ABSENT, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.types import Fields, Types
from vllm_harness._protocol.responses import items, schema, texts
from vllm_harness._protocol.responses import stream_rules as rules
from vllm_harness._protocol.responses.object_rules import RO101, RO102
from vllm_harness._protocol.responses.objects import check_response
from vllm_harness._protocol.responses.state import StreamState, require_in_progress

Handler = Callable[[StreamState, Json], None]

MAX_HELD = 64 * 1024 * 1024
_LONGEST_TYPE = 200


class ResponsesValidator:
    """Checks one Responses stream.

    Args:
        report: collects the findings.
        request: the request body, if known, which allows further checks.
        resumed: whether the stream begins in the middle (`starting_after`); None infers it from the first
            sequence number.
        max_held: the maximum number of characters of texts and items to keep for comparison.
    """

    def __init__(
        self,
        report: Report,
        *,
        request: Json | None = None,
        resumed: bool | None = None,
        max_held: int = MAX_HELD,
    ) -> None:
        self._report = report
        self._state = StreamState(report, request, resumed, max_held)
        self._begun = False
        self._next: int | None = None
        self._numbered = self._unnumbered = False

    def feed(self, event: Json) -> None:
        """Checks the next event."""
        state = self._state
        kind = event.get("type")
        number = event.get("sequence_number")
        if not self._begun:
            self._begin(kind, number)
        if type(number) is int and number == self._next:
            self._next = number + 1
        else:
            self._check_number(number)
        if state.ended is not None:
            self._report.add(rules.RS106, "$.type", "nothing", brief(kind), once="end", end=state.ended)
            return
        entry = _TABLE.get(kind) if type(kind) is str else None
        if entry is None:
            self._on_unknown(kind)
            return
        for key, types in entry[0]:
            if type(event.get(key, ABSENT)) not in types:
                self._bad_field(event, kind, key, types)
        entry[1](state, event)

    def close(self) -> None:
        """Checks the end of the stream."""
        report, state = self._report, self._state
        if not self._begun:
            report.add(rules.RS123, expected="response.created", actual="nothing")
        elif state.ended is None and state.failed:
            report.add(rules.RS109, "$.type", "response.failed", "the end")
        elif state.ended is None:
            report.add(rules.RS105, "$.type", "response.completed, .incomplete or .failed", "the end")
        if self._unnumbered and not self._numbered:
            report.add(rules.RS113, "$.sequence_number", "integer", "nothing")

    def _begin(self, kind: object, number: object) -> None:
        state = self._state
        self._begun = True
        if kind == "response.created":
            state.resumed = False
            self._next = 0
            self._numbered = number == 0
        elif kind == "error":
            self._next = None
        elif state.resumed or (state.resumed is None and type(number) is int and number > 0):
            state.resumed = True
            self._report.add(rules.RS102, "$.type", "response.created", brief(kind))
        else:
            self._report.add(rules.RS101, "$.type", '"response.created"', brief(kind))

    def _check_number(self, number: object) -> None:
        report, path = self._report, "$.sequence_number"
        if type(number) is not int:
            self._unnumbered = True
            self._next = None
            if number is not None:
                key = "sequence_number"
                report.add(rules.RS122, path, "integer", brief(number), once="number", key=key)
            if self._numbered:
                report.add(rules.RS112, path, "integer", brief(number), once="number")
            return
        if self._unnumbered and not self._numbered:
            report.add(rules.RS112, path, "on every event or on none", number, once="number")
        elif self._next is not None:
            rule = rules.RS110 if self._numbered else rules.RS111
            report.add(rule, path, str(self._next), brief(number))
        self._numbered = True
        self._next = number + 1

    def _on_unknown(self, kind: object) -> None:
        if not isinstance(kind, str) or not kind:
            self._report.add(rules.RS120, "$.type", "string", brief(kind), once="type")
        elif len(kind) <= _LONGEST_TYPE:
            self._report.add(rules.RS119, "$.type", once=kind, kind=kind)

    def _bad_field(self, event: Json, kind: object, key: str, types: Types) -> None:
        actual = event.get(key, ABSENT)
        rule = rules.RS121 if actual is ABSENT else rules.RS122
        self._report.add(rule, f"$.{key}", type_names(types), brief(actual), once=(kind, key), key=key)


def _on_head(state: StreamState, event: Json, rank: int) -> None:
    """Handles created, queued or in_progress, whose rank among them counts from 1."""
    report = state.report
    if rank <= state.phase or state.items:
        expected = "once, in order, before the first item"
        report.add(rules.RS103, "$.type", expected, event=event["type"])
    state.phase = max(state.phase, rank)
    response = event.get("response")
    if not isinstance(response, dict):
        return
    _check_status(state, response, schema.HEAD[event["type"]])
    if state.head is None:
        check_fields(report, response, schema.RESPONSE_FIELDS, "$.response", RO101, RO102)
    if response.get("output"):
        report.add(rules.RS117, "$.response.output", "[]", brief(response["output"]))
    if response.get("usage") is not None:
        report.add(rules.RS118, "$.response.usage", "null", brief(response["usage"]))
    _check_stable(state, response)


def _on_error(state: StreamState, event: Json) -> None:
    """Handles an error event, whose error may be nested under `error` or at the top level."""
    state.failed = True
    inner = event.get("error")
    error = inner if isinstance(inner, dict) else event
    state.report.add(rules.RS108, "$", actual=f"{error.get('code')}: {error.get('message')}"[:300])
    if not isinstance(error.get("message"), str):
        state.report.add(rules.RS125, "$.message", "string", brief(error.get("message", ABSENT)))


def _on_terminal(state: StreamState, event: Json) -> None:
    """Handles completed, incomplete, failed or cancelled."""
    kind = event["type"]
    state.ended = kind
    if kind in ("response.completed", "response.incomplete"):
        require_in_progress(state)
    response = event.get("response")
    if not isinstance(response, dict):
        return
    head, completed = state.head, kind == "response.completed"
    _check_status(state, response, (schema.TERMINAL[kind],))
    check_response(state.report, response, "$.response", state.request)
    _check_stable(state, response)
    if head is not None:
        _check_echo(state, head, response)
    items.check_closed(state, completed)
    items.check_output(state, response, completed)


def _check_status(state: StreamState, response: Json, wanted: tuple[str, ...]) -> None:
    status = response.get("status")
    if status not in wanted:
        state.report.add(rules.RS107, "$.response.status", " or ".join(wanted), brief(status))


def _check_stable(state: StreamState, response: Json) -> None:
    head = state.head
    if head is None:
        state.head = response
        return
    for key in ("id", *schema.STABLE_RESPONSE_FIELDS):
        if key in head and response.get(key) != head[key]:
            rule = rules.RS114 if key == "id" else rules.RS115
            actual = brief(response.get(key, ABSENT))
            state.report.add(rule, f"$.response.{key}", brief(head[key]), actual, key=key)


def _check_echo(state: StreamState, head: Json, response: Json) -> None:
    for key in schema.ECHOED_FIELDS:
        if key in head and head[key] != response.get(key, ABSENT):
            actual = brief(response.get(key, ABSENT))
            state.report.add(rules.RS116, f"$.response.{key}", brief(head[key]), actual, key=key)
    if set(head) != set(response):
        changed = sorted(set(head) ^ set(response))
        state.report.add(rules.RS124, "$.response", "the same keys", ", ".join(changed)[:200])


def _on_event(state: StreamState, event: Json) -> None:
    """Handles an event that belongs to no item."""


def _handlers() -> dict[str, Handler]:
    handlers: dict[str, Handler] = {
        **{kind: partial(_on_head, rank=rank) for rank, kind in enumerate(schema.HEAD, 1)},
        **dict.fromkeys(schema.TERMINAL, _on_terminal),
        "error": _on_error,
        "response.output_item.added": items.on_item_added,
        "response.output_item.done": items.on_item_done,
        "response.output_text.annotation.added": texts.on_annotation,
    }
    for parts in schema.PART_KINDS:
        handlers[f"{parts.prefix}.added"] = partial(texts.on_part_added, kind=parts)
        handlers[f"{parts.prefix}.done"] = partial(texts.on_part_done, kind=parts)
    for channel in schema.CHANNELS:
        handlers[f"{channel.prefix}.delta"] = partial(texts.on_delta, channel=channel)
        handlers[f"{channel.prefix}.done"] = partial(texts.on_text_done, channel=channel)
    for item_type, steps in schema.PROGRESS.items():
        for rank, group in enumerate(steps):
            for step in group:
                handler = partial(texts.on_progress, item_type=item_type, rank=rank)
                handlers[f"response.{item_type}.{step}"] = handler
    for kind, fields in schema.EVENT_FIELDS.items():
        of_item = any(key == "output_index" for key, _ in fields)
        handlers.setdefault(kind, items.on_event_of_item if of_item else _on_event)
    return handlers


_TABLE: dict[str, tuple[Fields, Handler]] = {
    kind: (schema.EVENT_FIELDS[kind], handler) for kind, handler in _handlers().items()
}

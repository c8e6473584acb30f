"""The lifecycle of a Responses stream: created, queued, in_progress, an error, the terminal event."""

from __future__ import annotations

from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.fields import check_fields
from vllm_harness._protocol.core.findings import ABSENT, brief
from vllm_harness._protocol.responses import schema
from vllm_harness._protocol.responses.items import check_closed, check_output
from vllm_harness._protocol.responses.objects import check_response
from vllm_harness._protocol.responses.rules import lifecycle as rules
from vllm_harness._protocol.responses.rules.objects import RO101, RO102
from vllm_harness._protocol.responses.state import StreamState, require_in_progress


def on_head(state: StreamState, event: Json, rank: int) -> None:
    """created, queued or in_progress; `rank` from 1 is its place among them."""
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


def on_error(state: StreamState, event: Json) -> None:
    """An error event, its error nested or at the top."""
    state.failed = True
    inner = event.get("error")
    error = inner if isinstance(inner, dict) else event
    state.report.add(rules.RS108, "$", actual=f"{error.get('code')}: {error.get('message')}"[:300])
    if not isinstance(error.get("message"), str):
        state.report.add(rules.RS125, "$.message", "string", brief(error.get("message", ABSENT)))


def on_terminal(state: StreamState, event: Json) -> None:
    """completed, incomplete, failed or cancelled."""
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
    check_closed(state, completed)
    check_output(state, response, completed)


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

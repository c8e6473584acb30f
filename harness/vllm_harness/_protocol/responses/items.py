"""Checks of a Responses stream's items: when they are added, done, and repeated by the terminal event."""

from __future__ import annotations

import json

from vllm_harness._protocol.core.events import CALL_ITEMS, Json
from vllm_harness._protocol.core.findings import ABSENT, Severity, brief
from vllm_harness._protocol.responses import item_rules as rules
from vllm_harness._protocol.responses import schema
from vllm_harness._protocol.responses.object_rules import IT108, IT111
from vllm_harness._protocol.responses.objects import check_item, check_unknown_item
from vllm_harness._protocol.responses.state import (
    NODE_COST,
    StreamedItem,
    StreamState,
    compare,
    open_item,
    require_in_progress,
)
from vllm_harness._protocol.responses.texts import check_item_texts, check_parts, check_progress_end


def on_item_added(state: StreamState, event: Json) -> None:
    """Handles output_item.added, which opens an item."""
    require_in_progress(state)
    index, added = event.get("output_index"), event.get("item")
    if type(index) is not int or not isinstance(added, dict) or state.left < 0:
        return
    expected = state.latest.index + 1 if state.latest else 0
    if index != expected and not (state.resumed and not state.items):
        state.report.add(rules.RS201, "$.output_index", str(expected), str(index))
    _check_overlap(state, added)
    item = StreamedItem(index, added)
    state.items[index] = state.latest = item
    _check_added(state, item)
    state.hold(NODE_COST)


def on_item_done(state: StreamState, event: Json) -> None:
    """Handles output_item.done, which closes an item and repeats all of it."""
    item, done = open_item(state, event), event.get("item")
    if item is None or not isinstance(done, dict):
        return
    item.done = done
    state.hold(len(json.dumps(done, default=str)))
    if not item.phantom:
        _check_identity(state, item, done)
    if item.type in schema.ITEM_FIELDS or item.phantom:
        check_item(state.report, done, "$.item", None, state.request)
    _check_status_at_done(state, item, done)
    check_parts(state, item, done)
    check_item_texts(state, item, done)
    check_progress_end(state, item)


def on_event_of_item(state: StreamState, event: Json) -> None:
    """Handles an event that only has to belong to an open item."""
    open_item(state, event)


def check_closed(state: StreamState, completed: bool) -> None:
    """Checks that every item is done at the end of the response."""
    severity = Severity.ERROR if completed else Severity.INFO
    for item in state.items.values():
        if item.done is None and not item.phantom and item.type != "mcp_list_tools":
            expected = "response.output_item.done"
            state.report.add(
                rules.RS209, "$.type", expected, "nothing", severity, kind=item.type, index=item.index
            )


def check_output(state: StreamState, response: Json, completed: bool) -> None:
    """Checks that the terminal event repeats all items."""
    output = response.get("output")
    if not isinstance(output, list) or state.left < 0:
        return
    if not state.resumed and len(output) != len(state.items):
        severity = None if completed else Severity.INFO
        expected, actual = f"{len(state.items)} items", f"{len(output)} items"
        state.report.add(rules.RS211, "$.response.output", expected, actual, severity)
    status = response.get("status")
    for number, value in enumerate(output):
        _check_final(state, number, value, status if isinstance(status, str) else None)


def _check_final(state: StreamState, number: int, value: object, status: str | None) -> None:
    """Checks that an item of the terminal event equals the item streamed at its index."""
    path = f"$.response.output[{number}]"
    item = state.items.get(number)
    if not isinstance(value, dict):
        state.report.add(rules.RS212, path, "object", brief(value))
    elif item is not None and item.done is not None:
        compare(state.report, rules.RS212, item.done, value, path)
    else:
        if item is not None and not item.phantom:
            added = {key: item.added.get(key) for key in ("id", "type")}
            compare(state.report, rules.RS212, added, {key: value.get(key) for key in added}, path)
        check_item(state.report, value, path, status, state.request)


def _check_overlap(state: StreamState, added: Json) -> None:
    last = state.latest
    if last is None or last.done is not None or last.phantom:
        return
    sequential = last.type in schema.MODEL_WRITTEN and added.get("type") in schema.MODEL_WRITTEN
    if sequential and not (added.get("caller") or last.added.get("caller")):
        expected = "its output_item.done first"
        state.report.add(rules.RS210, "$.output_index", expected, kind=last.type, index=last.index)


def _check_added(state: StreamState, item: StreamedItem) -> None:
    report, added, kind = state.report, item.added, item.type
    if kind not in schema.ITEM_FIELDS:
        check_unknown_item(report, kind, "$.item")
        return
    _check_new_id(state, item)
    for key in schema.EMPTY_AT_ADDED.get(str(kind), ()):
        if added.get(key):
            report.add(rules.RS213, f"$.item.{key}", "empty", brief(added[key]), key=key, kind=kind)
    if "status" in added and added["status"] != "in_progress":
        severity = None if kind in schema.MODEL_WRITTEN else Severity.INFO
        actual = brief(added["status"])
        report.add(rules.RS214, "$.item.status", '"in_progress"', actual, severity, kind=kind)
    for key in ("name", "call_id") if kind in CALL_ITEMS else ():
        value = added.get(key, ABSENT)
        if not isinstance(value, str) or not value:
            expected = "a non-empty string"
            report.add(rules.RS218, f"$.item.{key}", expected, brief(value), key=key, kind=kind)


def _check_new_id(state: StreamState, item: StreamedItem) -> None:
    identifier = item.id
    if not isinstance(identifier, str) or not identifier:
        expected = "a non-empty string"
        state.report.add(rules.RS205, "$.item.id", expected, brief(identifier), kind=item.type)
        return
    first = state.ids.setdefault(identifier, item.index)
    if first != item.index:
        state.report.add(IT108, "$.item.id", "a unique id", brief(identifier), first=first)


def _check_identity(state: StreamState, item: StreamedItem, done: Json) -> None:
    report, is_call = state.report, item.type in CALL_ITEMS
    for key, before in (("id", item.id), ("type", item.type)):
        now = done.get(key, ABSENT)
        if now != before:
            report.add(rules.RS207, f"$.item.{key}", brief(before), brief(now), key=key)
    for key in (*schema.STABLE_ITEM_FIELDS, "call_id") if is_call else schema.STABLE_ITEM_FIELDS:
        now = done.get(key, ABSENT)
        if key in item.added and now != item.added[key]:
            expected = brief(item.added[key])
            report.add(rules.RS208, f"$.item.{key}", expected, brief(now), key=key, kind=item.type)
    if is_call and isinstance(done.get("call_id"), str):
        first = state.ids.setdefault(f"call_id {done['call_id']}", item.index)
        if first != item.index:
            report.add(IT111, "$.item.call_id", "a unique id", brief(done["call_id"]), first=first)


def _check_status_at_done(state: StreamState, item: StreamedItem, done: Json) -> None:
    unfinished = done.get("status") == "in_progress" and item.type in schema.MODEL_WRITTEN
    if unfinished and not done.get("caller"):
        state.report.add(rules.RS215, "$.item.status", '"completed"', '"in_progress"', kind=item.type)

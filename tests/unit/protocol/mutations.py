"""The table of mutations: each adds one fault to a stream, which a rule with one of its codes must find."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from vllm_harness._protocol.core.examples import put, take
from vllm_harness._protocol.responses import schema

Json = dict[str, Any]
Events = list[Json]
Where = Callable[[Json], bool]
Change = Callable[[Events, int], Events | None]


class Mutation(NamedTuple):
    """A change that adds one kind of fault to a stream.

    Attributes:
        name: what the mutation does.
        where: selects the events to which it may apply.
        change: returns the mutated stream; None if the mutation does not apply.
        codes: at least one of them must be among the findings; empty for a change that leaves a stream valid.
    """

    name: str
    where: Where
    change: Change
    codes: frozenset[str]


def of_type(*kinds: str) -> Where:
    return lambda event: event.get("type") in kinds


def ending(*ends: str) -> Where:
    return lambda event: str(event.get("type")).endswith(ends)


def with_item(*types: str) -> Where:
    return lambda event: event.get("item", {}).get("type") in types


def both(*conditions: Where) -> Where:
    return lambda event: all(condition(event) for condition in conditions)


def either(*conditions: Where) -> Where:
    return lambda event: any(condition(event) for condition in conditions)


def neither(*conditions: Where) -> Where:
    return lambda event: not any(condition(event) for condition in conditions)


def drop(events: Events, at: int) -> Events:
    return events[:at] + events[at + 1 :]


def duplicate(events: Events, at: int) -> Events:
    return [*events[: at + 1], *events[at:]]


def swap(events: Events, at: int) -> Events | None:
    if at + 1 >= len(events):
        return None
    return [*events[:at], events[at + 1], events[at], *events[at + 2 :]]


def swap_back(events: Events, at: int) -> Events | None:
    return swap(events, at - 1) if at else None


def truncate(events: Events, at: int) -> Events:
    return events[:at]


def _edited(events: Events, at: int, edit: Callable[[Json], None]) -> Events | None:
    event = copy.deepcopy(events[at])
    try:
        edit(event)
    except (KeyError, IndexError, TypeError):
        return None
    return None if event == events[at] else [*events[:at], event, *events[at + 1 :]]


def setting(path: str, value: object) -> Change:
    def edit(event: Json) -> None:
        _get(event, path)
        put(event, path, value)

    return lambda events, at: _edited(events, at, edit)


def adding(path: str, value: object) -> Change:
    return lambda events, at: _edited(events, at, lambda event: put(event, path, value))


def changing(path: str, how: Callable[[Any], Any]) -> Change:
    return lambda events, at: _edited(events, at, lambda event: put(event, path, how(_get(event, path))))


def removing(path: str) -> Change:
    return lambda events, at: _edited(events, at, lambda event: take(event, path))


def inserting(event: Json) -> Change:
    return lambda events, at: [*events[:at], event, *events[at:]]


def ending_with(event: Json) -> Change:
    return lambda events, at: [*events[:at], event]


def nothing(events: Events, at: int) -> Events:
    return []


def everywhere(edit: Callable[[Json], Json]) -> Change:
    return lambda events, at: [edit(event) for event in events]


def moved_after(kind_end: str) -> Change:
    """Moves an event behind the next event of the same item whose type ends with `kind_end`."""

    def change(events: Events, at: int) -> Events | None:
        event = events[at]
        for later in range(at + 1, len(events)):
            same = events[later].get("output_index") == event.get("output_index")
            if same and str(events[later]["type"]).endswith(kind_end):
                return [*events[:at], *events[at + 1 : later + 1], event, *events[later + 1 :]]
        return None

    return change


def _get(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def _merged_deltas(events: Events, at: int) -> Events | None:
    """Merges two deltas of one text, which leaves the stream valid."""
    first, second = events[at], events[at + 1] if at + 1 < len(events) else {}
    keys = ("type", "output_index", "content_index", "summary_index", "command_index", "item_id")
    if any(first.get(key) != second.get(key) for key in keys) or not isinstance(first.get("delta"), str):
        return None
    return [*events[:at], {**first, "delta": first["delta"] + second["delta"]}, *events[at + 2 :]]


def _split_delta(events: Events, at: int) -> Events | None:
    """Splits a delta into two, which leaves the stream valid."""
    delta = events[at]["delta"]
    if not isinstance(delta, str) or len(delta) < 2:
        return None
    halves = [{**events[at], "delta": delta[:1]}, {**events[at], "delta": delta[1:]}]
    return [*events[:at], *halves, *events[at + 1 :]]


def _swapped_deltas(events: Events, at: int) -> Events | None:
    merged = _merged_deltas(events, at)
    if merged is None or merged[at]["delta"] == events[at + 1]["delta"] + events[at]["delta"]:
        return None
    return swap(events, at)


def _empty_delta(events: Events, at: int) -> Events | None:
    return inserting({**events[at], "delta": ""})(events, at)


def _next_part_within(events: Events, at: int) -> Events | None:
    """Begins the next part of an item before the text of the current part."""
    key = "summary_index" if "summary_index" in events[at] else "content_index"
    return inserting({**events[at], key: events[at][key] + 1})(events, at + 1)


def _call_id_of_another(events: Events, at: int) -> Events | None:
    """Replaces the call_id of a done call with that of an earlier call."""
    earlier = [event for event in events[:at] if both(_DONE, _CALL)(event)]
    return setting("item.call_id", earlier[0]["item"]["call_id"])(events, at) if earlier else None


def _broken_arguments(events: Events, at: int) -> Events | None:
    """Replaces the last character of a call's arguments in every event."""
    done = events[at]
    whole = done["item"].get("arguments")
    if not whole or done["item"].get("caller"):
        return None
    index = done["output_index"]
    result = copy.deepcopy(events)
    deltas = [e for e in result if e["type"].endswith("arguments.delta") and e["output_index"] == index]
    if not deltas:
        return None
    deltas[-1]["delta"] = deltas[-1]["delta"][:-1] + ","
    for event in result:
        if event.get("output_index") == index and event["type"].endswith("arguments.done"):
            event["arguments"] = whole[:-1] + ","
        if event["type"].endswith("output_item.done") and event["output_index"] == index:
            event["item"]["arguments"] = whole[:-1] + ","
    result[-1]["response"]["output"][index]["arguments"] = whole[:-1] + ","
    return result


def _late_item_done(events: Events, at: int) -> Events | None:
    """Closes an item after the next one has begun."""
    if at + 1 >= len(events) or not events[at + 1]["type"].endswith("output_item.added"):
        return None
    if {events[at]["item"]["type"], events[at + 1]["item"]["type"]} - set(schema.MODEL_WRITTEN):
        return None
    if events[at]["item"].get("caller") or events[at + 1]["item"].get("caller"):
        return None
    return swap(events, at)


def _merged_items(events: Events, at: int) -> Events | None:
    """Replaces the index in an item's events with the index of the previous item."""
    index = events[at]["output_index"]
    if index == 0:
        return None
    return [
        {**event, "output_index": index - 1} if event.get("output_index") == index else event
        for event in events
    ]


def _swapped_output(events: Events, at: int) -> Events | None:
    output = events[at]["response"]["output"]
    if len(output) < 2:
        return None
    return setting("response.output", [output[1], output[0], *output[2:]])(events, at)


_CREATED, _IN_PROGRESS = of_type("response.created"), of_type("response.in_progress")
_TERMINAL = of_type("response.completed")
_ADDED, _DONE = of_type("response.output_item.added"), of_type("response.output_item.done")
_PART_ADDED = of_type("response.content_part.added", "response.reasoning_summary_part.added")
_PART_DONE = of_type("response.content_part.done", "response.reasoning_summary_part.done")
_PART_TEXTS = tuple(channel.prefix for channel in schema.CHANNELS if channel.part_type)
_ITEM_TEXTS = tuple(channel.prefix for channel in schema.CHANNELS if not channel.part_type)
_TEXT_DELTA = of_type(*(f"{prefix}.delta" for prefix in _PART_TEXTS))
_TEXT_DONE = of_type(*(f"{prefix}.done" for prefix in _PART_TEXTS))
_CALL_DELTA = of_type(*(f"{prefix}.delta" for prefix in _ITEM_TEXTS))
_CALL_DONE = of_type(*(f"{prefix}.done" for prefix in _ITEM_TEXTS))
_ANNOTATION = of_type("response.output_text.annotation.added")
_INNER: Where = lambda event: "output_index" in event and "item_id" in event  # noqa: E731
_ANY: Where = lambda event: True  # noqa: E731
_WRITTEN = with_item(*schema.MODEL_WRITTEN)
_CALL = with_item("function_call")
_MESSAGE = with_item("message")
_NUMBERED: Where = lambda event: "sequence_number" in event  # noqa: E731
_HAS_STATUS: Where = lambda event: "status" in event.get("item", {})  # noqa: E731
_ERROR = {"type": "error", "error": {"type": "server_error", "code": "server_error", "message": "it broke"}}
_NO_CALLER: Where = lambda event: not event.get("item", {}).get("caller")  # noqa: E731


def _row(name: str, where: Where, change: Change, *codes: str) -> Mutation:
    return Mutation(name, where, change, frozenset(codes))


def _longer(text: str) -> str:
    return f"{text}~"


def _without_number(event: Json) -> Json:
    return {key: value for key, value in event.items() if key != "sequence_number"}


RESPONSES: Sequence[Mutation] = (
    # lifecycle
    _row("drop response.created", _CREATED, drop, "RS101"),
    _row("duplicate response.created", _CREATED, duplicate, "RS103"),
    _row("swap response.created with the next", _CREATED, swap, "RS101"),
    _row("drop response.in_progress", _IN_PROGRESS, drop, "RS104"),
    _row("duplicate response.in_progress", _IN_PROGRESS, duplicate, "RS103"),
    _row("in_progress after the first item began", _IN_PROGRESS, swap, "RS104"),
    _row("drop the terminal event", _TERMINAL, drop, "RS105"),
    _row("truncate", neither(_CREATED), truncate, "RS105"),
    _row("duplicate the terminal event", _TERMINAL, duplicate, "RS106"),
    _row("terminal event before the last event", _TERMINAL, swap_back, "RS106"),
    _row("terminal event of another kind", _TERMINAL, setting("type", "response.incomplete"), "RS107"),
    _row("terminal status changed", _TERMINAL, setting("response.status", "failed"), "RS107"),
    _row("terminal status null", _TERMINAL, setting("response.status", None), "RS107"),
    _row("status of response.created changed", _CREATED, setting("response.status", "completed"), "RS107"),
    _row(
        "sequence number jumps",
        both(_NUMBERED, neither(_CREATED)),
        changing("sequence_number", lambda n: n + 5),
        "RS110",
    ),
    _row(
        "sequence number repeats",
        both(_NUMBERED, neither(_CREATED)),
        changing("sequence_number", lambda n: n - 1),
        "RS110",
    ),
    _row("sequence begins at 1", both(_NUMBERED, _CREATED), setting("sequence_number", 1), "RS111"),
    _row("sequence number missing", _NUMBERED, removing("sequence_number"), "RS112"),
    _row("sequence number is a string", _NUMBERED, setting("sequence_number", "3"), "RS122"),
    _row("response id changes at the end", _TERMINAL, setting("response.id", "resp_x"), "RS114"),
    _row("response id changes at in_progress", _IN_PROGRESS, setting("response.id", "resp_x"), "RS114"),
    _row("created_at changes", _TERMINAL, setting("response.created_at", 5), "RS115"),
    _row("model changes", _TERMINAL, setting("response.model", "other"), "RS115"),
    _row("temperature changes", _TERMINAL, setting("response.temperature", 0.123), "RS116"),
    _row("output at the beginning", _CREATED, setting("response.output", [{"type": "message"}]), "RS117"),
    _row("usage at the beginning", _CREATED, setting("response.usage", {"total_tokens": 1}), "RS118"),
    _row("an unknown event", _DONE, inserting({"type": "response.sparkle"}), "RS119"),
    _row("type removed", _ANY, removing("type"), "RS120"),
    _row("no events", _CREATED, nothing, "RS123"),
    _row("no sequence number", both(_CREATED, _NUMBERED), everywhere(_without_number), "RS113"),
    _row("an error within the stream", _TERMINAL, inserting(_ERROR), "RS108"),
    _row("an error without a message", _TERMINAL, inserting({"type": "error", "error": {}}), "RS125"),
    _row("an error ends the stream", _TERMINAL, ending_with(_ERROR), "RS109"),
    _row("a key of the response is new at the end", _TERMINAL, adding("response.x_new_field", 1), "RS124"),
    _row("required field of the response removed", _TERMINAL, removing("response.tool_choice"), "RO101"),
    _row("required field of the response mistyped", _TERMINAL, setting("response.tools", None), "RO102"),
    _row("usage null at the end", _TERMINAL, setting("response.usage", None), "RO108"),
    _row(
        "usage does not add up", _TERMINAL, changing("response.usage.total_tokens", lambda n: n + 1), "RO115"
    ),
    _row(
        "more reasoning than output",
        _TERMINAL,
        setting("response.usage.output_tokens_details.reasoning_tokens", 10**9),
        "RO116",
    ),
    _row("usage details removed", _TERMINAL, removing("response.usage.input_tokens_details"), "RO114"),
    _row(
        "error in a completed response",
        _TERMINAL,
        setting("response.error", {"code": "x", "message": "y"}),
        "RO109",
    ),
    _row("completed_at before created_at", _TERMINAL, adding("response.completed_at", 1), "RO112"),
    _row("final output loses its last item", _TERMINAL, removing("response.output.-1"), "RS211"),
    _row("final output swapped", _TERMINAL, _swapped_output, "RS212"),
    _row("final item id changes", _TERMINAL, setting("response.output.-1.id", "x"), "RS212"),
    _row("final item type changes", _TERMINAL, setting("response.output.-1.type", "x"), "RS212"),
    # items
    _row("drop output_item.added", _ADDED, drop, "RS202"),
    _row("duplicate output_item.added", _ADDED, duplicate, "RS201"),
    _row("output_index of added skips", _ADDED, changing("output_index", lambda n: n + 1), "RS201"),
    _row("output_index of an inner event", _INNER, changing("output_index", lambda n: n + 50), "RS202"),
    _row("output_index removed", _INNER, removing("output_index"), "RS121"),
    _row("output_index is a string", _INNER, changing("output_index", str), "RS122"),
    _row("item_id retargeted", _INNER, setting("item_id", "item_x"), "RS204"),
    _row("item_id null", _INNER, setting("item_id", None), "RS122"),
    _row("item_id removed", _INNER, removing("item_id"), "RS121"),
    _row("two items merged", _ADDED, _merged_items, "RS201", "RS203"),
    _row("id null at added", _ADDED, setting("item.id", None), "RS205"),
    _row("id changed at added", _ADDED, setting("item.id", "item_x"), "RS204", "RS207"),
    _row("id changed at done", _DONE, setting("item.id", "item_x"), "RS207"),
    _row("id null at done", _DONE, setting("item.id", None), "RS207"),
    _row("type changed at done", _DONE, setting("item.type", "reasoning_x"), "RS207"),
    _row("drop output_item.done", both(_DONE, neither(with_item("mcp_list_tools"))), drop, "RS209"),
    _row("duplicate output_item.done", _DONE, duplicate, "RS203"),
    _row("parallel items reordered", _DONE, _late_item_done, "RS210"),
    _row("role changed", both(_DONE, _MESSAGE), setting("item.role", "user"), "RS208"),
    _row("name changed", both(_DONE, _CALL), setting("item.name", "other"), "RS208"),
    _row("call_id changed", both(_DONE, _CALL), setting("item.call_id", "call_x"), "RS208"),
    _row("call_id of another call", both(_DONE, _CALL), _call_id_of_another, "IT111"),
    _row("call_id removed", both(_DONE, _CALL), removing("item.call_id"), "RS208"),
    _row("name empty at added", both(_ADDED, _CALL), setting("item.name", ""), "RS218"),
    _row("status null at done", both(_DONE, _HAS_STATUS), setting("item.status", None), "IT103"),
    _row(
        "status in_progress at done",
        both(_DONE, _WRITTEN, _HAS_STATUS, _NO_CALLER),
        setting("item.status", "in_progress"),
        "RS215",
    ),
    _row("status unknown at done", both(_DONE, _HAS_STATUS), setting("item.status", "done"), "IT104"),
    _row(
        "status completed at added", both(_ADDED, _HAS_STATUS), setting("item.status", "completed"), "RS214"
    ),
    _row("status null at added", both(_ADDED, _HAS_STATUS), setting("item.status", None), "RS214"),
    _row("event fields within the item", _DONE, adding("item.output_index", 1), "IT110"),
    _row("arguments at added", both(_ADDED, _CALL), setting("item.arguments", "{}"), "RS213"),
    _row(
        "content at added",
        both(_ADDED, _MESSAGE),
        setting("item.content", [{"type": "output_text", "text": "x"}]),
        "RS213",
    ),
    # parts and texts
    _row("drop the part's added event", _PART_ADDED, drop, "RS302"),
    _row("duplicate the part's added event", _PART_ADDED, duplicate, "RS301"),
    _row(
        "part index skips",
        both(_PART_ADDED, of_type("response.content_part.added")),
        changing("content_index", lambda n: n + 1),
        "RS301",
    ),
    _row("the next part begins within a part", _PART_ADDED, _next_part_within, "RS304"),
    _row("part is added with text", _PART_ADDED, setting("part.text", "x"), "RS305"),
    _row("part of another type", _PART_ADDED, setting("part.type", "image"), "IT113"),
    _row("drop the part's done event", _PART_DONE, drop, "RS306"),
    _row("duplicate the part's done event", _PART_DONE, duplicate, "RS303"),
    _row("type of the part changes", _PART_DONE, setting("part.type", "image"), "RS307"),
    _row("text of the part changes", _PART_DONE, changing("part.text", _longer), "RS309"),
    _row("drop a delta", _TEXT_DELTA, drop, "RS308"),
    _row("duplicate a delta", _TEXT_DELTA, duplicate, "RS308"),
    _row("change a delta", _TEXT_DELTA, changing("delta", _longer), "RS308"),
    _row("swap two deltas", _TEXT_DELTA, _swapped_deltas, "RS308"),
    _row("an empty delta", _TEXT_DELTA, _empty_delta, "RS314"),
    _row("delta is null", _TEXT_DELTA, setting("delta", None), "RS122"),
    _row("delta after its done event", _TEXT_DELTA, moved_after("text.done"), "RS312"),
    _row(
        "delta of another kind",
        of_type("response.output_text.delta"),
        setting("type", "response.refusal.delta"),
        "RS317",
    ),
    _row(
        "content_index of a delta",
        of_type("response.output_text.delta"),
        changing("content_index", lambda n: n + 7),
        "RS302",
    ),
    _row("content_index removed", of_type("response.output_text.delta"), removing("content_index"), "RS121"),
    _row("drop the text's done event", _TEXT_DONE, drop, "RS315"),
    _row("duplicate the text's done event", _TEXT_DONE, duplicate, "RS313"),
    _row("text of the done event changes", _TEXT_DONE, changing("text", _longer), "RS308"),
    _row(
        "text of the item changes", both(_DONE, _MESSAGE), changing("item.content.0.text", _longer), "RS310"
    ),
    _row("item loses its content", both(_DONE, _MESSAGE), setting("item.content", []), "RS311"),
    _row(
        "annotations of the part removed",
        both(_DONE, _MESSAGE),
        removing("item.content.0.annotations"),
        "IT113",
    ),
    _row("drop an annotation", _ANNOTATION, drop, "RS320", "RS321"),
    _row("duplicate an annotation", _ANNOTATION, duplicate, "RS320"),
    _row("annotation_index skips", _ANNOTATION, changing("annotation_index", lambda n: n + 1), "RS320"),
    _row("annotation changes", _ANNOTATION, setting("annotation.type", "x"), "RS321"),
    # calls and tools
    _row("drop a delta of the arguments", _CALL_DELTA, drop, "RS401"),
    _row("duplicate a delta of the arguments", _CALL_DELTA, duplicate, "RS401"),
    _row("change a delta of the arguments", _CALL_DELTA, changing("delta", _longer), "RS401"),
    _row("arguments delta after its done event", _CALL_DELTA, moved_after(".done"), "RS312"),
    _row("drop the done event of the arguments", _CALL_DONE, drop, "RS403"),
    _row("duplicate the done event of the arguments", _CALL_DONE, duplicate, "RS313"),
    _row(
        "done event with other arguments", ending("arguments.done"), changing("arguments", _longer), "RS401"
    ),
    _row(
        "item with other arguments",
        both(_DONE, with_item("function_call", "mcp_call")),
        changing("item.arguments", _longer),
        "RS402",
    ),
    _row("arguments are not JSON", both(_DONE, _CALL), _broken_arguments, "IT109"),
    _row(
        "arguments events for another type",
        of_type("response.function_call_arguments.delta"),
        setting("type", "response.mcp_call_arguments.delta"),
        "RS316",
    ),
    _row(
        "progress of another tool",
        ending("web_search_call.searching", "file_search_call.searching"),
        setting("type", "response.mcp_call.in_progress"),
        "RS410",
    ),
    _row("progress out of order", ending("search_call.searching"), swap, "RS411"),
    _row("progress twice", ending("search_call.searching"), duplicate, "RS412"),
    _row("tool completed twice", ending("_call.completed", "mcp_list_tools.completed"), duplicate, "RS411"),
    _row("tool never completed", both(ending("search_call.completed")), drop, "RS413"),
    # changes that leave a stream valid
    _row("merge two deltas", both(ending(".delta")), _merged_deltas),
    _row("split a delta", both(ending(".delta")), _split_delta),
    _row("an unknown field", _ANY, adding("x_new_field", {"a": 1})),
)


def _more(delta: Json) -> Change:
    """Inserts another delta for the choice of a chunk."""

    def change(events: Events, at: int) -> Events | None:
        choice = {**events[at]["choices"][0], "delta": delta, "finish_reason": None}
        return inserting({**events[at], "choices": [choice]})(events, at + 1)

    return change


def _without_first_choice(chunk: Json) -> Json:
    return {**chunk, "choices": [{**choice, "index": choice["index"] + 1} for choice in chunk["choices"]]}


def _delta(event: Json) -> Json:
    choices = event.get("choices") or [{}]
    return choices[0].get("delta") or {}


def _call_delta(event: Json) -> Json:
    return (_delta(event).get("tool_calls") or [{}])[0]


def _finished(reason: str) -> Where:
    return lambda event: bool(event["choices"]) and event["choices"][0]["finish_reason"] == reason


_FINISH = "choices.0.finish_reason"
_CHAT_USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
_CALL_PATH = "choices.0.delta.tool_calls.0"
_FIRST: Where = lambda event: "role" in _delta(event)  # noqa: E731
_LAST: Where = lambda event: bool(event["choices"]) and event["choices"][0]["finish_reason"] is not None  # noqa: E731
_BEGINS_CALL: Where = lambda event: "id" in _call_delta(event)  # noqa: E731
_BEGINS_SECOND_CALL: Where = lambda event: _BEGINS_CALL(event) and _call_delta(event)["index"] == 1  # noqa: E731
_EXTENDS_CALL: Where = lambda event: bool(_call_delta(event)) and "id" not in _call_delta(event)  # noqa: E731
_USAGE: Where = lambda event: "usage" in event  # noqa: E731
_CONTENT: Where = lambda event: bool(_delta(event).get("content"))  # noqa: E731

CHAT: Sequence[Mutation] = (
    _row("drop the first delta", _FIRST, drop, "CC101"),
    _row("role removed", _FIRST, removing("choices.0.delta.role"), "CC101"),
    _row("role again", _CONTENT, adding("choices.0.delta.role", "assistant"), "CC102"),
    _row("role changes", _CONTENT, adding("choices.0.delta.role", "tool"), "CC105"),
    _row("drop finish_reason", _LAST, setting("choices.0.finish_reason", None), "CC104"),
    _row("finish_reason unknown", _LAST, setting("choices.0.finish_reason", "eos"), "CC106"),
    _row("tool_calls without a call", _finished("stop"), setting(_FINISH, "tool_calls"), "CC107"),
    _row("stop with calls", _finished("tool_calls"), setting(_FINISH, "stop"), "CC114"),
    _row("two finish reasons", _LAST, duplicate, "CC103"),
    _row("content after finish_reason", _LAST, _more({"content": "more"}), "CC103"),
    _row("truncate", neither(_FIRST, _USAGE), truncate, "CC104"),
    _row("id changes", _ANY, setting("id", "chatcmpl-x"), "CC119"),
    _row("created changes", _ANY, setting("created", 5), "CC120"),
    _row("model changes", _ANY, setting("model", "x"), "CC120"),
    _row("object changes", _ANY, setting("object", "x"), "CC120"),
    _row("another object", _FIRST, everywhere(lambda chunk: {**chunk, "object": "x"}), "CC124"),
    _row("no chunks", _FIRST, nothing, "CC123"),
    _row("an error within the stream", _LAST, inserting({"error": {"message": "it broke"}}), "CC130"),
    _row("no choice 0", _FIRST, everywhere(_without_first_choice), "CC110"),
    _row("reasoning after content", _CONTENT, _more({"reasoning": "Hm."}), "CC131"),
    _row("choices removed", _ANY, removing("choices"), "CC121"),
    _row("choices null", _ANY, setting("choices", None), "CC122"),
    _row("choices emptied", _CONTENT, setting("choices", []), "CC113"),
    _row("index of the choice removed", _CONTENT, removing("choices.0.index"), "CC122"),
    _row("delta null", _CONTENT, setting("choices.0.delta", None), "CC122"),
    _row("content is a list", _CONTENT, changing("choices.0.delta.content", lambda text: [text]), "CC122"),
    _row("an empty list of calls", _CONTENT, adding("choices.0.delta.tool_calls", []), "CC209"),
    _row("drop the beginning of a call", _BEGINS_CALL, drop, "CC202", "CC203"),
    _row("call without id", _BEGINS_CALL, removing(f"{_CALL_PATH}.id"), "CC203"),
    _row("call without type", _BEGINS_CALL, removing(f"{_CALL_PATH}.type"), "CC203"),
    _row("call without name", _BEGINS_CALL, removing(f"{_CALL_PATH}.function.name"), "CC203"),
    _row("call with an empty name", _BEGINS_CALL, setting(f"{_CALL_PATH}.function.name", ""), "CC203"),
    _row("call without index", _EXTENDS_CALL, removing(f"{_CALL_PATH}.index"), "CC201"),
    _row("call index skips", _BEGINS_CALL, changing(f"{_CALL_PATH}.index", lambda n: n + 1), "CC202"),
    _row("call id changes", _EXTENDS_CALL, adding(f"{_CALL_PATH}.id", "call_x"), "CC204"),
    _row("call type again", _EXTENDS_CALL, adding(f"{_CALL_PATH}.type", "function"), "CC205"),
    _row("call id of another", _BEGINS_SECOND_CALL, setting(f"{_CALL_PATH}.id", "call_1"), "CC207"),
    _row("a delta of a call after the next began", _BEGINS_SECOND_CALL, swap_back, "CC208"),
    _row("drop a delta of the arguments", _EXTENDS_CALL, drop, "CC206"),
    _row("duplicate a delta of the arguments", _EXTENDS_CALL, duplicate, "CC206"),
    _row(
        "arguments are not a string",
        _EXTENDS_CALL,
        setting(f"{_CALL_PATH}.function.arguments", {}),
        "CC122",
    ),
    _row("usage does not add up", _USAGE, setting("usage.total_tokens", 1), "CU102"),
    _row("usage without its total", _USAGE, removing("usage.total_tokens"), "CU101"),
    _row("usage beside choices", _LAST, adding("usage", _CHAT_USAGE), "CC111"),
    _row("usage twice", _USAGE, duplicate, "CC112"),
    _row("an unknown field", _ANY, adding("x_new_field", 1)),
)


def _input_delta(event: Json) -> bool:
    return _get_delta(event).get("type") == "input_json_delta"


def _get_delta(event: Json) -> Json:
    delta = event.get("delta")
    return delta if isinstance(delta, dict) else {}


def _merged_pieces(events: Events, at: int) -> Events | None:
    """Merges two deltas of one content block, which leaves the stream valid."""
    first, second = events[at]["delta"], _get_delta(events[at + 1])
    key = {"text_delta": "text", "input_json_delta": "partial_json"}.get(first["type"])
    if key is None or first["type"] != second.get("type"):
        return None
    merged = {**first, key: first[key] + second[key]}
    return [*events[:at], {**events[at], "delta": merged}, *events[at + 2 :]]


def _before_the_last_block(events: Events, at: int) -> Events | None:
    """Moves an event before the beginning of the last block."""
    begins = max(place for place, event in enumerate(events) if event["type"] == "content_block_start")
    return inserting(events[at])(drop(events, at), begins)


_MS_START, _MS_ENDING, _MS_END = of_type("message_start"), of_type("message_delta"), of_type("message_stop")
_MS_BEGINS, _MS_PIECE, _MS_STOP = (
    of_type("content_block_start"),
    of_type("content_block_delta"),
    of_type("content_block_stop"),
)
_MS_CALL: Where = lambda event: event.get("content_block", {}).get("type") == "tool_use"  # noqa: E731
_MS_SECOND_CALL: Where = lambda event: _MS_CALL(event) and event["content_block"]["id"] == "toolu_2"  # noqa: E731
_MS_TEXT: Where = lambda event: event.get("content_block", {}).get("type") == "text"  # noqa: E731
_MS_TEXT_PIECE: Where = lambda event: _get_delta(event).get("type") == "text_delta"  # noqa: E731
_MS_SIGNATURE: Where = lambda event: _get_delta(event).get("type") == "signature_delta"  # noqa: E731

MESSAGES: Sequence[Mutation] = (
    _row("drop message_start", _MS_START, drop, "MS101"),
    _row("duplicate message_start", _MS_START, duplicate, "MS102"),
    _row("type of message_start's message removed", _MS_START, removing("message.type"), "MS109"),
    _row("role of message_start's message removed", _MS_START, removing("message.role"), "MS109"),
    _row("role changes", _MS_START, setting("message.role", "user"), "MB103"),
    _row("usage of message_start removed", _MS_START, removing("message.usage"), "MB110"),
    _row("content at the beginning", _MS_START, setting("message.content", [{"type": "text"}]), "MS108"),
    _row("no events", _MS_START, nothing, "MS113"),
    _row("an error within the stream", _MS_END, inserting(_ERROR), "MS114"),
    _row("drop message_stop", _MS_END, drop, "MS103"),
    _row("truncate", neither(_MS_START), truncate, "MS103"),
    _row("duplicate message_stop", _MS_END, duplicate, "MS104"),
    _row("ping after message_stop", _MS_END, lambda e, at: [*e, {"type": "ping"}], "MS104"),
    _row("drop message_delta", _MS_ENDING, drop, "MS105"),
    _row("duplicate message_delta", _MS_ENDING, duplicate, "MS106"),
    _row("message_delta before the last block ends", _MS_ENDING, swap_back, "MS204"),
    _row("message_delta before the last block", _MS_ENDING, _before_the_last_block, "MS107"),
    _row("stop_reason null", _MS_ENDING, setting("delta.stop_reason", None), "MS105"),
    _row("stop_reason unknown", _MS_ENDING, setting("delta.stop_reason", "stop"), "MB104"),
    _row(
        "stop_reason tool_use or end_turn",
        _MS_ENDING,
        changing("delta.stop_reason", lambda r: "end_turn" if r == "tool_use" else "tool_use"),
        "MB105",
    ),
    _row("stop_reason stop_sequence", _MS_ENDING, setting("delta.stop_reason", "stop_sequence"), "MB106"),
    _row("stop_sequence removed", _MS_ENDING, removing("delta.stop_sequence"), "MS109"),
    _row("usage removed", _MS_ENDING, removing("usage"), "MS109"),
    _row("output_tokens removed", _MS_ENDING, removing("usage.output_tokens"), "MB110"),
    _row("output_tokens decreases", _MS_ENDING, setting("usage.output_tokens", 0), "MS215"),
    _row("output_tokens negative", _MS_ENDING, setting("usage.output_tokens", -1), "MB111"),
    _row("input_tokens changes", _MS_ENDING, adding("usage.input_tokens", 8), "MS216"),
    _row("type removed", _ANY, removing("type"), "MS112"),
    _row("an unknown event", _MS_STOP, inserting({"type": "sparkle"}), "MS111"),
    _row("drop content_block_start", _MS_BEGINS, drop, "MS202"),
    _row("duplicate content_block_start", _MS_BEGINS, duplicate, "MS203"),
    _row("index of a block skips", _MS_BEGINS, changing("index", lambda n: n + 1), "MS201"),
    _row("index of a delta", _MS_PIECE, changing("index", lambda n: n + 1), "MS202"),
    _row("index removed", either(_MS_PIECE, _MS_BEGINS, _MS_STOP), removing("index"), "MS109"),
    _row("index is a string", either(_MS_PIECE, _MS_BEGINS, _MS_STOP), changing("index", str), "MS110"),
    _row("drop content_block_stop", _MS_STOP, drop, "MS203", "MS204"),
    _row("duplicate content_block_stop", _MS_STOP, duplicate, "MS202"),
    _row("a delta after its block", _MS_STOP, swap_back, "MS202"),
    _row("text at the beginning of a block", _MS_TEXT, setting("content_block.text", "x"), "MS205"),
    _row("input at the beginning of a call", _MS_CALL, setting("content_block.input", {"a": 1}), "MS205"),
    _row("call without id", _MS_CALL, removing("content_block.id"), "MB107"),
    _row("call id of another", _MS_SECOND_CALL, setting("content_block.id", "toolu_1"), "MB108"),
    _row("call with an empty name", _MS_CALL, setting("content_block.name", ""), "MB107"),
    _row("block without type", _MS_BEGINS, removing("content_block.type"), "MB107"),
    _row("delta of another kind", _MS_TEXT_PIECE, setting("delta.type", "thinking_delta"), "MS206"),
    _row("delta without its text", _MS_TEXT_PIECE, removing("delta.text"), "MS109"),
    _row("drop the signature", _MS_SIGNATURE, drop, "MS210"),
    _row("thinking after the signature", _MS_SIGNATURE, swap_back, "MS209"),
    _row("drop a piece of the input", _input_delta, drop, "MS211"),
    _row("duplicate a piece of the input", _input_delta, duplicate, "MS211"),
    # changes that leave a stream valid
    _row("an unknown field", _ANY, adding("x_new_field", 1)),
    _row("ping anywhere", neither(_MS_START), inserting({"type": "ping"})),
    _row("merge two deltas", both(_MS_PIECE, neither(_MS_SIGNATURE)), _merged_pieces),
)


# The rules that no mutation of a stream's events can break, each with the reason.
BEYOND_EVENTS = {
    "SE110": "it needs a stream that is larger than the limit of the validator",
    "RS102": "it needs a resumed stream, and the mutated streams are not resumed",
    "CC108": "it needs the stream_options of the request",
    "CC109": "it needs the stream_options of the request",
}


def applied(mutation: Mutation, events: Events, most: int) -> Iterator[tuple[int, Events]]:
    """Yields the mutated stream for at most `most` events, which are spread over the stream."""
    places = [at for at, event in enumerate(events) if mutation.where(event)]
    step = max(1, len(places) // most)
    for at in places[::step][:most]:
        mutated = mutation.change(events, at)
        if mutated is not None:
            yield at, mutated

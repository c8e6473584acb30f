"""The rules for the items of a Responses stream."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import rule

_DELTA = "response.output_text.delta"
_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
_COMPLETED = "response.completed"

RS201 = rule(
    "RS201",
    "output_index is not the next one",
    "Items are numbered 0, 1, 2 in the order in which they are added, each once (63 of 63 streams). "
    "Clients store them in an array.",
    "call",
    ("set", f"{_ADDED}#1", "output_index", 5),
)

RS202 = rule(
    "RS202",
    "An event for an item that was never added",
    "Every event of an item comes after its output_item.added (60 of 60 streams). Clients look up the "
    "item and crash.",
    "text",
    ("drop", _ADDED),
)

RS203 = rule(
    "RS203",
    "An event for an item that is done",
    "An item has no events after its output_item.done.",
    "text",
    ("dup", _DONE),
    message="the item at output_index {index} is already done",
)

RS204 = rule(
    "RS204",
    "item_id is not the id of the item",
    "All events of an item carry the id from its output_item.added (59 of 59 streams). Clients use it to "
    "match events to items.",
    "text",
    ("set", _DELTA, "item_id", "msg_other"),
)

RS205 = rule(
    "RS205",
    "An item is added without an id",
    "The events of the item refer to this id.",
    "text",
    ("set", _ADDED, "item.id", ""),
    message="the {kind} has no id when it is added",
)

RS207 = rule(
    "RS207",
    "The id or type of an item changes",
    "Both are equal at added and done in 63 of 63 streams. In vllm#44608 the id was null at done.",
    "call",
    ("set", f"{_DONE}#1", "item.id", None),
    message="{key} of the item differs from its value at added",
)

RS208 = rule(
    "RS208",
    "The name, role or call_id of an item changes",
    "All are equal at added and done: name in 17 of 17 items, role in 45 of 45, call_id of function "
    "calls in 12 of 12. In vllm#47916 one call had two call ids. (The call_id of OpenAI's "
    "tool_search_call does change and is not checked.)",
    "call",
    ("set", f"{_DONE}#1", "item.call_id", "call_other"),
    message="{key} of the {kind} differs from its value at added",
)

RS209 = rule(
    "RS209",
    "An item is never closed",
    "Every item that is added is done before the response is completed. OpenAI leaves mcp_list_tools "
    "open when several servers are listed at once, so that type is exempt. Reported as information if "
    "the response did not complete.",
    "text",
    ("drop", _DONE),
    message="the {kind} at output_index {index} is never closed",
)

RS210 = rule(
    "RS210",
    "Items overlap",
    "Items that the model writes do not overlap (63 of 64 streams). Tools that the server runs "
    "may overlap (the 64th stream has three mcp_list_tools), and so may calls that a program makes "
    "(`caller`).",
    "two_calls",
    ("move", _DONE, _DONE),
    message="the {kind} at output_index {index} is still open",
)

RS211 = rule(
    "RS211",
    "response.output and the stream have different numbers of items",
    "The terminal event repeats all items (63 of 63 streams).",
    "call",
    ("unset", _COMPLETED, "response.output.0"),
)

RS212 = rule(
    "RS212",
    "response.output differs from the streamed items",
    "response.output repeats the items of the output_item.done events, in order, except for "
    "encrypted_content and fingerprint (63 of 63 streams).",
    "call",
    ("set", _COMPLETED, "response.output.1.arguments", "{}"),
)

RS213 = rule(
    "RS213",
    "An item is added with content",
    "content, summary, arguments and input are empty at added; clients append the deltas to them.",
    "call",
    ("set", f"{_ADDED}#1", "item.arguments", '{"city"'),
    message="{key} of the {kind} is not empty when it is added",
)

RS214 = rule(
    "RS214",
    "An item is not in_progress when it is added",
    "61 of 61 added items with a status are in_progress, tool outputs aside. Reported as information for "
    "tools that the server runs.",
    "text",
    ("set", _ADDED, "item.status", "completed"),
    message="the {kind} is not in_progress when it is added",
)

RS215 = rule(
    "RS215",
    "An item is still in_progress when it is done",
    "A done item is completed or incomplete. Calls that a program makes (`caller`) stay in_progress and "
    "are exempt.",
    "text",
    ("set", _DONE, "item.status", "in_progress"),
    message="the {kind} is still in_progress when it is done",
)

RS218 = rule(
    "RS218",
    "A call is added without a name or call_id",
    "Clients show the name of the tool, and register the call, when it is added.",
    "call",
    ("unset", f"{_ADDED}#1", "item.name"),
    message="the {kind} has no {key} when it is added",
)

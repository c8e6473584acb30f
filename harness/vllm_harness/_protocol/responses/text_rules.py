"""The rules for the parts, texts and progress events within an item of a Responses stream."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import INFO, rule

_DELTA = "response.output_text.delta"
_TEXT_DONE = "response.output_text.done"
_PART_ADDED = "response.content_part.added"
_PART_DONE = "response.content_part.done"
_DONE = "response.output_item.done"
_ARGUMENTS = "response.function_call_arguments.delta"
_ARGUMENTS_DONE = "response.function_call_arguments.done"
_ANNOTATION = "response.output_text.annotation.added"

RS301 = rule(
    "RS301",
    "content_index or summary_index is not the next one",
    "The parts of each item are numbered 0, 1, 2. In vllm#45742 the numbers continued across items and "
    "raised IndexError in the SDK.",
    "text",
    ("set", _PART_ADDED, "content_index", 1),
    message="{key} is not the next one",
)

RS302 = rule(
    "RS302",
    "A text whose part was never added",
    "content_part.added (or reasoning_summary_part.added) opens the part that the deltas fill (46 of 46 "
    "streams).",
    "text",
    ("drop", _PART_ADDED),
)

RS303 = rule(
    "RS303",
    "An event for a part that is done",
    "A part has no events after its done event.",
    "text",
    ("dup", _PART_DONE),
)

RS304 = rule(
    "RS304",
    "A part begins before the previous one is done",
    "One part is open at a time (46 of 46 streams).",
    "two_parts",
    ("move", _PART_DONE, _PART_DONE),
)

RS305 = rule(
    "RS305",
    "A part is added with content",
    "A part begins empty; clients append the deltas to it.",
    "text",
    ("set", _PART_ADDED, "part.text", "Hello"),
    message="{key} of the part is not empty when it is added",
)

RS306 = rule(
    "RS306",
    "A part is never closed",
    "Every part is done before its item is (46 of 46 streams).",
    "text",
    ("drop", _PART_DONE),
    message="part {number} is never closed",
)

RS307 = rule(
    "RS307",
    "The type of a part changes",
    "The type is the same in the added and done events.",
    "text",
    ("set", _PART_DONE, "part.type", "refusal"),
)

RS308 = rule(
    "RS308",
    "The deltas do not add up to the text",
    "They add up in 45 of 45 streams. If they do not, clients that show the deltas and clients that read "
    "the done event see two answers.",
    "text",
    ("drop", _DELTA),
)

RS309 = rule(
    "RS309",
    "The text of a part differs from that of its done event",
    "output_text.done, content_part.done, output_item.done and the final output agree (45 of 45 streams).",
    "text",
    ("set", _PART_DONE, "part.text", "Bye"),
    message="{key} of the part differs from that of {event}",
)

RS310 = rule(
    "RS310",
    "The item differs from its part",
    "As RS309, but one level up. logprobs, which OpenAI omits from content_part.done, are ignored.",
    "text",
    ("set", _DONE, "item.content.0.text", "Bye"),
)

RS311 = rule(
    "RS311",
    "The item and the stream have different numbers of parts",
    "Every part of a done item was streamed, and every streamed part is in the item.",
    "text",
    ("set", _DONE, "item.content", []),
    message="{key} does not have as many parts as were streamed",
)

RS312 = rule(
    "RS312",
    "A delta or an annotation after the text was done",
    "The done event closes the text.",
    "text",
    ("move", f"{_DELTA}#1", _PART_DONE),
)

RS313 = rule(
    "RS313",
    "A text has more than one done event",
    "Each text has exactly one done event (45 of 45 streams).",
    "text",
    ("dup", _TEXT_DONE),
    message="{event} comes twice",
)

RS314 = rule(
    "RS314",
    "An empty delta",
    "An empty delta carries nothing, and OpenAI never sends one (57 of 57 streams).",
    "text",
    (
        "insert",
        _DELTA,
        {
            "type": _DELTA,
            "sequence_number": 0,
            "item_id": "msg_1",
            "output_index": 0,
            "content_index": 0,
            "delta": "",
        },
    ),
    severity=INFO,
)

RS315 = rule(
    "RS315",
    "The done event of a text is missing",
    "output_text.done (refusal.done, reasoning_text.done, reasoning_summary_text.done) comes "
    "before the part's done event, even for an empty text.",
    "text",
    ("drop", _TEXT_DONE),
    message="{event} is missing",
)

RS316 = rule(
    "RS316",
    "An event for another type of item",
    "A message has no arguments, and a call has no content parts.",
    "call",
    ("set", _ARGUMENTS, "type", "response.mcp_call_arguments.delta"),
)

RS317 = rule(
    "RS317",
    "An event for another type of part",
    "output_text deltas fill only output_text parts.",
    "text",
    ("set", _DELTA, "type", "response.refusal.delta"),
)

RS320 = rule(
    "RS320",
    "annotation_index is not the next one",
    "The annotations of each part are numbered from 0 (10 of 10 streams).",
    "annotated",
    ("set", f"{_ANNOTATION}#1", "annotation_index", 5),
)

RS321 = rule(
    "RS321",
    "The annotations of a part differ from those that were streamed",
    "The number and the content agree in 45 of 45 streams, and every annotation was streamed.",
    "annotated",
    ("drop", f"{_ANNOTATION}#1"),
)

RS401 = rule(
    "RS401",
    "The deltas do not add up to the arguments",
    "function_call_arguments add up in 12 of 12 streams and mcp_call_arguments in 3 of 3; the same "
    "holds for code, commands and patches. A done event without any delta is the same fault.",
    "call",
    ("drop", _ARGUMENTS),
)

RS402 = rule(
    "RS402",
    "The arguments of the item differ from those of their done event",
    "function_call_arguments.done and output_item.done agree (12 of 12 streams).",
    "call",
    ("set", _ARGUMENTS_DONE, "arguments", '{"city":"Rome"}'),
    message="{key} of the item differs from that of {event}",
)

RS403 = rule(
    "RS403",
    "The done event of the arguments is missing",
    "Each call has exactly one such event (12 of 12 streams). Clients run the tool when it arrives.",
    "call",
    ("drop", _ARGUMENTS_DONE),
    message="{event} is missing",
)

RS410 = rule(
    "RS410",
    "A progress event for another type of item",
    "web_search_call events belong to web_search_call items, and so on.",
    "search",
    ("set", "response.web_search_call.searching", "type", "response.file_search_call.searching"),
)

RS411 = rule(
    "RS411",
    "A progress event out of order",
    "in_progress comes first, and completed or failed comes last.",
    "search",
    ("move", "response.web_search_call.completed", "response.web_search_call.in_progress"),
    message="{event} is out of order",
)

RS412 = rule(
    "RS412",
    "A progress event comes twice",
    "OpenAI repeats only mcp_call.in_progress (1 of 4 streams), which is not reported.",
    "search",
    ("dup", "response.web_search_call.searching"),
    severity=INFO,
    message="{event} comes twice",
)

RS413 = rule(
    "RS413",
    "A tool is done without its last progress event",
    "OpenAI always sends this event; Azure sometimes does not.",
    "search",
    ("drop", "response.web_search_call.completed"),
    severity=INFO,
    message="the {kind} is done without its last progress event",
)

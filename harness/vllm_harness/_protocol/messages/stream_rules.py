"""The rules for Messages streams and the content blocks in them."""

from __future__ import annotations

from functools import partial

from vllm_harness._protocol.core.rule import INFO, MESSAGES, rule

_rule = partial(rule, source=MESSAGES)

_START = "message_start"
_BLOCK = "content_block_start"
_DELTA = "content_block_delta"
_STOP = "content_block_stop"
_ENDING = "message_delta"
_END = "message_stop"

MS101 = _rule(
    "MS101",
    "A Messages stream does not begin with message_start",
    "message_start carries the message that the later events fill; SDKs raise an error without it.",
    "messages_text",
    ("drop", _START),
)

MS102 = _rule(
    "MS102",
    "message_start is repeated",
    "A stream is one message.",
    "messages_text",
    ("dup", _START),
)

MS103 = _rule(
    "MS103",
    "The stream ends without message_stop",
    "The stream was truncated.",
    "messages_text",
    ("drop", _END),
)

MS104 = _rule(
    "MS104",
    "An event after message_stop",
    "message_stop is the last event.",
    "messages_text",
    ("dup", _END),
)

MS105 = _rule(
    "MS105",
    "No stop_reason before message_stop",
    "A message_delta carries the stop_reason; without it, a client does not know why the message ended.",
    "messages_text",
    ("drop", _ENDING),
)

MS106 = _rule(
    "MS106",
    "stop_reason is repeated",
    "stop_reason is sent once; later message_delta events may only update the token counts.",
    "messages_text",
    ("dup", _ENDING),
)

MS107 = _rule(
    "MS107",
    "A content block after the stop_reason",
    "message_delta follows all blocks.",
    "messages_text",
    ("move", _ENDING, _BLOCK),
)

MS108 = _rule(
    "MS108",
    "message_start has content, a stop_reason or a stop_sequence",
    "They come with later events; clients that read both message_start and those events get them twice.",
    "messages_text",
    ("set", _START, "message.stop_reason", "end_turn"),
    message="{key} of message_start is not empty",
)

MS109 = _rule(
    "MS109",
    "A required field of a Messages event is missing",
    "In vllm#45367 message_start had no type and no role, and in vllm#55324 message_delta had no "
    "stop_sequence; strict clients reject such a stream.",
    "messages_text",
    ("unset", _START, "message.role"),
    message="required field {key!r} is missing",
)

MS110 = _rule(
    "MS110",
    "A field of a Messages event has the wrong type",
    "Typed clients cannot read the event.",
    "messages_text",
    ("set", _DELTA, "index", "0"),
    message="field {key!r} has the wrong type",
)

MS111 = _rule(
    "MS111",
    "An event that is not in the published Messages API",
    "New events may be added, and clients must ignore them.",
    "messages_text",
    ("insert", _ENDING, {"type": "message_sparkle"}),
    severity=INFO,
    message="event type {kind!r} is not in the published API",
)

MS112 = _rule(
    "MS112",
    "A Messages event without a type",
    "Clients dispatch on the type.",
    "messages_text",
    ("unset", _STOP, "type"),
)

MS113 = _rule(
    "MS113",
    "A Messages stream without events",
    "Not even an error was sent.",
    "messages_text",
    *[("drop", 0)] * 8,
)

MS114 = _rule(
    "MS114",
    "The server reports an error in the Messages stream",
    "An error may follow the status HTTP 200; it ends the message.",
    "messages_text",
    (
        "insert",
        _ENDING,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ),
    severity=INFO,
)

MS201 = _rule(
    "MS201",
    "The index of a content block is not the next one",
    "Blocks are numbered 0, 1, 2; the index is the position of the block in content.",
    "messages_two_calls",
    ("set", f"{_BLOCK}#1", "index", 3),
)

MS202 = _rule(
    "MS202",
    "An event for a content block that is not open",
    "Deltas and stops belong to the block that began last and has not ended.",
    "messages_text",
    ("drop", _BLOCK),
    message="{event} for a block that is not open",
)

MS203 = _rule(
    "MS203",
    "A content block begins before the previous one has ended",
    "Blocks come one after another.",
    "messages_two_calls",
    ("drop", _STOP),
    message="block {index} is still open",
)

MS204 = _rule(
    "MS204",
    "A content block is never closed",
    "Clients process a block, and parse the input of a call, when it ends.",
    "messages_text",
    ("drop", _STOP),
    message="block {index} is never closed",
)

MS205 = _rule(
    "MS205",
    "A content block begins with content",
    "Its text, thinking or input comes in deltas; clients that also read the start event get it twice.",
    "messages_text",
    ("set", _BLOCK, "content_block.text", "Hello"),
    message="a {kind} block begins with content",
)

MS206 = _rule(
    "MS206",
    "A delta does not fit its content block",
    "text_delta fits text, thinking_delta and signature_delta fit thinking, and input_json_delta fits "
    "tool_use.",
    "messages_text",
    ("set", _DELTA, "delta", {"type": "thinking_delta", "thinking": "Hello"}),
    message="the delta does not fit a {kind} block",
)

MS209 = _rule(
    "MS209",
    "Thinking after its signature",
    "The signature comes just before the end of the block and covers all of its thinking.",
    "messages_thinking",
    ("move", f"{_DELTA}#2", f"{_DELTA}#1"),
)

MS210 = _rule(
    "MS210",
    "A thinking block ends without its signature",
    "Clients must send thinking back with its signature.",
    "messages_thinking",
    ("drop", f"{_DELTA}#2"),
)

MS211 = _rule(
    "MS211",
    "The input of a call is not a JSON object",
    "Clients parse the concatenated input_json_delta pieces. Calls that a limit or a stop sequence "
    "truncated are not checked.",
    "messages_call",
    ("drop", f"{_DELTA}#2"),
    message="the input of block {index} is not a JSON object",
)

MS215 = _rule(
    "MS215",
    "output_tokens decreases",
    "The counts of message_delta are cumulative.",
    "messages_text",
    ("set", _ENDING, "usage.output_tokens", 0),
)

MS216 = _rule(
    "MS216",
    "The input tokens change between message_start and message_delta",
    "input_tokens, cache_creation_input_tokens and cache_read_input_tokens together count the prompt.",
    "messages_text",
    ("set", _ENDING, "usage.input_tokens", 5),
)

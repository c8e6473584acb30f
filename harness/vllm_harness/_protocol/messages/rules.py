"""The rules of Anthropic Messages: streams and bodies."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import ERROR, INFO, MESSAGES, rule

_START = "message_start"
_BLOCK = "content_block_start"
_DELTA = "content_block_delta"
_STOP = "content_block_stop"
_ENDING = "message_delta"
_END = "message_stop"

MS101 = rule(
    "MS101",
    ERROR,
    "A Messages stream does not begin with message_start",
    "It carries the message which the later events fill; SDKs raise without it.",
    MESSAGES,
    "messages_text",
    ("drop", _START),
)

MS102 = rule(
    "MS102",
    ERROR,
    "message_start comes again",
    "A stream is one message.",
    MESSAGES,
    "messages_text",
    ("dup", _START),
)

MS103 = rule(
    "MS103",
    ERROR,
    "The stream ends without message_stop",
    "The stream was cut.",
    MESSAGES,
    "messages_text",
    ("drop", _END),
)

MS104 = rule(
    "MS104",
    ERROR,
    "An event after message_stop",
    "message_stop is the last.",
    MESSAGES,
    "messages_text",
    ("dup", _END),
)

MS105 = rule(
    "MS105",
    ERROR,
    "No stop_reason before message_stop",
    "A message_delta carries it; without it the message never says why it ended.",
    MESSAGES,
    "messages_text",
    ("drop", _ENDING),
)

MS106 = rule(
    "MS106",
    ERROR,
    "stop_reason comes again",
    "Given once; later message_delta events may only count tokens.",
    MESSAGES,
    "messages_text",
    ("dup", _ENDING),
)

MS107 = rule(
    "MS107",
    ERROR,
    "A content block after the stop_reason",
    "message_delta follows all blocks.",
    MESSAGES,
    "messages_text",
    ("move", _ENDING, _BLOCK),
)

MS108 = rule(
    "MS108",
    ERROR,
    "message_start has content, a stop_reason or a stop_sequence",
    "They come with later events: clients that take both would have them twice.",
    MESSAGES,
    "messages_text",
    ("set", _START, "message.stop_reason", "end_turn"),
    message="{key} of message_start is not empty",
)

MS109 = rule(
    "MS109",
    ERROR,
    "A required field of a Messages event is missing",
    "vllm#45367: message_start without type and role, vllm#55324: message_delta without stop_sequence; "
    "strict clients refuse the stream.",
    MESSAGES,
    "messages_text",
    ("unset", _START, "message.role"),
    message="required field {key!r} is missing",
)

MS110 = rule(
    "MS110",
    ERROR,
    "A field of a Messages event has the wrong type",
    "Typed clients cannot read it.",
    MESSAGES,
    "messages_text",
    ("set", _DELTA, "index", "0"),
    message="field {key!r} has the wrong type",
)

MS111 = rule(
    "MS111",
    INFO,
    "An event that is not in the published Messages API",
    "New ones may be added, and clients must pass them over.",
    MESSAGES,
    "messages_text",
    ("insert", _ENDING, {"type": "message_sparkle"}),
    message="event type {kind!r} is not in the published API",
)

MS112 = rule(
    "MS112",
    ERROR,
    "A Messages event without a type",
    "Clients dispatch on it.",
    MESSAGES,
    "messages_text",
    ("unset", _STOP, "type"),
)

MS113 = rule(
    "MS113",
    ERROR,
    "A Messages stream without events",
    "Not even an error was sent.",
    MESSAGES,
    "messages_text",
    *[("drop", 0)] * 8,
)

MS114 = rule(
    "MS114",
    INFO,
    "The server reports an error in the Messages stream",
    "Legal after HTTP 200; what was sent so far is all there is.",
    MESSAGES,
    "messages_text",
    (
        "insert",
        _ENDING,
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
    ),
)

MS201 = rule(
    "MS201",
    ERROR,
    "index of a content block is not the next one",
    "0, 1, 2: it is the block's place in content.",
    MESSAGES,
    "messages_two_calls",
    ("set", f"{_BLOCK}#1", "index", 3),
)

MS202 = rule(
    "MS202",
    ERROR,
    "An event for a content block that is not open",
    "Deltas and stops belong to the block that began last and has not ended.",
    MESSAGES,
    "messages_text",
    ("drop", _BLOCK),
    message="{event} for a block that is not open",
)

MS203 = rule(
    "MS203",
    ERROR,
    "A content block begins before the one before has ended",
    "Blocks come one after the other.",
    MESSAGES,
    "messages_two_calls",
    ("drop", _STOP),
    message="block {index} is still open",
)

MS204 = rule(
    "MS204",
    ERROR,
    "A content block is never closed",
    "Clients hand a block on, and parse a call's input, when it ends.",
    MESSAGES,
    "messages_text",
    ("drop", _STOP),
    message="block {index} is never closed",
)

MS205 = rule(
    "MS205",
    ERROR,
    "A content block begins with content",
    "Its text, thinking or input comes with deltas: clients that take both have it twice.",
    MESSAGES,
    "messages_text",
    ("set", _BLOCK, "content_block.text", "Hello"),
    message="a {kind} block begins with content",
)

MS206 = rule(
    "MS206",
    ERROR,
    "A delta does not fit its content block",
    "text_delta to text, thinking_delta and signature_delta to thinking, input_json_delta to tool_use.",
    MESSAGES,
    "messages_text",
    ("set", _DELTA, "delta", {"type": "thinking_delta", "thinking": "Hello"}),
    message="the delta does not fit a {kind} block",
)

MS209 = rule(
    "MS209",
    ERROR,
    "Thinking after its signature",
    "The signature comes right before the block's end and covers all of it.",
    MESSAGES,
    "messages_thinking",
    ("move", f"{_DELTA}#2", f"{_DELTA}#1"),
)

MS210 = rule(
    "MS210",
    ERROR,
    "A thinking block ends without its signature",
    "Clients must send thinking back with its signature.",
    MESSAGES,
    "messages_thinking",
    ("drop", f"{_DELTA}#2"),
)

MS211 = rule(
    "MS211",
    ERROR,
    "The input of a call is not a JSON object",
    "The input_json_delta pieces add up to what the client parses. Not checked for a call that a limit or a "
    "stop sequence cut.",
    MESSAGES,
    "messages_call",
    ("drop", f"{_DELTA}#2"),
    message="the input of block {index} is not a JSON object",
)

MS215 = rule(
    "MS215",
    ERROR,
    "output_tokens shrinks",
    "The counts of message_delta are cumulative.",
    MESSAGES,
    "messages_text",
    ("set", _ENDING, "usage.output_tokens", 0),
)

MS216 = rule(
    "MS216",
    ERROR,
    "The input tokens change between message_start and message_delta",
    "input_tokens, cache_creation_input_tokens and cache_read_input_tokens together are the prompt.",
    MESSAGES,
    "messages_text",
    ("set", _ENDING, "usage.input_tokens", 5),
)

MB101 = rule(
    "MB101",
    ERROR,
    "A required field of the message is missing",
    "id, type, role, content, model, stop_reason, stop_sequence (it may be null), usage.",
    MESSAGES,
    "answer",
    ("unset", 0, "stop_sequence"),
    message="required field {key!r} is missing",
)

MB102 = rule(
    "MB102",
    ERROR,
    "A field of the message has the wrong type",
    "Typed clients cannot read it.",
    MESSAGES,
    "answer",
    ("set", 0, "content", "Hello, world"),
    message="field {key!r} has the wrong type",
)

MB103 = rule(
    "MB103",
    ERROR,
    "type is not message, or role is not assistant",
    "Clients tell objects apart by them.",
    MESSAGES,
    "answer",
    ("set", 0, "role", "user"),
    message="{key} is not {wanted!r}",
)

MB104 = rule(
    "MB104",
    ERROR,
    "stop_reason is not one of the API's",
    "end_turn, max_tokens, stop_sequence, tool_use, pause_turn, refusal, model_context_window_exceeded; "
    "never null in a finished message.",
    MESSAGES,
    "answer",
    ("set", 0, "stop_reason", "stop"),
)

MB105 = rule(
    "MB105",
    ERROR,
    "stop_reason and the tool_use blocks contradict each other",
    "A client runs tools when stop_reason is tool_use.",
    MESSAGES,
    "answer_call",
    ("set", 0, "stop_reason", "end_turn"),
)

MB106 = rule(
    "MB106",
    ERROR,
    "stop_sequence does not fit stop_reason",
    "The text that ended the message where stop_reason is stop_sequence, null otherwise.",
    MESSAGES,
    "answer",
    ("set", 0, "stop_sequence", "END"),
    message="stop_sequence does not fit stop_reason {reason!r}",
)

MB107 = rule(
    "MB107",
    ERROR,
    "A content block is malformed",
    "text: text; thinking: thinking and signature; tool_use: id, name, input (an object). A thinking "
    "block begins with an empty signature; that it is missing there is a warning.",
    MESSAGES,
    "answer_call",
    ("unset", 0, "content.1.name"),
    message="field {key!r} of a {kind} block is missing or malformed",
)

MB108 = rule(
    "MB108",
    ERROR,
    "Two calls of a message share an id",
    "The tool_result could answer either.",
    MESSAGES,
    "messages_two_calls",
    ("set", f"{_BLOCK}#1", "content_block.id", "toolu_1"),
)

MB109 = rule(
    "MB109",
    INFO,
    "A kind of content block that is not in the published API",
    "New ones may be added.",
    MESSAGES,
    "answer",
    ("set", 0, "content.0", {"type": "sparkle"}),
    message="block type {kind!r} is not in the published API",
)

MB110 = rule(
    "MB110",
    ERROR,
    "A count of tokens is missing or of the wrong type",
    "input_tokens and output_tokens; a message_delta need not repeat the input.",
    MESSAGES,
    "answer",
    ("unset", 0, "usage.output_tokens"),
    message="field {key!r} is missing or has the wrong type",
)

MB111 = rule(
    "MB111",
    ERROR,
    "A count of tokens is negative",
    "Clients add them up.",
    MESSAGES,
    "answer",
    ("set", 0, "usage.input_tokens", -1),
)

MB112 = rule(
    "MB112",
    ERROR,
    "An error of the Messages API is malformed",
    '{"type": "error", "error": {"type": ..., "message": ...}}, in a body and in an error event alike.',
    MESSAGES,
    "messages_error",
    ("unset", 0, "error.message"),
    message="field {key!r} of the error is missing or wrong",
)

MB113 = rule(
    "MB113",
    ERROR,
    "The type of an error is not one of the Messages API's",
    "Clients choose by it whether to try again. vllm#57997: vLLM's own names.",
    MESSAGES,
    "messages_error",
    ("set", 0, "error.type", "NotFoundError"),
)

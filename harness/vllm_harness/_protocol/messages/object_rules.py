"""The rules for Messages bodies: messages, content blocks, usage and errors."""

from __future__ import annotations

from functools import partial

from vllm_harness._protocol.core.rule import INFO, MESSAGES, rule

_rule = partial(rule, source=MESSAGES)

_BLOCK = "content_block_start"

MB101 = _rule(
    "MB101",
    "A required field of the message is missing",
    "A message requires id, type, role, content, model, stop_reason, stop_sequence (or null) and usage.",
    "answer",
    ("unset", 0, "stop_sequence"),
    message="required field {key!r} is missing",
)

MB102 = _rule(
    "MB102",
    "A field of the message has the wrong type",
    "Typed clients cannot read the message.",
    "answer",
    ("set", 0, "content", "Hello, world"),
    message="field {key!r} has the wrong type",
)

MB103 = _rule(
    "MB103",
    "type is not message, or role is not assistant",
    "Clients use these fields to distinguish objects.",
    "answer",
    ("set", 0, "role", "user"),
    message="{key} is not {wanted!r}",
)

MB104 = _rule(
    "MB104",
    "stop_reason is not one of the API's values",
    "stop_reason is end_turn, max_tokens, stop_sequence, tool_use, pause_turn, refusal or "
    "model_context_window_exceeded, and never null in a finished message.",
    "answer",
    ("set", 0, "stop_reason", "stop"),
)

MB105 = _rule(
    "MB105",
    "stop_reason and the tool_use blocks contradict each other",
    "A client runs tools when stop_reason is tool_use.",
    "answer_call",
    ("set", 0, "stop_reason", "end_turn"),
)

MB106 = _rule(
    "MB106",
    "stop_sequence does not fit stop_reason",
    "stop_sequence is the text that ended the message if stop_reason is stop_sequence, and null otherwise.",
    "answer",
    ("set", 0, "stop_sequence", "END"),
    message="stop_sequence does not fit stop_reason {reason!r}",
)

MB107 = _rule(
    "MB107",
    "A content block is malformed",
    "A text block has text; a thinking block has thinking and signature; a tool_use block has id, name "
    "and input (an object). A streamed thinking block begins with an empty signature; if it begins "
    "without one, the finding is a warning.",
    "answer_call",
    ("unset", 0, "content.1.name"),
    message="field {key!r} of a {kind} block is missing or malformed",
)

MB108 = _rule(
    "MB108",
    "Two calls of a message share an id",
    "A tool_result with this id could answer either call.",
    "messages_two_calls",
    ("set", f"{_BLOCK}#1", "content_block.id", "toolu_1"),
)

MB109 = _rule(
    "MB109",
    "A kind of content block that is not in the published API",
    "New kinds may be added.",
    "answer",
    ("set", 0, "content.0", {"type": "sparkle"}),
    severity=INFO,
    message="block type {kind!r} is not in the published API",
)

MB110 = _rule(
    "MB110",
    "A token count is missing or has the wrong type",
    "input_tokens and output_tokens are required; a message_delta need not repeat input_tokens.",
    "answer",
    ("unset", 0, "usage.output_tokens"),
    message="field {key!r} is missing or has the wrong type",
)

MB111 = _rule(
    "MB111",
    "A token count is negative",
    "Clients add up token counts.",
    "answer",
    ("set", 0, "usage.input_tokens", -1),
)

MB112 = _rule(
    "MB112",
    "An error of the Messages API is malformed",
    'An error is {"type": "error", "error": {"type": ..., "message": ...}}, in a body and in an error event.',
    "messages_error",
    ("unset", 0, "error.message"),
    message="field {key!r} of the error is missing or wrong",
)

MB113 = _rule(
    "MB113",
    "The type of an error is not one of the Messages API's",
    "Clients use the type to decide whether to retry. In vllm#57997 vLLM sends its own names.",
    "messages_error",
    ("set", 0, "error.type", "NotFoundError"),
)

"""The published shape of messages, content blocks and events, as tables."""

from __future__ import annotations

from typing import NamedTuple

from vllm_harness._protocol.core.types import DICT, INT, LIST, NULL, STR, Fields

STR_OR_NULL = (str, NULL)
EVENT_FIELDS: dict[str, Fields] = {
    "message_start": (("message", DICT),),
    "content_block_start": (("index", INT), ("content_block", DICT)),
    "content_block_delta": (("index", INT), ("delta", DICT)),
    "content_block_stop": (("index", INT),),
    "message_delta": (("delta", DICT), ("usage", DICT)),
    "message_stop": (),
    "ping": (),
}
# A tuple, so that even a value that is not hashable can be looked up.
EVENTS = tuple(EVENT_FIELDS)
STOP_REASONS = (
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
)
# The reasons for which a model stops early, so that its last call may be truncated.
TRUNCATING_REASONS = ("max_tokens", "model_context_window_exceeded", "refusal", "stop_sequence")
ERRORS = (
    "invalid_request_error",
    "authentication_error",
    "billing_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "timeout_error",
    "overloaded_error",
)
MESSAGE_FIELDS: Fields = (
    ("id", STR),
    ("type", STR),
    ("role", STR),
    ("content", LIST),
    ("model", STR),
    ("stop_reason", STR_OR_NULL),
    ("stop_sequence", STR_OR_NULL),
    ("usage", DICT),
)
INPUT_COUNTS = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")


class BlockKind(NamedTuple):
    """A kind of content block.

    Attributes:
        fields: the required fields.
        growing: the field that deltas fill; empty if none do.
        deltas: the types of the deltas that fit the block.
    """

    fields: Fields
    growing: str = ""
    deltas: tuple[str, ...] = ()


_CALL = BlockKind((("id", STR), ("name", STR), ("input", DICT)), "input", ("input_json_delta",))
BLOCKS = {
    "text": BlockKind((("text", STR),), "text", ("text_delta", "citations_delta")),
    "thinking": BlockKind(
        (("thinking", STR), ("signature", STR)), "thinking", ("thinking_delta", "signature_delta")
    ),
    "redacted_thinking": BlockKind((("data", STR),)),
    "tool_use": _CALL,
    "server_tool_use": _CALL,
}
CALLS = ("tool_use", "server_tool_use")
# The field that carries the piece of text, by type of delta.
PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}

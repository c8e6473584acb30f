"""The published shape of completions, chunks and usage, as tables."""

from __future__ import annotations

from vllm_harness._protocol.core.events import REASONING_KEYS
from vllm_harness._protocol.core.types import DICT, INT, LIST, NUMBER, STR, Fields

# The fields of a completion, and of a chunk.
COMPLETION_FIELDS: Fields = (
    ("id", STR),
    ("object", STR),
    ("created", NUMBER),
    ("model", STR),
    ("choices", LIST),
)
CHOICE_FIELDS: Fields = (("index", INT), ("message", DICT), ("finish_reason", STR))
CALL_FIELDS: Fields = (("id", STR), ("type", STR))
FUNCTION_FIELDS: Fields = (("name", STR), ("arguments", STR))
USAGE_FIELDS: Fields = (("prompt_tokens", INT), ("completion_tokens", INT), ("total_tokens", INT))
FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
TEXT_KEYS = (*REASONING_KEYS, "content", "refusal")
"""Text fields, in the order in which those of one delta are checked; a JSON object has no order."""

"""The published shape of events, items and responses, as tables.

Sources: OpenAI's OpenAPI description 2.3.0 and the types of the openai SDK, corrected by recorded OpenAI
traffic: fields that the schema requires but OpenAI does not send (`name` of function_call_arguments.done,
`logprobs` of old streams, `usage` before the end, payloads of items at `added`) are not required here.
"""

from __future__ import annotations

from typing import NamedTuple

from vllm_harness._protocol.core.types import BOOL, DICT, INT, LIST, NULL, NUMBER, STR, Fields

_ITEM: Fields = (("item_id", STR), ("output_index", INT))
_PART: Fields = (*_ITEM, ("content_index", INT))
_SUMMARY: Fields = (*_ITEM, ("summary_index", INT))
_COMMAND: Fields = (("output_index", INT), ("command_index", INT))
HEAD = {
    "response.created": ("queued", "in_progress"),
    "response.queued": ("queued",),
    "response.in_progress": ("in_progress",),
}
TERMINAL = {
    "response.completed": "completed",
    "response.failed": "failed",
    "response.incomplete": "incomplete",
    "response.cancelled": "cancelled",
}
STATUSES = frozenset({*TERMINAL.values(), "queued", "in_progress"})


class Channel(NamedTuple):
    """A kind of streamed text: deltas, then a done event that repeats the whole text.

    Attributes:
        prefix: the event types are `prefix.delta` and `prefix.done`.
        field: the field of the done event that contains the whole text.
        item_type: the type of the item that contains the text.
        index_key: the field that numbers the part or the command; empty if an item has only one such text.
        part_type: the type of the part that the text fills; empty if it fills the item itself.
        item_path: the path to the whole text in a finished item, or in its part.
        required: whether an item of that type always streams the text.
    """

    prefix: str
    field: str
    item_type: str
    index_key: str = ""
    part_type: str = ""
    item_path: tuple[str, ...] = ()
    required: bool = False

    @property
    def fields(self) -> Fields:
        """The required fields that the delta and done events share."""
        if self.item_type == "shell_call":
            return _COMMAND
        return {"content_index": _PART, "summary_index": _SUMMARY}.get(self.index_key, _ITEM)


CHANNELS = (
    Channel("response.output_text", "text", "message", "content_index", "output_text", ("text",)),
    Channel("response.refusal", "refusal", "message", "content_index", "refusal", ("refusal",)),
    Channel("response.reasoning_text", "text", "reasoning", "content_index", "reasoning_text", ("text",)),
    Channel(
        "response.reasoning_summary_text", "text", "reasoning", "summary_index", "summary_text", ("text",)
    ),
    Channel(
        "response.function_call_arguments",
        "arguments",
        "function_call",
        item_path=("arguments",),
        required=True,
    ),
    Channel(
        "response.custom_tool_call_input", "input", "custom_tool_call", item_path=("input",), required=True
    ),
    Channel("response.mcp_call_arguments", "arguments", "mcp_call", item_path=("arguments",)),
    Channel("response.code_interpreter_call_code", "code", "code_interpreter_call", item_path=("code",)),
    Channel(
        "response.apply_patch_call_operation_diff",
        "diff",
        "apply_patch_call",
        item_path=("operation", "diff"),
    ),
    Channel(
        "response.shell_call_command", "command", "shell_call", "command_index", "", ("action", "commands")
    ),
)
CHANNEL_OF_PART = {channel.part_type: channel for channel in CHANNELS if channel.part_type}
CHANNEL_OF_ITEM = {channel.item_type: channel for channel in CHANNELS if not channel.part_type}


class PartKind(NamedTuple):
    """A list of parts within an item.

    Attributes:
        prefix: the event types are `prefix.added` and `prefix.done`.
        index_key: the field that numbers the parts.
        item_key: the key of the finished item that holds the list.
        types: the types of parts, by type of item.
    """

    prefix: str
    index_key: str
    item_key: str
    types: dict[str, tuple[str, ...]]


PART_KINDS = (
    PartKind(
        "response.content_part",
        "content_index",
        "content",
        {"message": ("output_text", "refusal"), "reasoning": ("reasoning_text",)},
    ),
    PartKind("response.reasoning_summary_part", "summary_index", "summary", {"reasoning": ("summary_text",)}),
)
PART_FIELDS: dict[str, Fields] = {
    "output_text": (("text", STR), ("annotations", LIST)),
    "refusal": (("refusal", STR),),
    "reasoning_text": (("text", STR),),
    "summary_text": (("text", STR),),
}
# The progress events in their order, by type of item; an event of the last group ends the work.
PROGRESS: dict[str, tuple[tuple[str, ...], ...]] = {
    "web_search_call": (("in_progress",), ("searching",), ("completed",)),
    "file_search_call": (("in_progress",), ("searching",), ("completed",)),
    "code_interpreter_call": (("in_progress",), ("interpreting",), ("completed",)),
    "image_generation_call": (("in_progress",), ("generating", "partial_image"), ("completed",)),
    "mcp_call": (("in_progress",), ("completed", "failed")),
    "mcp_list_tools": (("in_progress",), ("completed", "failed")),
}
_RESPONSE: Fields = (("response", DICT),)
EVENT_FIELDS: dict[str, Fields] = {
    **dict.fromkeys((*HEAD, *TERMINAL), _RESPONSE),
    "error": (),
    "response.output_item.added": (("output_index", INT), ("item", DICT)),
    "response.output_item.done": (("output_index", INT), ("item", DICT)),
    "response.content_part.added": (*_PART, ("part", DICT)),
    "response.content_part.done": (*_PART, ("part", DICT)),
    "response.reasoning_summary_part.added": (*_SUMMARY, ("part", DICT)),
    "response.reasoning_summary_part.done": (*_SUMMARY, ("part", DICT)),
    "response.output_text.annotation.added": (*_PART, ("annotation_index", INT), ("annotation", DICT)),
    "response.shell_call_command.added": (*_COMMAND, ("command", STR)),
    "response.shell_call_output_content.delta": (*_ITEM, ("command_index", INT), ("delta", DICT)),
    "response.shell_call_output_content.done": (*_ITEM, ("command_index", INT), ("output", LIST)),
    "response.compaction.compacting": _ITEM,
    **{f"{channel.prefix}.delta": (*channel.fields, ("delta", STR)) for channel in CHANNELS},
    **{f"{channel.prefix}.done": (*channel.fields, (channel.field, STR)) for channel in CHANNELS},
    **{
        f"response.{item}.{step}": _ITEM
        for item, steps in PROGRESS.items()
        for group in steps
        for step in group
    },
    "response.image_generation_call.partial_image": (
        *_ITEM,
        ("partial_image_index", INT),
        ("partial_image_b64", STR),
    ),
    "response.audio.delta": (("delta", STR),),
    "response.audio.done": (),
    "response.audio.transcript.delta": (("delta", STR),),
    "response.audio.transcript.done": (),
}
# Items that the model itself writes. They follow one another; tools that the server runs may overlap.
MODEL_WRITTEN = ("message", "reasoning", "function_call", "custom_tool_call")
# The fields of a finished item beyond `type`.
ITEM_FIELDS: dict[str, Fields] = {
    "message": (("id", STR), ("role", STR), ("status", STR), ("content", LIST)),
    "reasoning": (("id", STR), ("summary", LIST)),
    "function_call": (("id", STR), ("call_id", STR), ("name", STR), ("arguments", STR), ("status", STR)),
    "custom_tool_call": (("id", STR), ("call_id", STR), ("name", STR), ("input", STR)),
    "mcp_call": (("id", STR), ("server_label", STR), ("name", STR), ("arguments", STR)),
    "mcp_list_tools": (("id", STR), ("server_label", STR), ("tools", LIST)),
    "mcp_approval_request": (("id", STR), ("server_label", STR), ("name", STR), ("arguments", STR)),
    "web_search_call": (("id", STR), ("status", STR)),
    "file_search_call": (("id", STR), ("status", STR), ("queries", LIST)),
    "code_interpreter_call": (("id", STR), ("status", STR)),
    "image_generation_call": (("id", STR), ("status", STR)),
    "computer_call": (("id", STR), ("call_id", STR), ("status", STR)),
    "local_shell_call": (("id", STR), ("call_id", STR), ("status", STR)),
    "shell_call": (("id", STR), ("call_id", STR), ("status", STR)),
    "shell_call_output": (("id", STR), ("call_id", STR), ("output", LIST)),
    "apply_patch_call": (("id", STR), ("call_id", STR), ("status", STR)),
    "apply_patch_call_output": (("id", STR), ("call_id", STR)),
    "tool_search_call": (("id", STR), ("status", STR)),
    "tool_search_output": (("id", STR), ("tools", LIST)),
    "compaction": (("id", STR), ("encrypted_content", STR)),
    "program": (("id", STR), ("call_id", STR), ("code", STR)),
    "program_output": (("id", STR), ("call_id", STR), ("result", STR)),
    "function_call_output": (("id", STR),),
    "custom_tool_call_output": (("id", STR),),
    "computer_call_output": (("id", STR),),
    "local_shell_call_output": (("id", STR),),
    "mcp_approval_response": (("id", STR),),
    "additional_tools": (("id", STR),),
}
ITEM_STATUSES = frozenset(
    {"in_progress", "completed", "incomplete", "searching", "interpreting", "generating", "calling", "failed"}
)
# Fields that are equal at `added`, at `done` and in the final output.
STABLE_ITEM_FIELDS = ("name", "role", "namespace", "server_label")
# Fields that are empty at `added`.
EMPTY_AT_ADDED = {
    "message": ("content",),
    "reasoning": ("summary", "content"),
    "function_call": ("arguments",),
    "custom_tool_call": ("input",),
    "mcp_call": ("arguments",),
}
# Fields of an event that do not belong in its item.
EVENT_ONLY_FIELDS = ("item_id", "output_index", "sequence_number")
RESPONSE_FIELDS: Fields = (
    ("id", STR),
    ("object", STR),
    ("created_at", NUMBER),
    ("status", STR),
    ("error", (dict, NULL)),
    ("incomplete_details", (dict, NULL)),
    ("instructions", (str, list, NULL)),
    ("metadata", (dict, NULL)),
    ("model", STR),
    ("output", LIST),
    ("parallel_tool_calls", BOOL),
    ("temperature", (int, float, NULL)),
    ("tool_choice", (str, dict)),
    ("tools", LIST),
    ("top_p", (int, float, NULL)),
)
# Fields that the schema does not require, but every recorded OpenAI response has.
USUAL_RESPONSE_FIELDS = (
    "max_output_tokens",
    "previous_response_id",
    "reasoning",
    "store",
    "text",
    "truncation",
    "usage",
    "user",
)
# Fields that are objects in every recorded OpenAI response.
OBJECTS_OF_RESPONSE = ("metadata", "reasoning", "text")
USAGE_FIELDS: Fields = (
    ("input_tokens", INT),
    ("input_tokens_details", DICT),
    ("output_tokens", INT),
    ("output_tokens_details", DICT),
    ("total_tokens", INT),
)
STABLE_RESPONSE_FIELDS = ("created_at", "model", "object")
# Parameters of the request that a response repeats, equal at its beginning and its end.
ECHOED_FIELDS = (
    "background",
    "instructions",
    "max_output_tokens",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "temperature",
    "top_p",
    "truncation",
    "user",
)
# The repeated parameters whose values are exactly those of the request.
REQUESTED_FIELDS = tuple(key for key in ECHOED_FIELDS if key not in ("parallel_tool_calls", "user"))
# Fields that are encrypted again each time they are sent.
RESEALED_FIELDS = frozenset({"encrypted_content", "fingerprint"})

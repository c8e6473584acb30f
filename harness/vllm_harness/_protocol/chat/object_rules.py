"""The rules for Chat Completions bodies, and for token usage."""

from __future__ import annotations

from functools import partial

from vllm_harness._protocol.core.rule import CHAT, WARNING, rule

_rule = partial(rule, source=CHAT)

CB101 = _rule(
    "CB101",
    "A required field of the completion is missing",
    "A completion requires id, object, created, model and choices; a choice requires index, message and "
    "finish_reason; a message requires content, which may be null.",
    "completion",
    ("unset", 0, "choices.0.message.content"),
    message="required field {key!r} is missing",
)

CB102 = _rule(
    "CB102",
    "A field of the completion has the wrong type",
    "Typed clients cannot read the completion.",
    "completion",
    ("set", 0, "choices.0.message.content", ["Hello"]),
    message="field {key!r} has the wrong type",
)

CB103 = _rule(
    "CB103",
    'object is not "chat.completion"',
    "Clients use this field to distinguish objects.",
    "completion",
    ("set", 0, "object", "chat.completion.chunk"),
)

CB104 = _rule(
    "CB104",
    "A completion without usage",
    "A completion body always carries usage.",
    "completion",
    ("unset", 0, "usage"),
)

CB105 = _rule(
    "CB105",
    "The number of choices is not the requested one",
    "A completion has n choices, or one if the request does not set n.",
    "completion",
    ("set", 0, "choices", []),
)

CB106 = _rule(
    "CB106",
    "The index of a choice is not its position",
    "Choices are numbered 0, 1, 2.",
    "completion",
    ("set", 0, "choices.0.index", 3),
)

CB107 = _rule(
    "CB107",
    "finish_reason is not one of the API's values",
    "finish_reason is stop, length, tool_calls, content_filter or function_call.",
    "completion",
    ("set", 0, "choices.0.finish_reason", "eos"),
)

CB108 = _rule(
    "CB108",
    "The role of the message is not assistant",
    "The message is the answer of the assistant.",
    "completion",
    ("set", 0, "choices.0.message.role", "user"),
)

CB109 = _rule(
    "CB109",
    "The message has an empty list of tool calls",
    "OpenAI omits the field; clients that test for its presence see a call.",
    "completion",
    ("set", 0, "choices.0.message.tool_calls", []),
    severity=WARNING,
)

CB110 = _rule(
    "CB110",
    "A message without content, reasoning or calls",
    "In vllm#41902 content and reasoning were null although completion tokens were spent: the text was lost.",
    "completion",
    ("set", 0, "choices.0.message.content", None),
    severity=WARNING,
)

CB111 = _rule(
    "CB111",
    "A tool call is malformed",
    "A tool call has an id, a type, and a function with a name and arguments.",
    "completion_call",
    ("unset", 0, "choices.0.message.tool_calls.0.function.name"),
    message="field {key!r} of the tool call is missing or has the wrong type",
)

CB112 = _rule(
    "CB112",
    "Two tool calls share an id",
    "A tool message with this id could answer either call.",
    "completion_call",
    ("set", 0, "choices.0.message.tool_calls.1.id", "call_1"),
    message="id repeats that of tool call {first}",
)

CB113 = _rule(
    "CB113",
    "The arguments of a tool call are not a JSON object",
    "Clients parse the arguments. They are not checked if finish_reason is length.",
    "completion_call",
    ("set", 0, "choices.0.message.tool_calls.0.function.arguments", "{"),
)

CU101 = _rule(
    "CU101",
    "A field of usage is missing or has the wrong type",
    "prompt_tokens, completion_tokens and total_tokens are required.",
    "completion",
    ("unset", 0, "usage.total_tokens"),
    message="field {key!r} is missing or has the wrong type",
)

CU102 = _rule(
    "CU102",
    "Token counts do not add up or are negative",
    "total_tokens is prompt_tokens + completion_tokens, and no count is negative.",
    "completion",
    ("set", 0, "usage.total_tokens", 5),
)

CU103 = _rule(
    "CU103",
    "A token subcount exceeds its total",
    "cached_tokens are part of prompt_tokens, and reasoning_tokens of completion_tokens.",
    "completion",
    ("set", 0, "usage.completion_tokens_details", {"reasoning_tokens": 99}),
)

"""The rules for Chat Completions streams and the tool calls in them."""

from __future__ import annotations

from functools import partial

from vllm_harness._protocol.core.rule import CHAT, INFO, WARNING, rule

_rule = partial(rule, source=CHAT)

CC101 = _rule(
    "CC101",
    "The first delta has no role",
    "The first delta of a choice carries the role assistant; SDKs build the message from it.",
    "chat_text",
    ("unset", 0, "choices.0.delta.role"),
    message="the first delta of choice {index} has no role",
)

CC102 = _rule(
    "CC102",
    "The role is repeated",
    "Clients that append every string field build `assistantassistant`.",
    "chat_text",
    ("set", 1, "choices.0.delta.role", "assistant"),
    severity=WARNING,
)

CC103 = _rule(
    "CC103",
    "A choice continues after its finish_reason",
    "finish_reason ends a choice and comes once.",
    "chat_text",
    ("dup", -1),
    message="choice {index} continues after its finish_reason",
)

CC104 = _rule(
    "CC104",
    "A choice without a finish_reason",
    "The stream was truncated.",
    "chat_text",
    ("drop", -1),
    message="{subject} has no finish_reason: the stream was truncated",
)

CC105 = _rule(
    "CC105",
    "The role changes",
    "A choice is one message with one role.",
    "chat_text",
    ("set", 1, "choices.0.delta.role", "user"),
)

CC106 = _rule(
    "CC106",
    "finish_reason is not one of the API's values",
    "finish_reason is stop, length, tool_calls, content_filter or function_call.",
    "chat_text",
    ("set", -1, "choices.0.finish_reason", "eos"),
)

CC107 = _rule(
    "CC107",
    "finish_reason tool_calls without a tool call",
    "Agents look for a call to run and find none.",
    "chat_text",
    ("set", -1, "choices.0.finish_reason", "tool_calls"),
)

CC108 = _rule(
    "CC108",
    "Usage was requested but not sent",
    "stream_options.include_usage promises a last chunk with usage.",
    "chat_usage",
    ("drop", -1),
    request={"stream_options": {"include_usage": True}},
)

CC109 = _rule(
    "CC109",
    "Usage was sent although it was not requested",
    "This is harmless to most clients, but OpenAI does not send usage unless it is requested.",
    "chat_text",
    (
        "append",
        {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1700000000,
            "model": "gpt-5",
            "choices": [],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
        },
    ),
    severity=INFO,
    request={"messages": []},
)

CC110 = _rule(
    "CC110",
    "The number or the indices of the choices are wrong",
    "A stream has as many choices as the request's n, with the indices 0 to n - 1.",
    "chat_choices",
    *(("set", number, "choices.0.index", 7) for number in range(4)),
)

CC111 = _rule(
    "CC111",
    "Usage in a chunk with choices",
    "The usage chunk has `choices: []`, unless continuous_usage_stats is set.",
    "chat_text",
    ("set", -1, "usage", {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
)

CC112 = _rule(
    "CC112",
    "A chunk after the usage chunk",
    "The usage chunk is the last before [DONE].",
    "chat_usage",
    ("dup", -1),
)

CC113 = _rule(
    "CC113",
    "A chunk with neither choices nor usage",
    "The chunk carries nothing, and clients that index choices[0] fail. (Azure's prompt_filter_results "
    "chunk is exempt.)",
    "chat_text",
    ("set", 1, "choices", []),
    severity=WARNING,
)

CC114 = _rule(
    "CC114",
    "finish_reason stop with tool calls",
    "With tool_choice auto, finish_reason must be tool_calls. A forced function ends with stop, on OpenAI "
    "too. Reported as information if the request is unknown or has another tool_choice.",
    "chat_call",
    ("set", -1, "choices.0.finish_reason", "stop"),
    request={"messages": []},
)

CC119 = _rule(
    "CC119",
    "The id of the completion changes",
    "One stream is one completion.",
    "chat_text",
    ("set", -1, "id", "chatcmpl-2"),
)

CC120 = _rule(
    "CC120",
    "created, model or object changes",
    "All chunks of a stream have the same values.",
    "chat_text",
    ("set", -1, "created", 1),
    message="{key} changes",
)

CC121 = _rule(
    "CC121",
    "A required field of a chunk is missing",
    "id, object, created, model and choices are required.",
    "chat_text",
    ("unset", 1, "created"),
    message="required field {key!r} is missing",
)

CC122 = _rule(
    "CC122",
    "A field of a chunk has the wrong type",
    "Typed clients cannot read the chunk.",
    "chat_text",
    ("set", 1, "choices.0.delta.content", ["Hel"]),
    message="field {key!r} has the wrong type",
)

CC123 = _rule(
    "CC123",
    "A chat stream without chunks",
    "In vllm#40978 a stream that failed before the first token consisted of [DONE] alone.",
    "chat_text",
    *(("drop", 0) for _ in range(4)),
)

CC124 = _rule(
    "CC124",
    'object is not "chat.completion.chunk"',
    "Clients use this field to distinguish objects.",
    "chat_text",
    *(("set", number, "object", "chat.completion") for number in range(4)),
)

CC130 = _rule(
    "CC130",
    "The server reports an error in the stream",
    "An error in a stream does not violate the protocol; it is reported so that it is not overlooked.",
    "chat_text",
    ("insert", 1, {"error": {"message": "it broke", "type": "server_error", "code": 500}}),
    severity=INFO,
)

CC131 = _rule(
    "CC131",
    "Reasoning after content",
    "This is normal only for models that reason again between pieces of text.",
    "chat_reasoning",
    ("move", 1, -1),
    severity=INFO,
)

CC201 = _rule(
    "CC201",
    "A tool call delta without an index",
    "Clients merge deltas by index, not by id.",
    "chat_call",
    ("unset", 1, "choices.0.delta.tool_calls.0.index"),
)

CC202 = _rule(
    "CC202",
    "The index of a tool call is not the next one",
    "Calls are numbered 0, 1, 2 in the order in which they begin.",
    "chat_two_calls",
    ("set", 4, "choices.0.delta.tool_calls.0.index", 5),
)

CC203 = _rule(
    "CC203",
    "A tool call begins without an id, type or name",
    "The first delta of a call carries all three. In vllm#55284 a call had no name.",
    "chat_call",
    ("unset", 1, "choices.0.delta.tool_calls.0.id"),
    message="the first delta of a tool call has no {key}",
)

CC204 = _rule(
    "CC204",
    "The id, type or name of a tool call changes",
    "All three are sent once, in the first delta of the call.",
    "chat_call",
    ("set", 2, "choices.0.delta.tool_calls.0.id", "call_other"),
    message="{key} of the tool call changes",
)

CC205 = _rule(
    "CC205",
    "The id, type or name of a tool call is repeated",
    "Clients that append string fields build `call_1call_1`.",
    "chat_call",
    ("set", 2, "choices.0.delta.tool_calls.0.id", "call_1"),
    severity=WARNING,
    message="{key} of the tool call is repeated",
)

CC206 = _rule(
    "CC206",
    "The arguments of a tool call are not a JSON object",
    "Clients parse the concatenated deltas. They are not checked if finish_reason is length.",
    "chat_call",
    ("drop", 2),
    message="the arguments of tool call {number} are not a JSON object",
)

CC207 = _rule(
    "CC207",
    "Two tool calls share an id",
    "A tool message with this id could answer either call.",
    "chat_two_calls",
    ("set", 4, "choices.0.delta.tool_calls.0.id", "call_1"),
)

CC208 = _rule(
    "CC208",
    "A delta for an earlier tool call",
    "The index shows to which call the delta belongs, but OpenAI sends calls one after another.",
    "chat_two_calls",
    ("move", 3, 5),
    severity=INFO,
)

CC209 = _rule(
    "CC209",
    "An empty list of tool calls",
    "OpenAI omits the field; clients that test for its presence see a call.",
    "chat_text",
    ("set", 1, "choices.0.delta.tool_calls", []),
    severity=WARNING,
)

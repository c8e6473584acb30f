"""The rules of Chat Completions: streams, bodies, usage."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import CHAT, ERROR, INFO, WARNING, rule

CC101 = rule(
    "CC101",
    ERROR,
    "The first delta has no role",
    "The first delta of a choice carries the role assistant; SDKs build the message from it.",
    CHAT,
    "chat_text",
    ("unset", 0, "choices.0.delta.role"),
    message="the first delta of choice {index} has no role",
)

CC102 = rule(
    "CC102",
    WARNING,
    "The role comes again",
    "Clients that append every string field build `assistantassistant`.",
    CHAT,
    "chat_text",
    ("set", 1, "choices.0.delta.role", "assistant"),
)

CC103 = rule(
    "CC103",
    ERROR,
    "A choice goes on after its finish_reason",
    "finish_reason is the last of a choice, once.",
    CHAT,
    "chat_text",
    ("dup", -1),
    message="choice {index} goes on after its finish_reason",
)

CC104 = rule(
    "CC104",
    ERROR,
    "A choice without finish_reason",
    "The stream was cut.",
    CHAT,
    "chat_text",
    ("drop", -1),
    message="{subject} has no finish_reason: the stream was cut",
)

CC105 = rule(
    "CC105",
    ERROR,
    "The role changes",
    "A choice is one message of one role.",
    CHAT,
    "chat_text",
    ("set", 1, "choices.0.delta.role", "user"),
)

CC106 = rule(
    "CC106",
    ERROR,
    "finish_reason is not one of the API's",
    "stop, length, tool_calls, content_filter, function_call.",
    CHAT,
    "chat_text",
    ("set", -1, "choices.0.finish_reason", "eos"),
)

CC107 = rule(
    "CC107",
    ERROR,
    "finish_reason tool_calls without a tool call",
    "Agents loop on it and find nothing to run.",
    CHAT,
    "chat_text",
    ("set", -1, "choices.0.finish_reason", "tool_calls"),
)

CC108 = rule(
    "CC108",
    ERROR,
    "Usage was requested and did not come",
    "stream_options.include_usage promises a last chunk with usage.",
    CHAT,
    "chat_usage",
    ("drop", -1),
    request={"stream_options": {"include_usage": True}},
)

CC109 = rule(
    "CC109",
    INFO,
    "Usage came though it was not requested",
    "Harmless to most clients; OpenAI does not.",
    CHAT,
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
    request={"messages": []},
)

CC110 = rule(
    "CC110",
    ERROR,
    "The number or the indices of the choices are wrong",
    "n choices, indices 0 to n - 1.",
    CHAT,
    "chat_choices",
    ("set", 0, "choices.0.index", 7),
    ("set", 1, "choices.0.index", 7),
    ("set", 2, "choices.0.index", 7),
    ("set", 3, "choices.0.index", 7),
)

CC111 = rule(
    "CC111",
    ERROR,
    "Usage in a chunk that has choices",
    "The usage chunk has `choices: []`; continuous_usage_stats asks for the other.",
    CHAT,
    "chat_text",
    ("set", -1, "usage", {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}),
)

CC112 = rule(
    "CC112",
    ERROR,
    "A chunk after the usage chunk",
    "The usage chunk is the last before [DONE].",
    CHAT,
    "chat_usage",
    ("dup", -1),
)

CC113 = rule(
    "CC113",
    WARNING,
    "A chunk with neither choices nor usage",
    "It carries nothing, and clients that index choices[0] fail. (Azure's prompt_filter_results "
    "chunk is exempt.)",
    CHAT,
    "chat_text",
    ("set", 1, "choices", []),
)

CC114 = rule(
    "CC114",
    ERROR,
    "finish_reason stop with tool calls",
    "With tool_choice auto it is tool_calls. A forced function ends with stop, on OpenAI too; "
    "information only where the request is unknown or has tool_choice required.",
    CHAT,
    "chat_call",
    ("set", -1, "choices.0.finish_reason", "stop"),
    request={"messages": []},
)

CC119 = rule(
    "CC119",
    ERROR,
    "The id of the completion changes",
    "One stream is one completion.",
    CHAT,
    "chat_text",
    ("set", -1, "id", "chatcmpl-2"),
)

CC120 = rule(
    "CC120",
    ERROR,
    "created, model or object changes",
    "Equal in all chunks.",
    CHAT,
    "chat_text",
    ("set", -1, "created", 1),
    message="{key} changes",
)

CC121 = rule(
    "CC121",
    ERROR,
    "A required field of a chunk is missing",
    "id, object, created, model, choices.",
    CHAT,
    "chat_text",
    ("unset", 1, "created"),
    message="required field {key!r} is missing",
)

CC122 = rule(
    "CC122",
    ERROR,
    "A field of a chunk has the wrong type",
    "Typed clients cannot read it.",
    CHAT,
    "chat_text",
    ("set", 1, "choices.0.delta.content", ["Hel"]),
    message="field {key!r} has the wrong type",
)

CC123 = rule(
    "CC123",
    ERROR,
    "A chat stream without chunks",
    "vllm#40978: a failure before the first token gave [DONE] and nothing else.",
    CHAT,
    "chat_text",
    *(("drop", 0) for _ in range(4)),
)

CC124 = rule(
    "CC124",
    ERROR,
    'object is not "chat.completion.chunk"',
    "Clients tell objects apart by it.",
    CHAT,
    "chat_text",
    *(("set", number, "object", "chat.completion") for number in range(4)),
)

CC130 = rule(
    "CC130",
    INFO,
    "The server reports an error in the stream",
    "Not a fault of the protocol; reported so that nobody overlooks it.",
    CHAT,
    "chat_text",
    ("insert", 1, {"error": {"message": "it broke", "type": "server_error", "code": 500}}),
)

CC131 = rule(
    "CC131",
    INFO,
    "Reasoning after content",
    "Usual only for models that think again between texts.",
    CHAT,
    "chat_reasoning",
    ("move", 1, -1),
)

CC201 = rule(
    "CC201",
    ERROR,
    "A tool call delta without an index",
    "Clients merge deltas by index, not by id.",
    CHAT,
    "chat_call",
    ("unset", 1, "choices.0.delta.tool_calls.0.index"),
)

CC202 = rule(
    "CC202",
    ERROR,
    "The index of a tool call is not the next one",
    "0, 1, 2 in the order in which calls begin.",
    CHAT,
    "chat_two_calls",
    ("set", 4, "choices.0.delta.tool_calls.0.index", 5),
)

CC203 = rule(
    "CC203",
    ERROR,
    "A tool call begins without id, type or name",
    "The first delta of a call carries all three. vllm#55284: a nameless call.",
    CHAT,
    "chat_call",
    ("unset", 1, "choices.0.delta.tool_calls.0.id"),
    message="the first delta of a tool call has no {key}",
)

CC204 = rule(
    "CC204",
    ERROR,
    "id, type or name of a tool call changes",
    "Given once, in its first delta.",
    CHAT,
    "chat_call",
    ("set", 2, "choices.0.delta.tool_calls.0.id", "call_other"),
    message="{key} of the tool call changes",
)

CC205 = rule(
    "CC205",
    WARNING,
    "id, type or name of a tool call comes again",
    "Clients that append string fields build `call_1call_1`.",
    CHAT,
    "chat_call",
    ("set", 2, "choices.0.delta.tool_calls.0.id", "call_1"),
    message="{key} of the tool call comes again",
)

CC206 = rule(
    "CC206",
    ERROR,
    "The arguments of a tool call are not a JSON object",
    "The deltas add up to what the client parses. Not checked when finish_reason is length.",
    CHAT,
    "chat_call",
    ("drop", 2),
    message="the arguments of tool call {number} are not a JSON object",
)

CC207 = rule(
    "CC207",
    ERROR,
    "Two tool calls share an id",
    "The tool message could answer either.",
    CHAT,
    "chat_two_calls",
    ("set", 4, "choices.0.delta.tool_calls.0.id", "call_1"),
)

CC208 = rule(
    "CC208",
    INFO,
    "A delta for an earlier tool call",
    "The index tells where it belongs; OpenAI sends calls one after the other.",
    CHAT,
    "chat_two_calls",
    ("move", 3, 5),
)

CC209 = rule(
    "CC209",
    WARNING,
    "An empty list of tool calls",
    "OpenAI leaves the field out; clients that test for its presence see a call.",
    CHAT,
    "chat_text",
    ("set", 1, "choices.0.delta.tool_calls", []),
)

CB101 = rule(
    "CB101",
    ERROR,
    "A required field of the completion is missing",
    "id, object, created, model, choices; index, message, finish_reason; content (it may be null).",
    CHAT,
    "completion",
    ("unset", 0, "choices.0.message.content"),
    message="required field {key!r} is missing",
)

CB102 = rule(
    "CB102",
    ERROR,
    "A field of the completion has the wrong type",
    "Typed clients cannot read it.",
    CHAT,
    "completion",
    ("set", 0, "choices.0.message.content", ["Hello"]),
    message="field {key!r} has the wrong type",
)

CB103 = rule(
    "CB103",
    ERROR,
    'object is not "chat.completion"',
    "Clients tell objects apart by it.",
    CHAT,
    "completion",
    ("set", 0, "object", "chat.completion.chunk"),
)

CB104 = rule(
    "CB104",
    ERROR,
    "A completion without usage",
    "Bodies always carry it.",
    CHAT,
    "completion",
    ("unset", 0, "usage"),
)

CB105 = rule(
    "CB105",
    ERROR,
    "Not as many choices as were requested",
    "n choices, one where n is not given.",
    CHAT,
    "completion",
    ("set", 0, "choices", []),
)

CB106 = rule(
    "CB106",
    ERROR,
    "The index of a choice is not its place",
    "0, 1, 2.",
    CHAT,
    "completion",
    ("set", 0, "choices.0.index", 3),
)

CB107 = rule(
    "CB107",
    ERROR,
    "finish_reason is not one of the API's",
    "stop, length, tool_calls, content_filter, function_call.",
    CHAT,
    "completion",
    ("set", 0, "choices.0.finish_reason", "eos"),
)

CB108 = rule(
    "CB108",
    ERROR,
    "The role of the message is not assistant",
    "It is the assistant's answer.",
    CHAT,
    "completion",
    ("set", 0, "choices.0.message.role", "user"),
)

CB109 = rule(
    "CB109",
    WARNING,
    "tool_calls in a message without tool calls",
    "OpenAI leaves the field out; clients that test for its presence see a call.",
    CHAT,
    "completion",
    ("set", 0, "choices.0.message.tool_calls", []),
)

CB110 = rule(
    "CB110",
    WARNING,
    "A message without content, reasoning or calls",
    "vllm#41902: content and reasoning null, with completion tokens spent: the text was lost.",
    CHAT,
    "completion",
    ("set", 0, "choices.0.message.content", None),
)

CB111 = rule(
    "CB111",
    ERROR,
    "A tool call is malformed",
    "id, type, function with name and arguments.",
    CHAT,
    "completion_call",
    ("unset", 0, "choices.0.message.tool_calls.0.function.name"),
    message="field {key!r} of the tool call is missing or has the wrong type",
)

CB112 = rule(
    "CB112",
    ERROR,
    "Two tool calls share an id",
    "The tool message could answer either.",
    CHAT,
    "completion_call",
    ("set", 0, "choices.0.message.tool_calls.1.id", "call_1"),
    message="id repeats that of tool call {first}",
)

CB113 = rule(
    "CB113",
    ERROR,
    "The arguments of a tool call are not a JSON object",
    "Clients parse them. Not checked when finish_reason is length.",
    CHAT,
    "completion_call",
    ("set", 0, "choices.0.message.tool_calls.0.function.arguments", "{"),
)

CU101 = rule(
    "CU101",
    ERROR,
    "A field of usage is missing or of the wrong type",
    "prompt_tokens, completion_tokens, total_tokens.",
    CHAT,
    "completion",
    ("unset", 0, "usage.total_tokens"),
    message="field {key!r} is missing or has the wrong type",
)

CU102 = rule(
    "CU102",
    ERROR,
    "Token counts do not add up or are negative",
    "total_tokens is prompt_tokens + completion_tokens, none negative.",
    CHAT,
    "completion",
    ("set", 0, "usage.total_tokens", 5),
)

CU103 = rule(
    "CU103",
    ERROR,
    "A part of the tokens is larger than the whole",
    "cached_tokens within prompt_tokens, reasoning_tokens within completion_tokens.",
    CHAT,
    "completion",
    ("set", 0, "usage.completion_tokens_details", {"reasoning_tokens": 99}),
)

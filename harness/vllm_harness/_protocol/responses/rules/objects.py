"""The rules of whole objects of the Responses API: responses, output items, errors."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import ERROR, INFO, SCHEMA, TRAFFIC, WARNING, rule

_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
_COMPLETED = "response.completed"

RO101 = rule(
    "RO101",
    ERROR,
    "A required field of the response is missing",
    "Required by the schema, in every recorded response (`status` too, which the schema forgets).",
    SCHEMA,
    "body",
    ("unset", 0, "error"),
    message="required field {key!r} is missing",
)

RO102 = rule(
    "RO102",
    ERROR,
    "A field of the response has the wrong type",
    "Typed clients cannot read it.",
    SCHEMA,
    "body",
    ("set", 0, "parallel_tool_calls", "yes"),
    message="field {key!r} has the wrong type",
)

RO103 = rule(
    "RO103",
    ERROR,
    'object is not "response"',
    "Clients tell objects apart by it.",
    SCHEMA,
    "body",
    ("set", 0, "object", "chat.completion"),
)

RO104 = rule(
    "RO104",
    WARNING,
    "A field that OpenAI always sends is missing",
    "max_output_tokens, previous_response_id, reasoning, store, text, truncation, usage and "
    "user are in all 352 recorded responses, though not required.",
    TRAFFIC,
    "body",
    ("unset", 0, "store"),
    message="field {key!r}, which OpenAI always sends, is missing",
)

RO105 = rule(
    "RO105",
    WARNING,
    "null where OpenAI always sends an object",
    "metadata, reasoning and text are objects in every recorded response; clients index into them.",
    TRAFFIC,
    "body",
    ("set", 0, "text", None),
    message="{key!r} is null where OpenAI always sends an object",
)

RO106 = rule(
    "RO106",
    WARNING,
    "output_text is on the wire",
    "It is a convenience that SDKs compute: in 0 of 352 recorded responses.",
    TRAFFIC,
    "body",
    ("set", 0, "output_text", "Hello"),
)

RO107 = rule(
    "RO107",
    ERROR,
    "status is not one of the API's",
    "completed, failed, in_progress, cancelled, queued or incomplete.",
    SCHEMA,
    "body",
    ("set", 0, "status", "complete"),
)

RO108 = rule(
    "RO108",
    ERROR,
    "A completed response without usage",
    "Present in 63 of 63 streams and 281 of 281 bodies.",
    TRAFFIC,
    "body",
    ("set", 0, "usage", None),
)

RO109 = rule(
    "RO109",
    ERROR,
    "A completed response with error or incomplete_details",
    "Both are null in every completed response.",
    TRAFFIC,
    "body",
    ("set", 0, "incomplete_details", {"reason": "max_output_tokens"}),
    message="a completed response has {key}",
)

RO110 = rule(
    "RO110",
    ERROR,
    "An incomplete response does not say why",
    "incomplete_details.reason is how clients decide what to do.",
    SCHEMA,
    "incomplete_body",
    ("set", 0, "incomplete_details", None),
)

RO111 = rule(
    "RO111",
    ERROR,
    "A failed response without error",
    "error.message is what clients raise.",
    SCHEMA,
    "failed_body",
    ("set", 0, "error", None),
)

RO112 = rule(
    "RO112",
    ERROR,
    "completed_at is before created_at",
    "Time goes forward: 37 of 37 streams, 186 of 186 bodies.",
    TRAFFIC,
    "body",
    ("set", 0, "completed_at", 1),
)

RO113 = rule(
    "RO113",
    WARNING,
    "The response was cut, and its last item has the status completed",
    "vllm#57998: the item that max_output_tokens cut is incomplete. No recording of OpenAI's "
    "shows the case, hence a warning.",
    SCHEMA,
    "incomplete_body",
    ("set", 0, "output.0.status", "completed"),
)

RO114 = rule(
    "RO114",
    ERROR,
    "A field of usage is missing or of the wrong type",
    "input_tokens, output_tokens, total_tokens and the two details. (cache_write_tokens, "
    "which the schema requires, is missing in 57 of 63 streams and not required.)",
    SCHEMA,
    "body",
    ("unset", 0, "usage.input_tokens_details"),
    message="field {key!r} is missing or has the wrong type",
)

RO115 = rule(
    "RO115",
    ERROR,
    "Token counts do not add up or are negative",
    "total_tokens is input_tokens + output_tokens, none negative: 344 of 344.",
    TRAFFIC,
    "body",
    ("set", 0, "usage.total_tokens", 5),
)

RO116 = rule(
    "RO116",
    ERROR,
    "A part of the tokens is larger than the whole",
    "cached_tokens within input_tokens, reasoning_tokens within output_tokens: 344 of 344.",
    TRAFFIC,
    "body",
    ("set", 0, "usage.output_tokens_details.reasoning_tokens", 99),
)

RO117 = rule(
    "RO117",
    WARNING,
    "The response repeats another setting than the request's",
    "temperature, top_p, instructions, metadata, previous_response_id and the like come back "
    "as they were sent, in all recordings that set them.",
    TRAFFIC,
    "body",
    ("set", 0, "temperature", 0.5),
    request={"temperature": 1.0},
    message="{key!r} is not what the request set",
)

RO118 = rule(
    "RO118",
    WARNING,
    "max_output_tokens was not requested and is not null",
    "OpenAI sends null; vLLM sends the budget that it computed.",
    TRAFFIC,
    "body",
    ("set", 0, "max_output_tokens", 131072),
    request={"input": "Hi"},
)

RO119 = rule(
    "RO119",
    ERROR,
    "An error body is malformed",
    "{error: {message, type, param, code}}: all four keys in 8 of 8 recorded errors.",
    TRAFFIC,
    "error_body",
    ("unset", 0, "error.param"),
    message="field {key!r} of the error body is missing or has the wrong type",
)

IT101 = rule(
    "IT101",
    ERROR,
    "A required field of an item is missing",
    "Required by the schema and held by recorded traffic; optional payloads of hosted tools "
    "are not required.",
    SCHEMA,
    "body",
    ("unset", 0, "output.1.call_id"),
    message="required field {key!r} is missing",
)

IT102 = rule(
    "IT102",
    ERROR,
    "A field of an item has the wrong type",
    "Typed clients cannot read it.",
    SCHEMA,
    "body",
    ("set", 0, "output.1.arguments", {"city": "Paris"}),
    message="field {key!r} has the wrong type",
)

IT103 = rule(
    "IT103",
    ERROR,
    "The status of an item is null",
    "vllm#46940: status is a string or (reasoning, custom calls) not there at all; strict "
    "clients reject null. A warning for reasoning items, which on OpenAI have no status.",
    TRAFFIC,
    "body",
    ("set", 0, "output.1.status", None),
    message="status of the {kind} is null",
)

IT104 = rule(
    "IT104",
    ERROR,
    "The status of an item is not one of the API's",
    "in_progress, completed, incomplete, and those of single tools.",
    SCHEMA,
    "body",
    ("set", 0, "output.1.status", "done"),
    message="status of the {kind} is not one of the API's",
)

IT105 = rule(
    "IT105",
    ERROR,
    "An id or a name is empty",
    "Clients join items, calls and outputs by them.",
    TRAFFIC,
    "body",
    ("set", 0, "output.1.call_id", ""),
    message="{key} of the {kind} is empty",
)

IT106 = rule(
    "IT106",
    ERROR,
    "An unfinished item in a completed response",
    "What the model wrote is completed when the response is. Calls which a program makes "
    "(`caller`) stay in_progress and are exempt.",
    TRAFFIC,
    "body",
    ("set", 0, "output.2.status", "incomplete"),
    message="the {kind} is {status} in a response that is completed",
)

IT107 = rule(
    "IT107",
    INFO,
    "A tool that the server runs is unfinished in a completed response",
    "Azure leaves web searches `searching`; OpenAI does not.",
    TRAFFIC,
    "search_body",
    ("set", 0, "output.0.status", "searching"),
    message="the {kind} is still {status} at its end",
)

IT108 = rule(
    "IT108",
    ERROR,
    "Two items share an id",
    "Unique within a response: 64 of 64 streams, 288 of 288 bodies.",
    TRAFFIC,
    "body",
    ("set", 0, "output.2.id", "fc_1"),
    message="id repeats that of item {first}",
)

IT109 = rule(
    "IT109",
    ERROR,
    "The arguments of a call are not a JSON object",
    "12 of 12 streams; clients parse them. Not checked for calls in a response that was cut.",
    TRAFFIC,
    "body",
    ("set", 0, "output.1.arguments", '{"city":'),
)

IT110 = rule(
    "IT110",
    ERROR,
    "A field of the event within the item",
    "item_id, output_index and sequence_number belong to the event. vLLM puts them into function calls.",
    TRAFFIC,
    "body",
    ("set", 0, "output.1.output_index", 1),
    message="{key!r} belongs to the event, not to the item",
)

IT111 = rule(
    "IT111",
    ERROR,
    "Two calls share a call_id",
    "The tool output could answer either.",
    TRAFFIC,
    "two_calls",
    ("set", f"{_ADDED}#1", "item.call_id", "call_1"),
    ("set", f"{_DONE}#1", "item.call_id", "call_1"),
    ("set", _COMPLETED, "response.output.1.call_id", "call_1"),
    message="call_id repeats that of item {first}",
)

IT112 = rule(
    "IT112",
    INFO,
    "An item type that is not known here",
    "New types may come; only id and nesting are checked.",
    SCHEMA,
    "body",
    ("set", 0, "output.0.type", "dream"),
    message="item type {kind!r} is not known here; only its nesting is checked",
)

IT113 = rule(
    "IT113",
    ERROR,
    "A part of an item is malformed",
    "Messages have output_text (text, annotations) and refusal parts, reasoning has "
    "reasoning_text and summary_text.",
    SCHEMA,
    "body",
    ("unset", 0, "output.2.content.0.annotations"),
    message="a part of a {kind} is malformed",
)

IT114 = rule(
    "IT114",
    WARNING,
    "A call names a function that the request did not offer",
    "Special tokens in names, or a parser that took the wrong word. Only where the request is "
    "known and offers plain functions alone.",
    TRAFFIC,
    "body",
    ("set", 0, "output.1.name", "get_weather<|x|>"),
    request={"tools": [{"type": "function", "name": "get_weather"}]},
)

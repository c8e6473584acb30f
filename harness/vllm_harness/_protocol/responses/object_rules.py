"""The rules for whole objects of the Responses API: responses, output items, errors."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import INFO, SCHEMA, WARNING, rule

_ADDED = "response.output_item.added"
_DONE = "response.output_item.done"
_COMPLETED = "response.completed"

RO101 = rule(
    "RO101",
    "A required field of the response is missing",
    "The schema requires the field, and all recorded responses have it (and `status`, which it omits).",
    "body",
    ("unset", 0, "error"),
    source=SCHEMA,
    message="required field {key!r} is missing",
)

RO102 = rule(
    "RO102",
    "A field of the response has the wrong type",
    "Typed clients cannot read the response.",
    "body",
    ("set", 0, "parallel_tool_calls", "yes"),
    source=SCHEMA,
    message="field {key!r} has the wrong type",
)

RO103 = rule(
    "RO103",
    'object is not "response"',
    "Clients use this field to distinguish objects.",
    "body",
    ("set", 0, "object", "chat.completion"),
    source=SCHEMA,
)

RO104 = rule(
    "RO104",
    "A field that OpenAI always sends is missing",
    "max_output_tokens, previous_response_id, reasoning, store, text, truncation, usage and user are in "
    "all 352 recorded responses, although the schema does not require them.",
    "body",
    ("unset", 0, "store"),
    severity=WARNING,
    message="field {key!r}, which OpenAI always sends, is missing",
)

RO105 = rule(
    "RO105",
    "A field is null where OpenAI always sends an object",
    "metadata, reasoning and text are objects in every recorded response; clients index into them.",
    "body",
    ("set", 0, "text", None),
    severity=WARNING,
    message="{key!r} is null where OpenAI always sends an object",
)

RO106 = rule(
    "RO106",
    "The server sends output_text",
    "This field is a convenience that SDKs compute; it is in 0 of 352 recorded responses.",
    "body",
    ("set", 0, "output_text", "Hello"),
    severity=WARNING,
)

RO107 = rule(
    "RO107",
    "status is not one of the API's values",
    "status is completed, failed, in_progress, cancelled, queued or incomplete.",
    "body",
    ("set", 0, "status", "complete"),
    source=SCHEMA,
)

RO108 = rule(
    "RO108",
    "A completed response without usage",
    "Usage is present in 63 of 63 streams and 281 of 281 bodies.",
    "body",
    ("set", 0, "usage", None),
)

RO109 = rule(
    "RO109",
    "A completed response with an error or incomplete_details",
    "Both are null in every completed response.",
    "body",
    ("set", 0, "incomplete_details", {"reason": "max_output_tokens"}),
    message="a completed response has {key}",
)

RO110 = rule(
    "RO110",
    "An incomplete response does not say why",
    "Clients use incomplete_details.reason to decide what to do next.",
    "incomplete_body",
    ("set", 0, "incomplete_details", None),
    source=SCHEMA,
)

RO111 = rule(
    "RO111",
    "A failed response without an error",
    "Clients raise an exception with the message of the error.",
    "failed_body",
    ("set", 0, "error", None),
    source=SCHEMA,
)

RO112 = rule(
    "RO112",
    "completed_at is before created_at",
    "A response is created before it is completed (37 of 37 streams, 186 of 186 bodies).",
    "body",
    ("set", 0, "completed_at", 1),
)

RO113 = rule(
    "RO113",
    "The response was truncated, but its last item is completed",
    "An item that max_output_tokens truncates should be incomplete (vllm#57998). No recording of OpenAI "
    "shows this case, so it is a warning.",
    "incomplete_body",
    ("set", 0, "output.0.status", "completed"),
    severity=WARNING,
    source=SCHEMA,
)

RO114 = rule(
    "RO114",
    "A field of usage is missing or has the wrong type",
    "Usage requires input_tokens, output_tokens, total_tokens and the details of the first two. "
    "(cache_write_tokens, which the schema requires, is missing in 57 of 63 streams and is not required "
    "here.)",
    "body",
    ("unset", 0, "usage.input_tokens_details"),
    source=SCHEMA,
    message="field {key!r} is missing or has the wrong type",
)

RO115 = rule(
    "RO115",
    "Token counts do not add up or are negative",
    "total_tokens is input_tokens + output_tokens, and no count is negative (344 of 344 answers).",
    "body",
    ("set", 0, "usage.total_tokens", 5),
)

RO116 = rule(
    "RO116",
    "A token subcount exceeds its total",
    "cached_tokens are part of input_tokens, and reasoning_tokens of output_tokens (344 of 344 answers).",
    "body",
    ("set", 0, "usage.output_tokens_details.reasoning_tokens", 99),
)

RO117 = rule(
    "RO117",
    "A setting in the response differs from the request",
    "temperature, top_p, instructions, metadata, previous_response_id and similar fields come back as "
    "they were sent, in all recordings that set them.",
    "body",
    ("set", 0, "temperature", 0.5),
    severity=WARNING,
    request={"temperature": 1.0},
    message="{key!r} is not what the request set",
)

RO118 = rule(
    "RO118",
    "max_output_tokens was not requested but is not null",
    "OpenAI sends null; vLLM sends the limit that it computed.",
    "body",
    ("set", 0, "max_output_tokens", 131072),
    severity=WARNING,
    request={"input": "Hi"},
)

RO119 = rule(
    "RO119",
    "An error body is malformed",
    "An error body is {error: {message, type, param, code}}, with all four keys in 8 of 8 recorded errors.",
    "error_body",
    ("unset", 0, "error.param"),
    message="field {key!r} of the error body is missing or has the wrong type",
)

IT101 = rule(
    "IT101",
    "A required field of an item is missing",
    "The schema requires the field, and recorded traffic has it. Optional payloads of hosted tools are "
    "not required.",
    "body",
    ("unset", 0, "output.1.call_id"),
    source=SCHEMA,
    message="required field {key!r} is missing",
)

IT102 = rule(
    "IT102",
    "A field of an item has the wrong type",
    "Typed clients cannot read the item.",
    "body",
    ("set", 0, "output.1.arguments", {"city": "Paris"}),
    source=SCHEMA,
    message="field {key!r} has the wrong type",
)

IT103 = rule(
    "IT103",
    "The status of an item is null",
    "status is a string, or absent (reasoning, custom calls); strict clients reject null (vllm#46940). "
    "A warning for reasoning items, which have no status on OpenAI.",
    "body",
    ("set", 0, "output.1.status", None),
    message="status of the {kind} is null",
)

IT104 = rule(
    "IT104",
    "The status of an item is not one of the API's values",
    "The status is in_progress, completed or incomplete, or a value that a particular tool adds.",
    "body",
    ("set", 0, "output.1.status", "done"),
    source=SCHEMA,
    message="status of the {kind} is not one of the API's values",
)

IT105 = rule(
    "IT105",
    "An id or a name is empty",
    "Clients use ids and names to match items, calls and outputs.",
    "body",
    ("set", 0, "output.1.call_id", ""),
    message="{key} of the {kind} is empty",
)

IT106 = rule(
    "IT106",
    "An unfinished item in a completed response",
    "In a completed response, the items that the model wrote are completed. Calls that a program makes "
    "(`caller`) stay in_progress and are exempt.",
    "body",
    ("set", 0, "output.2.status", "incomplete"),
    message="the {kind} is {status} in a response that is completed",
)

IT107 = rule(
    "IT107",
    "A tool that the server runs is unfinished in a completed response",
    "Azure leaves web searches `searching`; OpenAI does not.",
    "search_body",
    ("set", 0, "output.0.status", "searching"),
    severity=INFO,
    message="the {kind} is still {status} at its end",
)

IT108 = rule(
    "IT108",
    "Two items share an id",
    "Ids are unique within a response (64 of 64 streams, 288 of 288 bodies).",
    "body",
    ("set", 0, "output.2.id", "fc_1"),
    message="id repeats that of item {first}",
)

IT109 = rule(
    "IT109",
    "The arguments of a call are not a JSON object",
    "Arguments are JSON objects in 12 of 12 streams, and clients parse them. Calls in a truncated "
    "response are not checked.",
    "body",
    ("set", 0, "output.1.arguments", '{"city":'),
)

IT110 = rule(
    "IT110",
    "A field of the event is in the item",
    "item_id, output_index and sequence_number belong to the event. vLLM puts them into function calls.",
    "body",
    ("set", 0, "output.1.output_index", 1),
    message="{key!r} belongs to the event, not to the item",
)

IT111 = rule(
    "IT111",
    "Two calls share a call_id",
    "A tool output with this call_id could answer either call.",
    "two_calls",
    ("set", f"{_ADDED}#1", "item.call_id", "call_1"),
    ("set", f"{_DONE}#1", "item.call_id", "call_1"),
    ("set", _COMPLETED, "response.output.1.call_id", "call_1"),
    message="call_id repeats that of item {first}",
)

IT112 = rule(
    "IT112",
    "An unknown type of item",
    "New types may be added; only the id and the nesting are checked.",
    "body",
    ("set", 0, "output.0.type", "dream"),
    severity=INFO,
    source=SCHEMA,
    message="item type {kind!r} is unknown; only its nesting is checked",
)

IT113 = rule(
    "IT113",
    "A part of an item is malformed",
    "A message has output_text (text, annotations) and refusal parts; a reasoning item has "
    "reasoning_text and summary_text parts.",
    "body",
    ("unset", 0, "output.2.content.0.annotations"),
    source=SCHEMA,
    message="a part of a {kind} is malformed",
)

IT114 = rule(
    "IT114",
    "A call names a function that the request did not offer",
    "The name may contain special tokens, or a parser may have extracted the wrong word. Checked "
    "only if the request is known and offers nothing but plain functions.",
    "body",
    ("set", 0, "output.1.name", "get_weather<|x|>"),
    severity=WARNING,
    request={"tools": [{"type": "function", "name": "get_weather"}]},
)

"""The rules of a Responses stream's lifecycle: its beginning, its numbers, its end."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import ERROR, INFO, SCHEMA, TRAFFIC, WARNING, rule

_DELTA = "response.output_text.delta"
_PART_ADDED = "response.content_part.added"
_COMPLETED = "response.completed"

RS101 = rule(
    "RS101",
    ERROR,
    "The first event is not response.created",
    "Clients take the response's id and settings from it. A stream resumed with "
    "starting_after is exempt (RS102).",
    TRAFFIC,
    "text",
    ("drop", "response.created"),
)

RS102 = rule(
    "RS102",
    INFO,
    "The stream begins in the middle",
    "Its first sequence_number is not 0, as when it is resumed with starting_after; what came "
    "before is not checked.",
    TRAFFIC,
    "text",
    ("drop", 0),
    ("set", 0, "sequence_number", 1),
)

RS103 = rule(
    "RS103",
    ERROR,
    "created, queued or in_progress out of place",
    "Each comes once, in this order, before the first item: 64 of 64 streams.",
    TRAFFIC,
    "text",
    ("dup", "response.in_progress"),
    message="{event} is out of place",
)

RS104 = rule(
    "RS104",
    ERROR,
    "response.in_progress is missing",
    "It is the second event, or the third after response.queued: 64 of 64 streams.",
    TRAFFIC,
    "text",
    ("drop", "response.in_progress"),
)

RS105 = rule(
    "RS105",
    ERROR,
    "The stream ends before its terminal event",
    "Without response.completed, .incomplete or .failed a client cannot tell an answer from a "
    "broken connection.",
    TRAFFIC,
    "text",
    ("drop", _COMPLETED),
)

RS106 = rule(
    "RS106",
    ERROR,
    "An event after the terminal event",
    "The terminal event is the last: 64 of 64 streams. Clients have stopped listening.",
    TRAFFIC,
    "text",
    ("append", {"type": _DELTA, "sequence_number": 0, "delta": "more"}),
    message="an event after {end}",
)

RS107 = rule(
    "RS107",
    ERROR,
    "The event does not match response.status",
    "response.completed carries status completed, and so on. vllm#45386: a stream cut by its "
    "token budget ended with response.completed.",
    TRAFFIC,
    "text",
    ("set", _COMPLETED, "response.status", "incomplete"),
)

RS108 = rule(
    "RS108",
    INFO,
    "The server reports an error in the stream",
    "Not a fault of the protocol; reported so that nobody overlooks it.",
    TRAFFIC,
    "text",
    (
        "insert",
        _COMPLETED,
        {"type": "error", "sequence_number": 0, "error": {"code": "x", "message": "it broke"}},
    ),
)

RS109 = rule(
    "RS109",
    INFO,
    "An error event and no response.failed",
    "OpenAI sends response.failed after the error event, in the one recording there is.",
    TRAFFIC,
    "failed",
    ("drop", "response.failed"),
)

RS110 = rule(
    "RS110",
    ERROR,
    "sequence_number does not follow the one before",
    "It counts by one: 62 of 62 streams. Clients resume by it and drop what they think they have seen.",
    TRAFFIC,
    "text",
    ("set", _DELTA, "sequence_number", 99),
)

RS111 = rule(
    "RS111",
    ERROR,
    "The stream does not count from 0",
    "response.created has sequence_number 0.",
    TRAFFIC,
    "text",
    ("set", 0, "sequence_number", 1),
)

RS112 = rule(
    "RS112",
    ERROR,
    "An event without sequence_number where others have one",
    "All events have one, or (two captures of March 2025) none.",
    TRAFFIC,
    "text",
    ("unset", _DELTA, "sequence_number"),
)

RS113 = rule(
    "RS113",
    INFO,
    "No event has a sequence_number",
    "OpenAI's streams of March 2025 had none; since then all have.",
    TRAFFIC,
    "text",
    *(("unset", number, "sequence_number") for number in range(10)),
)

RS114 = rule(
    "RS114",
    ERROR,
    "The id of the response changes",
    "One stream is one response: 64 of 64. Clients store the first id and ask with it later.",
    TRAFFIC,
    "text",
    ("set", _COMPLETED, "response.id", "resp_other"),
)

RS115 = rule(
    "RS115",
    ERROR,
    "created_at, model or object of the response changes",
    "Equal throughout in 63 of 63 streams.",
    TRAFFIC,
    "text",
    ("set", _COMPLETED, "response.model", "gpt-4"),
    message="{key} of the response changes",
)

RS116 = rule(
    "RS116",
    WARNING,
    "A setting of the response changes",
    "What the request set is repeated alike at the beginning and at the end in 63 of 63 streams.",
    TRAFFIC,
    "text",
    ("set", _COMPLETED, "response.temperature", 0.5),
    message="{key} of the response changes",
)

RS117 = rule(
    "RS117",
    ERROR,
    "Output before the first item",
    "created, queued and in_progress carry `output: []`: 64 of 64 streams.",
    TRAFFIC,
    "text",
    ("set", "response.created", "response.output", [{"type": "message"}]),
)

RS118 = rule(
    "RS118",
    WARNING,
    "Usage before the end",
    "created, queued and in_progress carry `usage: null`: 64 of 64 streams.",
    TRAFFIC,
    "text",
    ("set", "response.created", "response.usage", {"total_tokens": 0}),
)

RS119 = rule(
    "RS119",
    INFO,
    "An event type that is not in the published API",
    "New types may come; each is named once. What stands in for a known one shows as other "
    "findings: vLLM before 0.32 sent response.reasoning_part.added, so the reasoning text has "
    "no part (RS302).",
    SCHEMA,
    "text",
    ("insert", _PART_ADDED, {"type": "response.sparkle", "sequence_number": 0}),
    message="event type {kind!r} is not in the published API",
)

RS120 = rule(
    "RS120",
    ERROR,
    "An event without a type",
    "No client can tell what it is.",
    SCHEMA,
    "text",
    ("unset", _DELTA, "type"),
)

RS121 = rule(
    "RS121",
    ERROR,
    "A required field of an event is missing",
    "Required by the schema and held by recorded traffic; what OpenAI itself leaves out "
    "(`name` of function_call_arguments.done, `logprobs` of old streams) is not required.",
    SCHEMA,
    "text",
    ("unset", _DELTA, "content_index"),
    message="required field {key!r} is missing",
)

RS122 = rule(
    "RS122",
    ERROR,
    "A field of an event has the wrong type",
    "Typed clients cannot read the event.",
    SCHEMA,
    "text",
    ("set", _DELTA, "delta", 7),
    message="field {key!r} has the wrong type",
)

RS123 = rule(
    "RS123",
    ERROR,
    "A stream without events",
    "A request that fails gets an error status and a JSON body, not an empty stream.",
    TRAFFIC,
    "text",
    *(("drop", 0) for _ in range(10)),
)

RS124 = rule(
    "RS124",
    INFO,
    "The response has other keys at its end than at its beginning",
    "The same set of keys in 63 of 63 streams; other servers add `usage` late.",
    TRAFFIC,
    "text",
    ("set", _COMPLETED, "response.extra", 1),
)

RS125 = rule(
    "RS125",
    ERROR,
    "An error event without a message",
    "The message is all a client can show. OpenAI nests it under `error`, the schema has it "
    "at the top; both will do.",
    TRAFFIC,
    "failed",
    ("unset", "error", "error.message"),
)

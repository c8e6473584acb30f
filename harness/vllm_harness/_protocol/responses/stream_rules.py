"""The rules of a Responses stream's lifecycle: its beginning, its numbers, its end."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import INFO, SCHEMA, WARNING, rule

_DELTA = "response.output_text.delta"
_PART_ADDED = "response.content_part.added"
_COMPLETED = "response.completed"

RS101 = rule(
    "RS101",
    "The first event is not response.created",
    "Clients take the response's id and settings from it. A stream resumed with "
    "starting_after is exempt (RS102).",
    "text",
    ("drop", "response.created"),
)

RS102 = rule(
    "RS102",
    "The stream begins in the middle",
    "Its first sequence_number is not 0, as when it is resumed with starting_after; what came "
    "before is not checked.",
    "text",
    ("drop", 0),
    ("set", 0, "sequence_number", 1),
    severity=INFO,
)

RS103 = rule(
    "RS103",
    "created, queued or in_progress out of place",
    "Each comes once, in this order, before the first item: 64 of 64 streams.",
    "text",
    ("dup", "response.in_progress"),
    message="{event} is out of place",
)

RS104 = rule(
    "RS104",
    "response.in_progress is missing",
    "It is the second event, or the third after response.queued: 64 of 64 streams.",
    "text",
    ("drop", "response.in_progress"),
)

RS105 = rule(
    "RS105",
    "The stream ends before its terminal event",
    "Without response.completed, .incomplete or .failed a client cannot tell an answer from a "
    "broken connection.",
    "text",
    ("drop", _COMPLETED),
)

RS106 = rule(
    "RS106",
    "An event after the terminal event",
    "The terminal event is the last: 64 of 64 streams. Clients have stopped listening.",
    "text",
    ("append", {"type": _DELTA, "sequence_number": 0, "delta": "more"}),
    message="an event after {end}",
)

RS107 = rule(
    "RS107",
    "The event does not match response.status",
    "response.completed carries status completed, and so on. vllm#45386: a stream cut by its "
    "token budget ended with response.completed.",
    "text",
    ("set", _COMPLETED, "response.status", "incomplete"),
)

RS108 = rule(
    "RS108",
    "The server reports an error in the stream",
    "Not a fault of the protocol; reported so that nobody overlooks it.",
    "text",
    (
        "insert",
        _COMPLETED,
        {"type": "error", "sequence_number": 0, "error": {"code": "x", "message": "it broke"}},
    ),
    severity=INFO,
)

RS109 = rule(
    "RS109",
    "An error event and no response.failed",
    "OpenAI sends response.failed after the error event, in the one recording there is.",
    "failed",
    ("drop", "response.failed"),
    severity=INFO,
)

RS110 = rule(
    "RS110",
    "sequence_number does not follow the one before",
    "It counts by one: 62 of 62 streams. Clients resume by it and drop what they think they have seen.",
    "text",
    ("set", _DELTA, "sequence_number", 99),
)

RS111 = rule(
    "RS111",
    "The stream does not count from 0",
    "response.created has sequence_number 0.",
    "text",
    ("set", 0, "sequence_number", 1),
)

RS112 = rule(
    "RS112",
    "An event without sequence_number where others have one",
    "All events have one, or (two captures of March 2025) none.",
    "text",
    ("unset", _DELTA, "sequence_number"),
)

RS113 = rule(
    "RS113",
    "No event has a sequence_number",
    "OpenAI's streams of March 2025 had none; since then all have.",
    "text",
    *(("unset", number, "sequence_number") for number in range(10)),
    severity=INFO,
)

RS114 = rule(
    "RS114",
    "The id of the response changes",
    "One stream is one response: 64 of 64. Clients store the first id and ask with it later.",
    "text",
    ("set", _COMPLETED, "response.id", "resp_other"),
)

RS115 = rule(
    "RS115",
    "created_at, model or object of the response changes",
    "Equal throughout in 63 of 63 streams.",
    "text",
    ("set", _COMPLETED, "response.model", "gpt-4"),
    message="{key} of the response changes",
)

RS116 = rule(
    "RS116",
    "A setting of the response changes",
    "What the request set is repeated alike at the beginning and at the end in 63 of 63 streams.",
    "text",
    ("set", _COMPLETED, "response.temperature", 0.5),
    severity=WARNING,
    message="{key} of the response changes",
)

RS117 = rule(
    "RS117",
    "Output before the first item",
    "created, queued and in_progress carry `output: []`: 64 of 64 streams.",
    "text",
    ("set", "response.created", "response.output", [{"type": "message"}]),
)

RS118 = rule(
    "RS118",
    "Usage before the end",
    "created, queued and in_progress carry `usage: null`: 64 of 64 streams.",
    "text",
    ("set", "response.created", "response.usage", {"total_tokens": 0}),
    severity=WARNING,
)

RS119 = rule(
    "RS119",
    "An event type that is not in the published API",
    "New types may come; each is named once. What stands in for a known one shows as other "
    "findings: vLLM before 0.32 sent response.reasoning_part.added, so the reasoning text has "
    "no part (RS302).",
    "text",
    ("insert", _PART_ADDED, {"type": "response.sparkle", "sequence_number": 0}),
    severity=INFO,
    source=SCHEMA,
    message="event type {kind!r} is not in the published API",
)

RS120 = rule(
    "RS120",
    "An event without a type",
    "No client can tell what it is.",
    "text",
    ("unset", _DELTA, "type"),
    source=SCHEMA,
)

RS121 = rule(
    "RS121",
    "A required field of an event is missing",
    "Required by the schema and held by recorded traffic; what OpenAI itself leaves out "
    "(`name` of function_call_arguments.done, `logprobs` of old streams) is not required.",
    "text",
    ("unset", _DELTA, "content_index"),
    source=SCHEMA,
    message="required field {key!r} is missing",
)

RS122 = rule(
    "RS122",
    "A field of an event has the wrong type",
    "Typed clients cannot read the event.",
    "text",
    ("set", _DELTA, "delta", 7),
    source=SCHEMA,
    message="field {key!r} has the wrong type",
)

RS123 = rule(
    "RS123",
    "A stream without events",
    "A request that fails gets an error status and a JSON body, not an empty stream.",
    "text",
    *(("drop", 0) for _ in range(10)),
)

RS124 = rule(
    "RS124",
    "The response has other keys at its end than at its beginning",
    "The same set of keys in 63 of 63 streams; other servers add `usage` late.",
    "text",
    ("set", _COMPLETED, "response.extra", 1),
    severity=INFO,
)

RS125 = rule(
    "RS125",
    "An error event without a message",
    "The message is all a client can show. OpenAI nests it under `error`, the schema has it "
    "at the top; both will do.",
    "failed",
    ("unset", "error", "error.message"),
)

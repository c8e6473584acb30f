"""The rules for a Responses stream's lifecycle: its beginning, its sequence numbers, its end."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import INFO, SCHEMA, WARNING, rule

_DELTA = "response.output_text.delta"
_PART_ADDED = "response.content_part.added"
_COMPLETED = "response.completed"

RS101 = rule(
    "RS101",
    "The first event is not response.created",
    "Clients take the response's id and settings from response.created. A stream resumed with "
    "starting_after is exempt (RS102).",
    "text",
    ("drop", "response.created"),
)

RS102 = rule(
    "RS102",
    "The stream begins in the middle",
    "The first sequence_number is not 0, as in a stream that is resumed with starting_after. Earlier "
    "events are not checked.",
    "text",
    ("drop", 0),
    ("set", 0, "sequence_number", 1),
    severity=INFO,
)

RS103 = rule(
    "RS103",
    "created, queued or in_progress is out of place",
    "Each comes once, in this order, before the first item (64 of 64 streams).",
    "text",
    ("dup", "response.in_progress"),
    message="{event} is out of place",
)

RS104 = rule(
    "RS104",
    "response.in_progress is missing",
    "response.in_progress is the second event, or the third after response.queued (64 of 64 streams).",
    "text",
    ("drop", "response.in_progress"),
)

RS105 = rule(
    "RS105",
    "The stream ends before its terminal event",
    "Without response.completed, .incomplete or .failed a client cannot tell a finished answer from a "
    "broken connection.",
    "text",
    ("drop", _COMPLETED),
)

RS106 = rule(
    "RS106",
    "An event after the terminal event",
    "The terminal event is the last event (64 of 64 streams). Clients have stopped reading by then.",
    "text",
    ("append", {"type": _DELTA, "sequence_number": 0, "delta": "more"}),
    message="an event after {end}",
)

RS107 = rule(
    "RS107",
    "The event does not match response.status",
    "response.completed carries the status completed, and so on. In vllm#45386 a stream that the token "
    "limit truncated ended with response.completed.",
    "text",
    ("set", _COMPLETED, "response.status", "incomplete"),
)

RS108 = rule(
    "RS108",
    "The server reports an error in the stream",
    "An error in a stream does not violate the protocol; it is reported so that it is not overlooked.",
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
    "An error event without response.failed",
    "In the only recording of an error, OpenAI sends response.failed after the error event.",
    "failed",
    ("drop", "response.failed"),
    severity=INFO,
)

RS110 = rule(
    "RS110",
    "sequence_number does not follow the previous one",
    "The numbers increase by one (62 of 62 streams). Clients use them to resume, and skip events that "
    "they seem to have seen.",
    "text",
    ("set", _DELTA, "sequence_number", 99),
)

RS111 = rule(
    "RS111",
    "`sequence_number` does not start at 0",
    "response.created has sequence_number 0.",
    "text",
    ("set", 0, "sequence_number", 1),
)

RS112 = rule(
    "RS112",
    "An event without sequence_number where others have one",
    "Either all events have a sequence_number, or none has one (as in two captures of March 2025).",
    "text",
    ("unset", _DELTA, "sequence_number"),
)

RS113 = rule(
    "RS113",
    "No event has a sequence_number",
    "OpenAI's streams of March 2025 had no sequence numbers; all later streams have them.",
    "text",
    *(("unset", number, "sequence_number") for number in range(10)),
    severity=INFO,
)

RS114 = rule(
    "RS114",
    "The id of the response changes",
    "One stream is one response (64 of 64 streams). Clients store the first id and use it in later requests.",
    "text",
    ("set", _COMPLETED, "response.id", "resp_other"),
)

RS115 = rule(
    "RS115",
    "created_at, model or object of the response changes",
    "All three are the same throughout the stream in 63 of 63 streams.",
    "text",
    ("set", _COMPLETED, "response.model", "gpt-4"),
    message="{key} of the response changes",
)

RS116 = rule(
    "RS116",
    "A setting of the response changes",
    "The settings of the request are the same at the beginning and at the end in 63 of 63 streams.",
    "text",
    ("set", _COMPLETED, "response.temperature", 0.5),
    severity=WARNING,
    message="{key} of the response changes",
)

RS117 = rule(
    "RS117",
    "Output before the first item",
    "created, queued and in_progress carry `output: []` (64 of 64 streams).",
    "text",
    ("set", "response.created", "response.output", [{"type": "message"}]),
)

RS118 = rule(
    "RS118",
    "Usage before the end",
    "created, queued and in_progress carry `usage: null` (64 of 64 streams).",
    "text",
    ("set", "response.created", "response.usage", {"total_tokens": 0}),
    severity=WARNING,
)

RS119 = rule(
    "RS119",
    "An event type that is not in the published API",
    "New types may be added; each is reported once. A type that replaces a published one also causes "
    "other findings: vLLM before 0.32 sent response.reasoning_part.added, so the reasoning text has no "
    "part (RS302).",
    "text",
    ("insert", _PART_ADDED, {"type": "response.sparkle", "sequence_number": 0}),
    severity=INFO,
    source=SCHEMA,
    message="event type {kind!r} is not in the published API",
)

RS120 = rule(
    "RS120",
    "An event without a type",
    "Clients cannot interpret such an event.",
    "text",
    ("unset", _DELTA, "type"),
    source=SCHEMA,
)

RS121 = rule(
    "RS121",
    "A required field of an event is missing",
    "The schema requires the field, and recorded traffic has it. Fields that OpenAI omits (`name` of "
    "function_call_arguments.done, `logprobs` of old streams) are not required.",
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
    "The keys of the response change",
    "The set of keys is the same throughout in 63 of 63 streams; other servers add `usage` late.",
    "text",
    ("set", _COMPLETED, "response.extra", 1),
    severity=INFO,
)

RS125 = rule(
    "RS125",
    "An error event without a message",
    "The message is all that a client can show. OpenAI nests it under `error`, and the schema puts it "
    "at the top level; both are accepted.",
    "failed",
    ("unset", "error", "error.message"),
)

"""The rules for the framing of streams of any API, and for known deviations."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import CHAT, HARNESS, INFO, SSE, WARNING, rule

_DELTA = "response.output_text.delta"

SE101 = rule(
    "SE101",
    "The event: line differs from the type in the data",
    "Some clients dispatch on the event: line, others on the type; they would see different streams.",
    "sse",
    ("replace", "event: response.created", "event: response.creating"),
)

SE102 = rule(
    "SE102",
    "A Responses or Messages event without an event: line",
    "Every such event has this line; clients that use the browser's EventSource depend on it.",
    "sse",
    ("replace", "event: response.created\n", ""),
    severity=WARNING,
)

SE103 = rule(
    "SE103",
    "The data of an event is not one JSON object",
    "The data is two objects, half an object, NaN or nothing; a client's JSON parser raises an error.",
    "sse",
    (
        "replace",
        'data: {"type": "response.output_text.delta"',
        'data: {"type" "response.output_text.delta"',
    ),
    message="the data is not one JSON object: {problem}",
)

SE104 = rule(
    "SE104",
    "An event is not UTF-8",
    "Event streams are UTF-8. A multi-byte character may be split across network chunks, but not across "
    "events.",
    "sse",
    ("replace", "Hello,", "Hel\udcff"),
    source=SSE,
)

SE105 = rule(
    "SE105",
    "The stream ends within an event",
    "Clients drop an event if the blank line after it does not arrive. Reported as information if only "
    "the blank line is missing, as in a capture that an editor has trimmed.",
    "sse",
    ("replace", '"sequence_number": 9}\n\n', '"sequence_nu'),
    source=SSE,
)

SE106 = rule(
    "SE106",
    "[DONE] in a stream of named events",
    "[DONE] belongs to Chat Completions; a client of Responses or Messages that parses every data "
    "line as JSON fails on it.",
    "sse",
    ("replace", "event: response.completed", "data: [DONE]\n\nevent: response.completed"),
    severity=WARNING,
)

SE107 = rule(
    "SE107",
    "A chat stream does not end with [DONE]",
    "[DONE] signals that the stream is complete and that the connection may be reused.",
    "chat_sse",
    ("replace", "data: [DONE]\n\n", ""),
    source=CHAT,
)

SE108 = rule(
    "SE108",
    "An event after [DONE]",
    "Clients stop reading at [DONE]; what follows is lost.",
    "chat_sse",
    ("replace", "data: [DONE]\n\n", 'data: [DONE]\n\ndata: {"choices": []}\n\n'),
    source=CHAT,
)

SE110 = rule(
    "SE110",
    "The stream is too large to be compared as a whole",
    "Texts and items beyond the limit are no longer compared; the lifecycle is still checked.",
    "text",
    ("set", _DELTA, "delta", "so long " * 4096),
    severity=INFO,
    source=HARNESS,
)

KD101 = rule(
    "KD101",
    "A known deviation no longer occurs",
    "A run exercised the deviation on a version for which it is declared, and it did not occur: it is "
    "fixed. Remove its declaration, so that a regression is caught.",
    "run",
    ("set", 0, "occurred", []),
    source=HARNESS,
    message="{code} ({reference}) no longer occurs on {version}; fixed: remove it",
)

"""The rules for conversations, and for two views of one answer."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import HARNESS, SCHEMA, rule

CV101 = rule(
    "CV101",
    "previous_response_id names no response of the conversation",
    "The server should have rejected the request. Reported as information if the recording is incomplete.",
    "conversation",
    ("set", 1, "request.previous_response_id", "resp_x"),
    ("set", 1, "body.previous_response_id", "resp_x"),
    source=SCHEMA,
)

CV102 = rule(
    "CV102",
    "The answer names another previous response",
    "An answer must repeat the previous_response_id of its request.",
    "conversation",
    ("set", 1, "body.previous_response_id", None),
)

CV103 = rule(
    "CV103",
    "A tool output answers no call",
    "Every function_call_output names the call_id of a call in the chain; OpenAI answers 400 otherwise.",
    "conversation",
    ("set", 1, "request.input.0.call_id", "call_x"),
)

CV104 = rule(
    "CV104",
    "Two responses share an id",
    "Chains of responses and retrieval rely on unique ids.",
    "conversation",
    ("set", 1, "body.id", "resp_a"),
)

CV105 = rule(
    "CV105",
    "Items of two responses share an id",
    "Clients identify the items of a conversation by id.",
    "conversation",
    ("set", 1, "body.output.0.id", "fc_1"),
    message="id repeats that at {first}",
)

CV106 = rule(
    "CV106",
    "The stored response differs from the answer",
    "GET /responses/{id} must return the same response that was sent in the stream or the body. (billing, "
    "which OpenAI adds to bodies, is ignored.)",
    "conversation",
    ("set", 2, "body.output.0.content.0.text", "It rains."),
)

CV107 = rule(
    "CV107",
    "A replay differs from the original",
    "A stream that is read again with starting_after must repeat all later events of the original, with "
    "their sequence numbers; obfuscation is ignored.",
    "replay",
    ("set", 1, "events.2.delta", "Bye"),
)

CV108 = rule(
    "CV108",
    "Calls of two responses share a call_id",
    "The output of one call could be taken for that of the other.",
    "conversation",
    (
        "set",
        1,
        "body.output",
        [
            {
                "type": "function_call",
                "id": "fc_2",
                "call_id": "call_1",
                "name": "f",
                "arguments": "{}",
                "status": "completed",
            }
        ],
    ),
    message="call_id repeats that at {first}",
)

CP101 = rule(
    "CP101",
    "Two views of an answer differ",
    "The deltas, the terminal event and the body that one script produces must agree.",
    "pair",
    ("set", 1, "output.0.content.0.text", "Bye"),
    source=HARNESS,
    message="{left} and {right} differ",
)

CP102 = rule(
    "CP102",
    "A value is only in the first view",
    "As in CP101, two views of one answer must agree.",
    "pair",
    ("unset", 1, "usage"),
    source=HARNESS,
    message="only in {left}",
)

CP103 = rule(
    "CP103",
    "A value is only in the second view",
    "As in CP101, two views of one answer must agree.",
    "pair",
    ("unset", 0, "usage"),
    source=HARNESS,
    message="only in {right}",
)

"""The rules between exchanges, and between two views of one answer."""

from __future__ import annotations

from vllm_harness._protocol.core.rule import ERROR, HARNESS, SCHEMA, TRAFFIC, rule

CV101 = rule(
    "CV101",
    ERROR,
    "previous_response_id names no response of the conversation",
    "The server should have refused it. Information only where the recording is not the whole conversation.",
    SCHEMA,
    "conversation",
    ("set", 1, "request.previous_response_id", "resp_x"),
    ("set", 1, "body.previous_response_id", "resp_x"),
)

CV102 = rule(
    "CV102",
    ERROR,
    "The answer names another previous response",
    "It repeats the request's previous_response_id.",
    TRAFFIC,
    "conversation",
    ("set", 1, "body.previous_response_id", None),
)

CV103 = rule(
    "CV103",
    ERROR,
    "A tool output answers no call",
    "Every function_call_output names the call_id of a call in the chain; OpenAI answers 400 otherwise.",
    TRAFFIC,
    "conversation",
    ("set", 1, "request.input.0.call_id", "call_x"),
)

CV104 = rule(
    "CV104",
    ERROR,
    "Two responses share an id",
    "Chains and retrieval go by it.",
    TRAFFIC,
    "conversation",
    ("set", 1, "body.id", "resp_a"),
)

CV105 = rule(
    "CV105",
    ERROR,
    "Items of two responses share an id",
    "Clients keep items of a conversation by id.",
    TRAFFIC,
    "conversation",
    ("set", 1, "body.output.0.id", "fc_1"),
    message="id repeats that at {first}",
)

CV106 = rule(
    "CV106",
    ERROR,
    "The stored response is not the one that was answered",
    "GET /responses/{id} gives what the stream or the body gave. (billing, which OpenAI adds "
    "to bodies, aside.)",
    TRAFFIC,
    "conversation",
    ("set", 2, "body.output.0.content.0.text", "It rains."),
)

CV107 = rule(
    "CV107",
    ERROR,
    "A replay differs from the original",
    "starting_after gives the original events from there on, sequence numbers and all (obfuscation aside).",
    TRAFFIC,
    "replay",
    ("set", 1, "events.2.delta", "Bye"),
)

CV108 = rule(
    "CV108",
    ERROR,
    "Calls of two responses share a call_id",
    "Outputs of the one could be taken for the other's.",
    TRAFFIC,
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
    ERROR,
    "Two views of an answer differ",
    "Deltas, terminal event and body of one script agree.",
    HARNESS,
    "pair",
    ("set", 1, "output.0.content.0.text", "Bye"),
    message="{left} and {right} differ",
)

CP102 = rule(
    "CP102",
    ERROR,
    "Something is only in the first view",
    "As CP101.",
    HARNESS,
    "pair",
    ("unset", 1, "usage"),
    message="only in {left}",
)

CP103 = rule(
    "CP103",
    ERROR,
    "Something is only in the second view",
    "As CP101.",
    HARNESS,
    "pair",
    ("unset", 0, "usage"),
    message="only in {right}",
)

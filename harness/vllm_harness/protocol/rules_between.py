"""The rules between exchanges, between two views of one answer, and for known deviations."""

from __future__ import annotations

from vllm_harness.protocol.rule import ERROR, HARNESS, SCHEMA, TRAFFIC, Rule, rule

BETWEEN_RULES: tuple[Rule, ...] = (
    rule(
        "CV101",
        ERROR,
        "previous_response_id names no response of the conversation",
        "The server should have refused it. Information only where the recording is not the whole "
        "conversation.",
        SCHEMA,
        "conversation",
        ("set", 1, "request.previous_response_id", "resp_x"),
        ("set", 1, "body.previous_response_id", "resp_x"),
    ),
    rule(
        "CV102",
        ERROR,
        "The answer names another previous response",
        "It repeats the request's previous_response_id.",
        TRAFFIC,
        "conversation",
        ("set", 1, "body.previous_response_id", None),
    ),
    rule(
        "CV103",
        ERROR,
        "A tool output answers no call",
        "Every function_call_output names the call_id of a call in the chain; OpenAI answers 400 otherwise.",
        TRAFFIC,
        "conversation",
        ("set", 1, "request.input.0.call_id", "call_x"),
    ),
    rule(
        "CV104",
        ERROR,
        "Two responses share an id",
        "Chains and retrieval go by it.",
        TRAFFIC,
        "conversation",
        ("set", 1, "body.id", "resp_a"),
    ),
    rule(
        "CV105",
        ERROR,
        "Items of two responses share an id",
        "Clients keep items of a conversation by id.",
        TRAFFIC,
        "conversation",
        ("set", 1, "body.output.0.id", "fc_1"),
    ),
    rule(
        "CV106",
        ERROR,
        "The stored response is not the one that was answered",
        "GET /responses/{id} gives what the stream or the body gave. (billing, which OpenAI adds "
        "to bodies, aside.)",
        TRAFFIC,
        "conversation",
        ("set", 2, "body.output.0.content.0.text", "It rains."),
    ),
    rule(
        "CV107",
        ERROR,
        "A replay differs from the original",
        "starting_after gives the original events from there on, sequence numbers and all "
        "(obfuscation aside).",
        TRAFFIC,
        "replay",
        ("set", 1, "events.2.delta", "Bye"),
    ),
    rule(
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
    ),
    rule(
        "CP101",
        ERROR,
        "Two views of an answer differ",
        "Deltas, terminal event and body of one script say the same.",
        HARNESS,
        "pair",
        ("set", 1, "output.0.content.0.text", "Bye"),
    ),
    rule(
        "CP102",
        ERROR,
        "Something is only in the first view",
        "As CP101.",
        HARNESS,
        "pair",
        ("unset", 1, "usage"),
    ),
    rule(
        "CP103",
        ERROR,
        "Something is only in the second view",
        "As CP101.",
        HARNESS,
        "pair",
        ("unset", 0, "usage"),
    ),
    rule(
        "KD101",
        ERROR,
        "A known deviation no longer occurs",
        "The run came by what shows it, on a version it is said to hold for, and nothing was "
        "found: it is fixed, remove it, so that it is caught when it comes back.",
        HARNESS,
        "run",
        ("set", 0, "occurred", []),
    ),
)

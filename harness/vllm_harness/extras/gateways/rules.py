"""The rules for gateways: what a gateway must not change in an answer or a request."""

from __future__ import annotations

from functools import partial

from vllm_harness._protocol.chat.render import USAGE, completion, completion_chunks
from vllm_harness._protocol.core.rule import HARNESS, INFO, SSE, WARNING, rule

_TEXT = "through_text"
_CALL = "through_call"
_ERROR = "through_error"
_BODY = "through_body"
_rule = partial(rule, source=f"{HARNESS}: the same request sent to the server directly")
_CHUNKS = completion_chunks([{"content": "Hello, world"}], usage=USAGE)
_SEEN = {"api": "chat", "body": {"seed": 7}, "states": ["done"]}

GW101 = _rule(
    "GW101",
    "The text differs from the server's",
    "The model's text is lost, repeated or changed on the way. Of a stream, the joined deltas are compared.",
    "through_chat",
    ("unset", 1, "events.1"),
    ("unset", 1, "times.1"),
    message="the text differs from the server's, from character {at} on",
)

GW102 = _rule(
    "GW102",
    "The reasoning differs from the server's",
    "A client that shows reasoning, or has to send it back with the next turn, gets less of it or none.",
    "through_reasoning",
    ("unset", 1, "events.1"),
    ("unset", 1, "times.1"),
    message="the reasoning is {what}",
)

GW103 = _rule(
    "GW103",
    "A call is lost",
    "The client waits for the user when it should run a tool.",
    "through_calls_body",
    ("unset", 1, "body.choices.0.message.tool_calls.1"),
    message="{lost} of {all} calls are lost",
)

GW104 = _rule(
    "GW104",
    "Calls are merged",
    "Two calls arrive under one index or id: their arguments run together and are no longer valid JSON.",
    "through_calls",
    ("set", 1, "events.4.choices.0.delta.tool_calls.0.index", 0),
    ("set", 1, "events.5.choices.0.delta.tool_calls.0.index", 0),
    ("set", 1, "events.6.choices.0.delta.tool_calls.0.index", 0),
    message="{before} calls come as {after}",
)

GW105 = _rule(
    "GW105",
    "A call differs from the server's",
    "Its name or its arguments differ, or there is one more call. Reported as information if the arguments "
    "are the same JSON, formatted differently.",
    "through_calls_body",
    ("set", 1, "body.choices.0.message.tool_calls.1.function.name", "get_time"),
    message="a call differs from the server's",
)

GW106 = _rule(
    "GW106",
    "The answer ends for another reason",
    "`finish_reason`, `stop_reason` or `status` decides what a client does next: run the tools, "
    "continue, or give up.",
    "through_body",
    ("set", 1, "body.choices.0.finish_reason", "length"),
    message="the answer ends for a different reason than the server's",
)

GW107 = _rule(
    "GW107",
    "The usage is lost",
    "A client that bills or limits by tokens has nothing to count.",
    _BODY,
    ("unset", 1, "body.usage"),
    severity=WARNING,
)

GW108 = _rule(
    "GW108",
    "The usage counts differ",
    "The prompt and the answer were the same, so their token counts must be, too. Cached tokens are not "
    "compared. Reported as information if the gateway calls the server over another API, where the prompt "
    "may differ.",
    _BODY,
    ("set", 1, "body.usage.completion_tokens", 1),
    ("set", 1, "body.usage.total_tokens", 10),
    severity=WARNING,
    message="the usage counts differ from the server's",
)

GW109 = _rule(
    "GW109",
    "A field is lost",
    "The server sends the field with a value, but the client does not get it. Null counts as missing.",
    _TEXT,
    ("unset", 1, "events.0.response.object"),
    ("unset", 1, "events.1.response.object"),
    ("unset", 1, "events.9.response.object"),
    message="the field is lost",
)

GW110 = _rule(
    "GW110",
    "A field is renamed",
    "The same value comes under another name, so a client of the server finds nothing under the name that "
    "it reads.",
    "through_reasoning_body",
    ("unset", 1, "body.choices.0.message.reasoning"),
    ("set", 1, "body.choices.0.message.reasoning_content", "Let me think."),
    severity=WARNING,
    message="the field is renamed: {name}",
)

GW111 = _rule(
    "GW111",
    "A field is added",
    "An added field does no harm by itself, but shows that the gateway rewrote the answer.",
    _BODY,
    ("set", 1, "body.provider", "a-gateway"),
    severity=INFO,
    message="a field is added",
)

GW112 = _rule(
    "GW112",
    "A field has another value",
    "The model's texts, ids and times are not compared, and the model's name may be the requested one.",
    _BODY,
    ("set", 1, "body.choices.0.message.role", "user"),
    severity=WARNING,
    message="the field's value differs from the server's",
)

GW113 = _rule(
    "GW113",
    "Events are lost",
    "The server sends events of this type, but none of them arrives.",
    _TEXT,
    ("unset", 1, "events.3"),
    ("unset", 1, "times.3"),
    message="events are lost: {kind}",
)

GW114 = _rule(
    "GW114",
    "Events are added",
    "The server sends no event of this type.",
    _TEXT,
    ("set", 1, "events.1", {"type": "ping", "sequence_number": 1}),
    severity=WARNING,
    message="events are added: {kind}",
)

GW115 = _rule(
    "GW115",
    "Events come in another order",
    "A client builds an answer in the order of its events. The first event of each kind is compared. The "
    "events of different choices may alternate.",
    "through_chat_usage",
    ("set", 1, "events.3", _CHUNKS[4]),
    ("set", 1, "events.4", _CHUNKS[3]),
)

GW116 = _rule(
    "GW116",
    "The stream is held back and arrives all at once",
    "The server's text arrived spread over the time of the answer; through the gateway the deltas arrived "
    "together at its end. Only a stream of at least ten deltas and 0.2 s is judged, and a request with this "
    "finding is repeated before the finding counts.",
    "through_long",
    ("set", 1, "times", [2.0] * 15),
    message="the deltas came at once, at the end of {seconds:.1f} s",
)

GW117 = _rule(
    "GW117",
    "Deltas are merged",
    "The text arrives in far fewer pieces. Which tokens a delta contains is left to chance, so this is only "
    "reported for at most a quarter of the server's number of deltas.",
    "through_long",
    ("set", 1, "events", [*completion_chunks([{"content": "word" * 12}]), "[DONE]"]),
    ("set", 1, "times", [0.0, 0.1, 0.8, 1.2, 1.3]),
    severity=WARNING,
    message="the text comes in far fewer pieces",
)

GW118 = _rule(
    "GW118",
    "[DONE] is lost",
    "[DONE] ends a stream of Chat Completions; a client that waits for it does not know that the answer is "
    "complete.",
    "through_chat",
    ("unset", 1, "events.4"),
    ("unset", 1, "times.4"),
    source=SSE,
)

GW119 = _rule(
    "GW119",
    "The stream ends early",
    "The server's stream was complete; through the gateway, the connection closed, or the last event is "
    "missing.",
    _TEXT,
    ("unset", 1, "events.9"),
    ("unset", 1, "times.9"),
    message="the stream ends early{how}",
)

GW120 = _rule(
    "GW120",
    "The HTTP status differs",
    "The gateway refuses or fails a request that the server answers, or changes the class of an error, "
    "which clients use to decide whether to retry. Reported as a warning if both are client errors (4xx).",
    _BODY,
    ("set", 1, "status", 500),
    ("set", 1, "body", {"error": {"message": "no connection", "type": "internal_error", "code": "500"}}),
    message="HTTP {after} instead of {before}",
)

GW121 = _rule(
    "GW121",
    "HTTP 200 for an error",
    "The server refuses the request, but the client takes the error for an answer.",
    _ERROR,
    ("set", 1, "status", 200),
    message="HTTP 200 for an error (HTTP {before})",
)

GW122 = _rule(
    "GW122",
    "The fields or the wording of an error differ",
    "Clients distinguish errors by `type`, `code` and `param`; people read the message. Reported as "
    "information if the gateway only adds words to the server's message.",
    _ERROR,
    ("set", 1, "body.error.type", "InternalServerError"),
    severity=WARNING,
)

GW123 = _rule(
    "GW123",
    "A response, an item or a call has several ids",
    "The server's stream names a response, an item or a call by one id throughout; through the gateway "
    "its events disagree, so a client cannot put them together, or answers an unknown call.",
    "through_call_item",
    ("set", 1, "events.6.item.call_id", "call_other"),
    message="{thing} has more than one id",
)

GW124 = _rule(
    "GW124",
    "The body is of another kind",
    "A stream was requested and a single body came, or the other way around, or the body is not valid JSON.",
    "through_chat",
    ("set", 1, "headers.content-type", "application/json"),
    ("unset", 1, "events"),
    ("set", 1, "body", completion([{"content": "Hello, world"}])),
    message="a different kind of body than the server's",
)

GW125 = _rule(
    "GW125",
    "A header is lost",
    "`x-request-id` identifies the request in the server's log; `retry-after` says when a client may try "
    "again.",
    _BODY,
    ("unset", 1, "headers.x-request-id"),
    severity=WARNING,
    message="the header is lost",
)

GW126 = _rule(
    "GW126",
    "The server goes on after the client has left",
    "The client closed the connection. The server stops if it is called directly; behind the gateway it "
    "generates the answer to its end, although no client reads it.",
    "through_left",
    ("set", 1, "seen.0.states", ["done"]),
)

GW127 = _rule(
    "GW127",
    "The server gets a request more than once",
    "The gateway retried on its own, so the request's work is done twice, and its changes are made twice.",
    _BODY,
    ("set", 1, "seen", [_SEEN, _SEEN]),
    severity=WARNING,
    message="the server got the request {times} times",
)

GW128 = _rule(
    "GW128",
    "The request is changed",
    "The server gets a different body than the client sent: a field is lost, or has another value. "
    "Reported as information if a field is added, or if the field is the model's name.",
    _BODY,
    ("unset", 1, "seen.0.body.seed"),
    severity=WARNING,
    message="the request's field is {what}",
)

GW129 = _rule(
    "GW129",
    "The server is called over another API",
    "The gateway translates: what the other API cannot express is lost, in the request and in the answer.",
    _BODY,
    ("set", 1, "seen.0.api", "responses"),
    severity=INFO,
    message="the server is called over a different API than the client's",
)

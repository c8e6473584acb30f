"""A case as the requests of an API: the first, and the one that follows an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from vllm_harness.extras.gateways.cases import Asked
from vllm_harness.protocol.core.events import Api, Json
from vllm_harness.scenarios.format import Output, Part, Tool
from vllm_harness.scenarios.tools import Result, Toolbox
from vllm_harness.scenarios.transports.chat import CHAT
from vllm_harness.scenarios.transports.messages import MESSAGES
from vllm_harness.scenarios.transports.responses import WITH_HISTORY, WITH_STATE
from vllm_harness.scenarios.transports.transport import Ask, Said, Sent, Transport

MAX_TOKENS = 600
_OF_LEAVERS = 3000
_PLACE = {"city": {"type": "string"}, "unit": {"type": "string"}}
_BY_CASE = (Output(output="as the case says"),)
TOOLS: Mapping[str, Tool] = {
    "get_weather": Tool(
        description="The weather of a city.",
        parameters={"type": "object", "properties": _PLACE, "required": ["city"]},
        outputs=_BY_CASE,
    ),
    "get_time": Tool(
        description="The time in a city.",
        parameters={"type": "object", "properties": {"city": {"type": "string"}}},
        outputs=_BY_CASE,
    ),
}
_TRANSPORTS: Mapping[Api, Transport] = {"chat": CHAT, "responses": WITH_HISTORY, "messages": MESSAGES}


def first(asked: Asked, model: str, mark: str) -> Ask:
    """What a case asks first.

    Args:
        model: the name that is asked for.
        mark: put behind the user's text.
    """
    case = asked.case
    return Ask(
        model,
        case.system or None,
        Toolbox({name: TOOLS[name] for name in case.tools}, (), lambda name, arguments: None),
        tool_choice=None,
        max_tokens=_OF_LEAVERS if case.leaves else MAX_TOKENS,
        context=None,
        line=(),
        sent=_said_by_user(f"{case.user} {mark}"),
    )


def following(asked: Asked, ask: Ask, answer: Json) -> Ask | None:
    """What follows an answer: results of its calls, or what continues it by its id; None where nothing does.

    Args:
        ask: what was asked.
        answer: its body, or what its stream adds up to.
    """
    case, said = asked.case, Said(ask.sent, _transport(asked).answer(answer))
    if case.continues:
        sent = _said_by_user("Which number was it?")
    elif case.results:
        sent = Sent(tuple(Result(c.id, _result(c.name, case.results)) for c in said.answer.calls), ())
    else:
        return None
    return replace(ask, line=(*ask.line, said), sent=sent)


def request_of(asked: Asked, ask: Ask) -> Json:
    """The body of a request."""
    case, transport = asked.case, _transport(asked)
    return {
        **transport.request(ask),
        **({} if asked.api != "responses" or ask.line else {"input": ask.sent.user[0].text}),
        **(_schema(asked.api, case.schema_) if case.schema_ else {}),
        **(transport.streaming if asked.streamed else {}),
        **case.more(asked.api),
        **(case.broken or {}),
    }


def _transport(asked: Asked) -> Transport:
    return WITH_STATE if asked.case.continues else _TRANSPORTS[asked.api]


def _said_by_user(text: str) -> Sent:
    return Sent((), (Part(text=text),))


def _schema(api: Api, schema: Json) -> Json:
    named = {"name": "answer", "schema": schema, "strict": True}
    if api == "chat":
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    return {"text": {"format": {"type": "json_schema", **named}}}


def _result(name: str, results: Mapping[str, str]) -> str:
    return results.get(name, json.dumps({"error": "no such tool"}))

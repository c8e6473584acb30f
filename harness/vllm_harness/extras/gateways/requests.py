"""Builds the requests of a case: the first request, and the one that follows its answer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from vllm_harness._exchange import building
from vllm_harness._exchange.answer import Answer
from vllm_harness._exchange.building import ContentPart, PastTurn, Result, TurnInput, TurnRequest
from vllm_harness._protocol.core.events import Api, Json
from vllm_harness.extras.gateways.answers import SideExchange
from vllm_harness.extras.gateways.cases import CaseVariant

MAX_TOKENS = 600
_MAX_TOKENS_OF_LEAVERS = 3000
_PLACE = {"city": {"type": "string"}, "unit": {"type": "string"}}
_PARAMETERS: Mapping[str, tuple[str, Json]] = {
    "get_weather": ("The weather of a city.", {"type": "object", "properties": _PLACE, "required": ["city"]}),
    "get_time": ("The time in a city.", {"type": "object", "properties": {"city": {"type": "string"}}}),
}
TOOLS: Mapping[str, Json] = {
    name: {"name": name, "description": description, "parameters": parameters}
    for name, (description, parameters) in _PARAMETERS.items()
}


def first(variant: CaseVariant, model: str, mark: str) -> TurnRequest:
    """The first request of a case.

    Args:
        variant: the case over an API.
        model: the model's name.
        mark: the text to append to the user's text.
    """
    case = variant.case
    return TurnRequest(
        model,
        _user_text(f"{case.user} {mark}"),
        instructions=case.system or None,
        functions=[TOOLS[name] for name in case.tools],
        max_tokens=_MAX_TOKENS_OF_LEAVERS if case.leaves else MAX_TOKENS,
        stored=bool(case.continues),
        stream=variant.streamed,
    )


def following(variant: CaseVariant, ask: TurnRequest, exchange: SideExchange) -> TurnRequest | None:
    """The request after an answer, with the results of its calls or with its id; None if none follows.

    Args:
        variant: the case over an API.
        ask: the first request.
        exchange: the exchange of the first request.
    """
    case, said = (
        variant.case,
        PastTurn(ask.sent, exchange.answers[0] if exchange.answers else Answer("failed")),
    )
    if case.continues:
        sent = _user_text("Which number was it?")
    elif case.results:
        sent = TurnInput(tuple(Result(c.id, _result(c.name, case.results)) for c in said.answer.calls), ())
    else:
        return None
    return replace(ask, line=(*ask.line, said), sent=sent)


def request_of(variant: CaseVariant, ask: TurnRequest) -> Json:
    """The body of a request, with the further fields of the case."""
    case = variant.case
    return {
        **building.request_of(variant.api, ask),
        **({} if variant.api != "responses" or ask.line else {"input": ask.sent.user[0].text}),
        **(_schema(variant.api, case.schema_) if case.schema_ else {}),
        **case.more(variant.api),
        **(case.broken or {}),
    }


def _user_text(text: str) -> TurnInput:
    return TurnInput((), (ContentPart(text=text),))


def _schema(api: Api, schema: Json) -> Json:
    named = {"name": "answer", "schema": schema, "strict": True}
    if api == "chat":
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    return {"text": {"format": {"type": "json_schema", **named}}}


def _result(name: str, results: Mapping[str, str]) -> str:
    return results.get(name, json.dumps({"error": "no such tool"}))

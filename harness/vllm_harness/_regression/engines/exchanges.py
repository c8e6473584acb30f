"""Builds each API's request for a case, and reads the answer from the HTTP exchange."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from vllm_harness._exchange.answer import answer_of
from vllm_harness._exchange.building import ContentPart, TurnInput, TurnRequest, request_of
from vllm_harness._exchange.delivery import Api, Chunking, Delivery
from vllm_harness._exchange.endpoint import API_PATHS
from vllm_harness._protocol import Exchange
from vllm_harness._protocol.conversation.exchange import accumulate
from vllm_harness._protocol.core.events import AnyEvent, Json
from vllm_harness._protocol.core.sse import SSEEvent
from vllm_harness._regression.cases.case import CaseInput
from vllm_harness._regression.engines.answer import AnswerError, CaseCall, ErrorCode
from vllm_harness._scripted.in_server.vllm_harness_names import SCRIPT_REFUSED

STOP_STRING = "NEVERSAID"
"""A stop string that no text contains: vLLM holds back one character less than its length."""


def path_of(delivery: Delivery) -> str:
    """Returns the URL path to which requests for an HTTP delivery are sent."""
    assert delivery.api is not None
    return API_PATHS[delivery.api.value]


def body_of(input_: CaseInput, delivery: Delivery, name: str, model: str = "") -> Json:
    """Returns the request body for a delivery, whose chunks a header of the request names.

    Args:
        name: the first line of the user's message, which selects the script.
        model: the model's name; left out if it is empty.
    """
    assert delivery.api is not None
    by_responses = delivery.api is Api.RESPONSES
    text = f"{name}\n{input_.user_message}" if input_.user_message else name
    ask = TurnRequest(
        model,
        TurnInput((), (ContentPart(text=text),)),
        functions=[
            {**({"strict": False} if by_responses else {}), **tool["function"]} for tool in input_.tools
        ],
        tool_choice=input_.tool_choice,
        max_tokens=input_.max_tokens,
        stream=delivery.shape is not Chunking.WHOLE,
        stop=(STOP_STRING,) if delivery.shape is Chunking.HELD_BACK else (),
        more={"store": False} if by_responses else {},
    )
    return request_of(delivery.api.value, ask)


def fields_of(exchange: Exchange) -> dict[str, Any]:
    """Returns the fields of a `CaseAnswer` for an exchange.

    If a grammar refuses a stream, the refusal is the whole answer, since the stream may end at any token.
    """
    error = _error(exchange)
    if error is not None and error.code != ErrorCode.ERROR_EVENT:
        return {"error": error}
    api = exchange.api or "chat"
    body = accumulate(exchange.json_events).body if exchange.streamed else exchange.body or {}
    answer = answer_of(api, body)
    counted = _call_chunks(exchange.json_events) if api == "chat" and exchange.streamed else []
    calls = [
        CaseCall(name=call.name if call.is_named else None, arguments=call.arguments, id=call.id or None)
        for call in answer.open_calls
    ]
    for number, (index, chunks) in enumerate(counted[: len(calls)]):
        calls[number] = calls[number].model_copy(update={"index": index, "chunks": chunks})
    details = answer.usage.get("completion_tokens_details") or answer.usage.get("output_tokens_details")
    return {
        "reasoning": answer.reasoning or answer.summary,
        "content": answer.text,
        "calls": tuple(calls),
        "counted_reasoning": None if exchange.streamed else (details or {}).get("reasoning_tokens"),
        "error": error,
    }


def _error(exchange: Exchange) -> AnswerError | None:
    if exchange.broken:
        code, _, _ = exchange.broken.partition(":")
        if "Timeout" not in code:
            code = ErrorCode.BROKEN_OFF if exchange.status else ErrorCode.NO_ANSWER
        return AnswerError(code=code, message=exchange.broken)
    if exchange.streamed:
        return _error_event(exchange.events or ())
    if exchange.body is None:
        return AnswerError(code=ErrorCode.NOT_JSON, message=exchange.content[:300].decode("utf-8", "replace"))
    return None if exchange.ok else _http_error(exchange.status, exchange.body.get("error") or {})


def _http_error(status: int, error: Json) -> AnswerError:
    code = ErrorCode.GRAMMAR_REFUSED if error.get("code") == SCRIPT_REFUSED else f"http_{status}"
    return AnswerError(code=code, message=str(error.get("message")))


def _error_event(events: Iterable[AnyEvent]) -> AnswerError | None:
    """The error event that ends a stream, if any."""
    error = None
    for event in events:
        if isinstance(event, SSEEvent) and (event.event == "error" or event.data.startswith('{"error"')):
            refused = f'"{SCRIPT_REFUSED}"' in event.data
            code = ErrorCode.GRAMMAR_REFUSED if refused else ErrorCode.ERROR_EVENT
            error = AnswerError(code=code, message=event.data[:300])
    return error


def _call_chunks(events: Iterable[Json]) -> list[tuple[int, int]]:
    """Returns (index, number of chunks with arguments) for each call in a Chat Completions stream."""
    counts = Counter[int]()
    for event in events:
        for choice in event.get("choices") or ():
            for call in (choice.get("delta") or {}).get("tool_calls") or ():
                counts[call["index"]] += bool((call.get("function") or {}).get("arguments"))
    return sorted(counts.items())

"""Bodies: a response, a chat completion, a message or an error that came in one piece."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel

from vllm_harness.protocol.chat import check_completion
from vllm_harness.protocol.findings import Finding, Report, brief
from vllm_harness.protocol.items import check_output, check_response
from vllm_harness.protocol.messages_objects import check_error as check_messages_error
from vllm_harness.protocol.messages_objects import check_message
from vllm_harness.protocol.rules import SEVERITIES
from vllm_harness.protocol.stream import Api, plain

Kind = Literal["message", "error", "bare error", "completion", "response"]
_WITHOUT_RULES = {"list", "text_completion", "chat.completion.deleted"}
_ERROR_KEYS = ("message", "type", "param", "code")


def validate_body(
    body: Mapping[str, Any] | BaseModel, *, api: Api | None = None, request: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Checks a body of one of the APIs, or an error body.

    Args:
        body: the JSON object, or the SDK's object for it.
        api: "responses", "chat" or "messages"; None judges by the body.
        request: the request body, when it is known; more can be checked then.

    Returns:
        The findings; empty for a clean body. Objects of other kinds (a compaction, a token count, a list) are
        not checked.
    """
    report = Report(SEVERITIES)
    value = plain(body)
    asked = dict(request) if request is not None else None
    try:
        _check(report, value, api, asked)
    except RecursionError:
        report.add("SE103", "the body nests too deeply")
    return report.findings


def has_kind(body: Mapping[str, Any] | BaseModel, *, api: Api | None = None) -> bool:
    """Whether a body is of a kind that `validate_body` knows, with rules or without."""
    value = plain(body)
    kind = value.get("object")
    named = isinstance(kind, str) and (kind in _WITHOUT_RULES or kind.startswith("response."))
    return named or _kind(value, api) is not None


def _kind(body: dict[str, Any], api: Api | None) -> Kind | None:
    kind = body.get("object")
    if api == "messages" or (api is None and kind is None and body.get("type") in ("message", "error")):
        return "message"
    if "error" in body and "id" not in body and body["error"] is not None:
        return "error"
    if kind == "error":
        return "bare error"
    if api == "chat" or (api is None and _is_completion(body)):
        return "completion"
    if isinstance(kind, str) and kind.startswith("response."):
        return None
    return "response" if api == "responses" or kind == "response" or "output" in body else None


def _is_completion(body: dict[str, Any]) -> bool:
    if body.get("object") == "chat.completion" and "output" not in body:
        return True
    return "choices" in body and body.get("object") != "text_completion"


def _check(report: Report, body: dict[str, Any], api: Api | None, request: dict[str, Any] | None) -> None:
    match _kind(body, api):
        case "message":
            _check_messages(report, body)
        case "error":
            _check_error(report, body["error"])
        case "bare error":
            report.add("RO119", "the error stands at the top of the body", "$", "{error: {...}}", brief(body))
        case "completion":
            check_completion(report, body, request)
        case "response":
            _check_response(report, body, request)


def _check_response(report: Report, body: dict[str, Any], request: dict[str, Any] | None) -> None:
    check_response(report, body, "$", request)
    status = body.get("status")
    known = status if isinstance(status, str) else None
    check_output(report, body.get("output"), "$.output", known, request)


def _check_messages(report: Report, body: dict[str, Any]) -> None:
    if "error" in body:
        check_messages_error(report, body)
    else:
        check_message(report, body)


def _check_error(report: Report, error: object) -> None:
    if not isinstance(error, dict):
        report.add("RO119", "error is not an object", "$.error", "object", brief(error))
        return
    for key in _ERROR_KEYS:
        if key not in error:
            report.add(
                "RO119", f"field {key!r} of the error is missing", f"$.error.{key}", "the field", "nothing"
            )
    if not isinstance(error.get("message"), str):
        report.add(
            "RO119", "the error has no message", "$.error.message", "string", brief(error.get("message"))
        )

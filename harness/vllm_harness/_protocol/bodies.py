"""Validation of bodies: a response, a chat completion, a message or an error."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal

from pydantic import BaseModel

from vllm_harness._protocol.chat.objects import check_completion
from vllm_harness._protocol.core.events import Api, Json, plain
from vllm_harness._protocol.core.findings import Finding
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.rules import SE103
from vllm_harness._protocol.messages.objects import check_error as check_messages_error
from vllm_harness._protocol.messages.objects import check_message
from vllm_harness._protocol.responses.objects import (
    check_bare_error,
    check_error,
    check_output,
    check_response,
)

Kind = Literal["message", "error", "bare error", "completion", "response"]
_WITHOUT_RULES = {"list", "text_completion", "chat.completion.deleted"}


def validate_body(
    body: Mapping[str, Any] | BaseModel, *, api: Api | None = None, request: Mapping[str, Any] | None = None
) -> list[Finding]:
    """Checks a body of one of the APIs, or an error body.

    Args:
        body: a JSON object, or an SDK object.
        api: "responses", "chat" or "messages"; None infers it from the body.
        request: the request body, if known, which allows further checks.

    Returns:
        The findings; empty if the body is clean. Other objects (a compaction, a token count, a list) are not
        checked.
    """
    report = Report()
    value = report.body = plain(body)
    try:
        _check(report, value, api, dict(request) if request is not None else None)
    except RecursionError:
        report.add(SE103, problem="it is nested too deeply")
    return report.findings


def has_kind(body: Mapping[str, Any] | BaseModel, *, api: Api | None = None) -> bool:
    """Whether `validate_body` recognizes the kind of a body, even if it has no rules for that kind."""
    value = plain(body)
    kind = value.get("object")
    named = isinstance(kind, str) and (kind in _WITHOUT_RULES or kind.startswith("response."))
    return named or _kind(value, api) is not None


def placed_as_in_stream(findings: Iterable[Finding], body: Mapping[str, Any] | BaseModel) -> list[Finding]:
    """Rewrites the paths of a response's findings to those of a terminal event (`$.response.error`).

    A known deviation of a response then covers bodies and streams. Findings of other bodies do not change.
    """
    if plain(body).get("object") != "response":
        return list(findings)
    return [replace(finding, path=finding.path.replace("$", "$.response", 1)) for finding in findings]


def _kind(body: Json, api: Api | None) -> Kind | None:
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


def _is_completion(body: Json) -> bool:
    if body.get("object") == "chat.completion" and "output" not in body:
        return True
    return "choices" in body and body.get("object") != "text_completion"


def _check(report: Report, body: Json, api: Api | None, request: Json | None) -> None:
    match _kind(body, api):
        case "message" if "error" in body:
            check_messages_error(report, body)
        case "message":
            check_message(report, body)
        case "error":
            check_error(report, body["error"])
        case "bare error":
            check_bare_error(report, body)
        case "completion":
            check_completion(report, body, request)
        case "response":
            check_response(report, body, "$", request)
            status = body.get("status")
            known = status if isinstance(status, str) else None
            check_output(report, body.get("output"), "$.output", known, request)

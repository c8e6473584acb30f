"""Checks of a Chat Completions body, its choices and its usage."""

from __future__ import annotations

from vllm_harness._protocol.chat import object_rules as rules
from vllm_harness._protocol.chat import schema
from vllm_harness._protocol.chat.stream_rules import CC107, CC114
from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.fields import check_fields, check_token_counts, is_json_object
from vllm_harness._protocol.core.findings import ABSENT, Severity, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.types import NULL


def check_completion(report: Report, body: Json, request: Json | None) -> None:
    """Checks a Chat Completions body.

    Args:
        report: collects the findings.
        body: the completion.
        request: the request, if known.
    """
    check_fields(report, body, schema.COMPLETION_FIELDS, "$", rules.CB101, rules.CB102)
    if body.get("object", "chat.completion") != "chat.completion":
        report.add(rules.CB103, "$.object", '"chat.completion"', brief(body["object"]))
    if body.get("usage") is None:
        report.add(rules.CB104, "$.usage", "object", brief(body.get("usage", ABSENT)))
    else:
        check_usage(report, body["usage"], "$.usage")
    choices = body.get("choices")
    if not isinstance(choices, list):
        return
    wanted = (request or {}).get("n") or 1
    if not choices or (request is not None and len(choices) != wanted):
        report.add(rules.CB105, "$.choices", str(wanted), str(len(choices)))
    for number, choice in enumerate(choices):
        if isinstance(choice, dict):
            _check_choice(report, choice, number, request)
        else:
            report.add(rules.CB102, f"$.choices[{number}]", "object", brief(choice), key=f"choices[{number}]")


def _check_choice(report: Report, choice: Json, number: int, request: Json | None) -> None:
    path = f"$.choices[{number}]"
    check_fields(report, choice, schema.CHOICE_FIELDS, path, rules.CB101, rules.CB102)
    if choice.get("index", number) != number:
        report.add(rules.CB106, f"{path}.index", str(number), brief(choice["index"]))
    finish, message = choice.get("finish_reason"), choice.get("message")
    if isinstance(finish, str) and finish not in schema.FINISH_REASONS:
        wanted = " or ".join(sorted(schema.FINISH_REASONS))
        report.add(rules.CB107, f"{path}.finish_reason", wanted, brief(finish))
    if not isinstance(message, dict):
        return
    _check_message(report, message, f"{path}.message")
    tool_calls = message.get("tool_calls")
    calls = tool_calls if isinstance(tool_calls, list) else []
    if isinstance(finish, str):
        check_finish(report, finish, bool(calls), request, f"{path}.finish_reason")
    _check_calls(report, calls, finish, f"{path}.message.tool_calls")
    if not calls and not _has_content(message):
        report.add(rules.CB110, f"{path}.message", "some content", brief(message))


def _check_message(report: Report, message: Json, path: str) -> None:
    if message.get("role") != "assistant":
        report.add(rules.CB108, f"{path}.role", '"assistant"', brief(message.get("role", ABSENT)))
    if "content" not in message:
        report.add(rules.CB101, f"{path}.content", "string or null", "nothing", key="content")
    for key in schema.TEXT_KEYS:
        if not isinstance(message.get(key), (str, NULL)):
            report.add(rules.CB102, f"{path}.{key}", "string or null", brief(message[key]), key=key)
    if message.get("tool_calls") == []:
        report.add(rules.CB109, f"{path}.tool_calls", "no such field", "[]")


def _has_content(message: Json) -> bool:
    return any(message.get(key) is not None for key in (*schema.TEXT_KEYS, "audio", "function_call"))


def _check_calls(report: Report, calls: list[object], finish: object, path: str) -> None:
    seen: dict[str, int] = {}
    for number, call in enumerate(calls):
        place = f"{path}[{number}]"
        if not isinstance(call, dict):
            report.add(rules.CB102, place, "object", brief(call), key=f"tool_calls[{number}]")
            continue
        check_fields(report, call, schema.CALL_FIELDS, place, rules.CB111, rules.CB111)
        identifier = call.get("id")
        if isinstance(identifier, str) and (first := seen.setdefault(identifier, number)) != number:
            report.add(rules.CB112, f"{place}.id", "a unique id", brief(identifier), first=first)
        if call.get("type") == "function":
            _check_function(report, call.get("function"), finish, f"{place}.function")


def _check_function(report: Report, function: object, finish: object, path: str) -> None:
    if not isinstance(function, dict):
        report.add(rules.CB111, path, "object", brief(function), key="function")
        return
    check_fields(report, function, schema.FUNCTION_FIELDS, path, rules.CB111, rules.CB111)
    arguments = function.get("arguments")
    if isinstance(arguments, str) and finish != "length" and not is_json_object(arguments):
        report.add(rules.CB113, f"{path}.arguments", "a JSON object", brief(arguments))


def check_finish(report: Report, finish: str, called: bool, request: Json | None, path: str) -> None:
    """Checks that finish_reason is `tool_calls` if, and only if, there are calls.

    A forced function may end with `stop`.

    Args:
        report: collects the findings.
        finish: the finish_reason.
        called: whether there are tool calls.
        request: the request, if known.
        path: the JSON path of the finish_reason.
    """
    if finish == "tool_calls" and not called:
        report.add(CC107, path, '"stop"', '"tool_calls"')
    elif finish == "stop" and called:
        choice = request.get("tool_choice", "auto") if request is not None else None
        severity = Severity.ERROR if choice in ("auto", None) and request is not None else Severity.INFO
        if not isinstance(choice, dict):
            report.add(CC114, path, '"tool_calls"', '"stop"', severity)


def check_usage(report: Report, usage: object, path: str) -> None:
    """Checks the token counts of Chat Completions."""
    if not isinstance(usage, dict):
        report.add(rules.CU101, path, "object", brief(usage), key="usage")
        return
    check_fields(report, usage, schema.USAGE_FIELDS, path, rules.CU101, rules.CU101)
    check_token_counts(
        report, usage, path, "prompt_tokens", "completion_tokens", total=rules.CU102, part=rules.CU103
    )

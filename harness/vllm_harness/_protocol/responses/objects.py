"""Checks of whole objects of the Responses API: output items, responses, errors."""

from __future__ import annotations

from collections.abc import Sequence

from vllm_harness._protocol.core.events import CALL_ITEMS, Json
from vllm_harness._protocol.core.fields import check_fields, check_token_counts, is_json_object
from vllm_harness._protocol.core.findings import ABSENT, Severity, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.responses import object_rules as rules
from vllm_harness._protocol.responses import schema

_ERROR_KEYS = ("message", "type", "param", "code")


def check_item(
    report: Report, item: Json, path: str, response_status: str | None, request: Json | None
) -> None:
    """Checks a finished output item.

    Args:
        report: collects the findings.
        item: the item.
        path: the JSON path of the item.
        response_status: the status of the response, if known; "completed" requires finished items.
        request: the request, if known.
    """
    kind = item.get("type")
    fields = schema.ITEM_FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        check_unknown_item(report, kind, path)
        return
    if "status" in item and item["status"] is None:
        severity = Severity.WARNING if kind == "reasoning" else Severity.ERROR
        report.add(rules.IT103, f"{path}.status", '"completed"', "null", severity, kind=kind)
        fields = tuple(field for field in fields if field[0] != "status")
    check_fields(report, item, fields, path, rules.IT101, rules.IT102)
    for key, _ in fields:
        if item.get(key) == "" and key in ("id", "call_id", "name"):
            report.add(rules.IT105, f"{path}.{key}", "a non-empty string", '""', key=key, kind=kind)
    _check_status(report, item, path, response_status)
    _check_parts(report, item, path)
    for key in schema.EVENT_ONLY_FIELDS:
        if key in item:
            report.add(rules.IT110, f"{path}.{key}", "nothing", brief(item[key]), key=key)
    if kind == "function_call":
        _check_call(report, item, path, response_status, request)


def check_unknown_item(report: Report, kind: object, path: str) -> None:
    """Reports an item of unknown type, as information if its type is at least a non-empty string."""
    if isinstance(kind, str) and kind:
        report.add(rules.IT112, f"{path}.type", kind=kind)
    else:
        report.add(rules.IT101, f"{path}.type", "string", brief(kind), key="type")


def _check_status(report: Report, item: Json, path: str, response_status: str | None) -> None:
    status = item.get("status")
    kind = item.get("type")
    if not isinstance(status, str):
        return
    if status not in schema.ITEM_STATUSES:
        report.add(rules.IT104, f"{path}.status", "completed", brief(status), kind=kind)
    elif response_status == "completed" and status != "completed" and kind in schema.MODEL_WRITTEN:
        if not item.get("caller"):
            report.add(rules.IT106, f"{path}.status", '"completed"', brief(status), kind=kind, status=status)
    elif response_status == "completed" and status not in ("completed", "failed", "incomplete"):
        report.add(rules.IT107, f"{path}.status", "completed", brief(status), kind=kind, status=status)


def _check_parts(report: Report, item: Json, path: str) -> None:
    kind = str(item.get("type"))
    for parts in schema.PART_KINDS:
        wanted = parts.types.get(kind)
        values = item.get(parts.item_key)
        if wanted is None or not isinstance(values, list):
            continue
        for number, part in enumerate(values):
            check_part(report, part, kind, wanted, f"{path}.{parts.item_key}[{number}]")


def check_part(report: Report, part: object, item_type: str, wanted: Sequence[str], path: str) -> None:
    """Checks the type and the fields of a part of a message or a reasoning item."""
    if not isinstance(part, dict):
        report.add(rules.IT113, path, "object", brief(part), kind=item_type)
        return
    kind = part.get("type")
    if kind not in wanted:
        report.add(rules.IT113, f"{path}.type", " or ".join(wanted), brief(kind), kind=item_type)
        return
    check_fields(report, part, schema.PART_FIELDS[str(kind)], path, rules.IT113, rules.IT113, kind=item_type)


def _check_call(
    report: Report, item: Json, path: str, response_status: str | None, request: Json | None
) -> None:
    arguments = item.get("arguments")
    truncated = item.get("status") == "incomplete" or response_status in ("incomplete", "failed", "cancelled")
    if isinstance(arguments, str) and not truncated and not is_json_object(arguments):
        report.add(rules.IT109, f"{path}.arguments", "a JSON object", brief(arguments))
    offered = _offered_functions(request)
    name = item.get("name")
    if offered and isinstance(name, str) and name not in offered:
        report.add(rules.IT114, f"{path}.name", " or ".join(sorted(offered)), brief(name))


def _offered_functions(request: Json | None) -> set[str]:
    """The names of the functions that a request offers; empty if other kinds of tools may add more."""
    tools = request.get("tools") if request and "prompt" not in request else None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return set()
    if any(tool.get("type") != "function" for tool in tools):
        return set()
    return {tool["name"] for tool in tools if isinstance(tool.get("name"), str)}


def check_output(
    report: Report, output: object, path: str, response_status: str | None, request: Json | None
) -> None:
    """Checks the items of a response, and that their ids are unique."""
    if not isinstance(output, list):
        return
    for number, item in enumerate(output):
        if isinstance(item, dict):
            check_item(report, item, f"{path}[{number}]", response_status, request)
        else:
            place = f"{path}[{number}]"
            report.add(rules.IT102, place, "object", brief(item), key=f"output[{number}]")
    check_ids(report, output, path)


def check_ids(report: Report, items: Sequence[object], path: str) -> None:
    """Checks that item ids are unique, and the call ids of calls too."""
    seen: dict[tuple[str, str], int] = {}
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        keys = ("id", "call_id") if item.get("type") in CALL_ITEMS else ("id",)
        for key in keys:
            value = item.get(key)
            if not isinstance(value, str) or not value:
                continue
            first = seen.setdefault((key, value), number)
            if first != number:
                rule = rules.IT108 if key == "id" else rules.IT111
                report.add(rule, f"{path}[{number}].{key}", "a unique id", brief(value), first=first)


def check_response(report: Report, response: Json, path: str, request: Json | None = None) -> None:
    """Checks a response except for its output: fields, status, usage, settings repeated from the request."""
    check_fields(report, response, schema.RESPONSE_FIELDS, path, rules.RO101, rules.RO102)
    if response.get("object", "response") != "response":
        report.add(rules.RO103, f"{path}.object", '"response"', brief(response["object"]))
    for key in schema.USUAL_RESPONSE_FIELDS:
        if key not in response:
            report.add(rules.RO104, f"{path}.{key}", "the field", "nothing", key=key)
    for key in schema.OBJECTS_OF_RESPONSE:
        if key in response and response[key] is None:
            report.add(rules.RO105, f"{path}.{key}", "object", "null", key=key)
    if "output_text" in response:
        report.add(rules.RO106, f"{path}.output_text")
    status = response.get("status")
    if isinstance(status, str):
        if status not in schema.STATUSES:
            report.add(rules.RO107, f"{path}.status", "completed", brief(status))
        _check_end(report, response, status, path)
    usage = response.get("usage")
    if usage is not None:
        check_usage(report, usage, f"{path}.usage")
    if request is not None:
        _check_echo(report, response, request, path)


def _check_end(report: Report, response: Json, status: str, path: str) -> None:
    error, details = response.get("error"), response.get("incomplete_details")
    if status == "completed":
        if response.get("usage") is None:
            report.add(rules.RO108, f"{path}.usage", "object", brief(response.get("usage", ABSENT)))
        for key, value in (("error", error), ("incomplete_details", details)):
            if value is not None:
                report.add(rules.RO109, f"{path}.{key}", "null", brief(value), key=key)
    elif status == "incomplete" and not (
        isinstance(details, dict) and isinstance(details.get("reason"), str)
    ):
        report.add(rules.RO110, f"{path}.incomplete_details", "an object with a reason", brief(details))
    elif status == "failed" and not isinstance(error, dict):
        report.add(rules.RO111, f"{path}.error", "object", brief(error))
    _check_times(report, response, path)
    if status == "incomplete":
        _check_truncated(report, response, details, path)


def _check_times(report: Report, response: Json, path: str) -> None:
    created, completed = response.get("created_at"), response.get("completed_at")
    if isinstance(created, (int, float)) and isinstance(completed, (int, float)) and completed < created:
        report.add(rules.RO112, f"{path}.completed_at", f">= {created}", brief(completed))


def _check_truncated(report: Report, response: Json, details: object, path: str) -> None:
    """Checks that the item truncated by the token limit is not completed."""
    output = response.get("output")
    last = output[-1] if isinstance(output, list) and output else None
    if (
        isinstance(details, dict)
        and details.get("reason") == "max_output_tokens"
        and isinstance(last, dict)
        and last.get("type") in ("message", "function_call")
        and last.get("status") == "completed"
    ):
        place = f"{path}.output[{len(output or ()) - 1}].status"
        report.add(rules.RO113, place, '"incomplete"', '"completed"')


def check_usage(report: Report, usage: object, path: str) -> None:
    """Checks that token counts are present, not negative, and add up."""
    if not isinstance(usage, dict):
        report.add(rules.RO114, path, "object", brief(usage), key="usage")
        return
    check_fields(report, usage, schema.USAGE_FIELDS, path, rules.RO114, rules.RO114)
    check_token_counts(
        report, usage, path, "input_tokens", "output_tokens", total=rules.RO115, part=rules.RO116
    )


def _check_echo(report: Report, response: Json, request: Json, path: str) -> None:
    for key in schema.REQUESTED_FIELDS:
        wanted = request.get(key)
        if wanted not in (None, "") and key in response and not _same(response[key], wanted):
            report.add(rules.RO117, f"{path}.{key}", brief(wanted), brief(response[key]), key=key)
    if not {"max_output_tokens", "prompt"} & set(request) and response.get("max_output_tokens") is not None:
        report.add(rules.RO118, f"{path}.max_output_tokens", "null", brief(response["max_output_tokens"]))


def _same(left: object, right: object) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        return isinstance(left, (int, float)) and isinstance(right, (int, float)) and abs(left - right) < 1e-6
    return left == right


def check_error(report: Report, error: object) -> None:
    """Checks the error of a body `{error: {message, type, param, code}}`."""
    if not isinstance(error, dict):
        report.add(rules.RO119, "$.error", "object", brief(error), key="error")
        return
    for key in _ERROR_KEYS:
        if key not in error:
            report.add(rules.RO119, f"$.error.{key}", "the field", "nothing", key=key)
    if not isinstance(error.get("message"), str):
        report.add(rules.RO119, "$.error.message", "string", brief(error.get("message")), key="message")


def check_bare_error(report: Report, body: Json) -> None:
    """Reports an error body whose fields are not nested under `error`."""
    report.add(rules.RO119, "$", "{error: {...}}", brief(body), key="error")

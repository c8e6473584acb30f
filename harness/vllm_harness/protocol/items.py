"""Checks of whole objects of the Responses API: an output item, a list of them, a response."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from vllm_harness.protocol import schema
from vllm_harness.protocol.findings import ABSENT, Report, Severity, brief
from vllm_harness.protocol.schema import Fields

Json = Mapping[str, Any]


def check_fields(report: Report, value: Json, fields: Fields, path: str, missing: str, wrong: str) -> None:
    """Required fields: code `missing` where one is absent, code `wrong` where its type is another."""
    for key, types in fields:
        got = value.get(key, ABSENT)
        if type(got) not in types:
            expected = " or ".join(_TYPE_NAMES[t] for t in types)
            if got is ABSENT:
                report.add(
                    missing, f"required field {key!r} is missing", f"{path}.{key}", expected, "nothing"
                )
            else:
                report.add(wrong, f"field {key!r} has the wrong type", f"{path}.{key}", expected, brief(got))


_TYPE_NAMES = {
    str: "string",
    int: "integer",
    float: "number",
    bool: "boolean",
    list: "array",
    dict: "object",
    schema.NULL: "null",
}


def check_item(
    report: Report, item: Json, path: str, response_status: str | None, request: Json | None
) -> None:
    """A finished output item.

    Args:
        report: where findings go.
        item: the item.
        path: JSON path of the item.
        response_status: status of the response when it is known; "completed" asks for finished items.
        request: the request it answers, when it is known.
    """
    kind = item.get("type")
    fields = schema.ITEM_FIELDS.get(kind) if isinstance(kind, str) else None
    if fields is None:
        check_unknown_item(report, kind, path)
        return
    if "status" in item and item["status"] is None:
        severity = Severity.WARNING if kind == "reasoning" else Severity.ERROR
        report.add(
            "IT103", f"status of the {kind} is null", f"{path}.status", '"completed"', "null", severity
        )
        fields = tuple(field for field in fields if field[0] != "status")
    check_fields(report, item, fields, path, "IT101", "IT102")
    for key, _ in fields:
        if item.get(key) == "" and key in ("id", "call_id", "name"):
            report.add("IT105", f"{key} of the {kind} is empty", f"{path}.{key}", "a non-empty string", '""')
    _check_status(report, item, path, response_status)
    _check_parts(report, item, path)
    for key in schema.EVENT_ONLY_FIELDS:
        if key in item:
            report.add(
                "IT110",
                f"{key!r} belongs to the event, not to the item",
                f"{path}.{key}",
                "nothing",
                brief(item[key]),
            )
    if kind == "function_call":
        _check_call(report, item, path, response_status, request)


def check_unknown_item(report: Report, kind: object, path: str) -> None:
    """An item of a type that is not in the tables: information, unless the type is no name at all."""
    if isinstance(kind, str) and kind:
        report.add(
            "IT112", f"item type {kind!r} is not known here; only its nesting is checked", f"{path}.type"
        )
    else:
        report.add("IT101", "the item has no type", f"{path}.type", "string", brief(kind))


def _check_status(report: Report, item: Json, path: str, response_status: str | None) -> None:
    status = item.get("status")
    kind = item.get("type")
    if not isinstance(status, str):
        return
    if status not in schema.ITEM_STATUSES:
        report.add(
            "IT104", f"status of the {kind} is not a status", f"{path}.status", "completed", brief(status)
        )
    elif response_status == "completed" and status != "completed" and kind in schema.MODEL_WRITTEN:
        if not item.get("caller"):
            report.add(
                "IT106",
                f"the {kind} is {status} in a response that is completed",
                f"{path}.status",
                '"completed"',
                brief(status),
            )
    elif response_status == "completed" and status not in ("completed", "failed", "incomplete"):
        report.add(
            "IT107", f"the {kind} is still {status} at its end", f"{path}.status", "completed", brief(status)
        )


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
    """A part of a message or a reasoning item: an object of a type that fits, with its fields."""
    if not isinstance(part, dict):
        report.add("IT113", f"a part of a {item_type} is not an object", path, "object", brief(part))
        return
    kind = part.get("type")
    if kind not in wanted:
        report.add(
            "IT113",
            f"a {item_type} has no parts of this type",
            f"{path}.type",
            " or ".join(wanted),
            brief(kind),
        )
        return
    check_fields(report, part, schema.PART_FIELDS[str(kind)], path, "IT113", "IT113")


def _check_call(
    report: Report, item: Json, path: str, response_status: str | None, request: Json | None
) -> None:
    arguments = item.get("arguments")
    cut = item.get("status") == "incomplete" or response_status in ("incomplete", "failed", "cancelled")
    if isinstance(arguments, str) and not cut and not is_json_object(arguments):
        report.add(
            "IT109",
            "the arguments are not a JSON object",
            f"{path}.arguments",
            "a JSON object",
            brief(arguments),
        )
    offered = _offered_functions(request)
    name = item.get("name")
    if offered and isinstance(name, str) and name not in offered:
        report.add(
            "IT114",
            "the call names a function that the request did not offer",
            f"{path}.name",
            " or ".join(sorted(offered)),
            brief(name),
        )


def is_json_object(text: str) -> bool:
    """Whether a text is one JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _offered_functions(request: Json | None) -> set[str]:
    """Names of the functions a request offers; empty where other kinds of tools may bring more."""
    tools = request.get("tools") if request and "prompt" not in request else None
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        return set()
    if any(tool.get("type") != "function" for tool in tools):
        return set()
    return {tool["name"] for tool in tools if isinstance(tool.get("name"), str)}


def check_output(
    report: Report, output: object, path: str, response_status: str | None, request: Json | None
) -> None:
    """The output list of a response: every item, and ids which do not repeat."""
    if not isinstance(output, list):
        return
    for number, item in enumerate(output):
        if isinstance(item, dict):
            check_item(report, item, f"{path}[{number}]", response_status, request)
        else:
            report.add("IT102", "an output item is not an object", f"{path}[{number}]", "object", brief(item))
    check_ids(report, output, path)


def check_ids(report: Report, items: Sequence[object], path: str) -> None:
    """Item ids differ from each other, and so do the call ids of calls."""
    seen: dict[tuple[str, str], int] = {}
    for number, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        keys = ("id", "call_id") if item.get("type") in schema.CALLS else ("id",)
        for key in keys:
            value = item.get(key)
            if not isinstance(value, str) or not value:
                continue
            first = seen.setdefault((key, value), number)
            if first != number:
                code = "IT108" if key == "id" else "IT111"
                report.add(
                    code,
                    f"{key} repeats that of item {first}",
                    f"{path}[{number}].{key}",
                    "an id of its own",
                    brief(value),
                )


def check_response(report: Report, response: Json, path: str, request: Json | None = None) -> None:
    """A response object, its output left out: fields, status, usage, what belongs to its status, echoes."""
    check_fields(report, response, schema.RESPONSE_FIELDS, path, "RO101", "RO102")
    if response.get("object", "response") != "response":
        report.add(
            "RO103", "object is not a response", f"{path}.object", '"response"', brief(response["object"])
        )
    for key in schema.USUAL_RESPONSE_FIELDS:
        if key not in response:
            report.add(
                "RO104",
                f"field {key!r}, which OpenAI always sends, is missing",
                f"{path}.{key}",
                "the field",
                "nothing",
            )
    for key in schema.OBJECTS_OF_RESPONSE:
        if key in response and response[key] is None:
            report.add(
                "RO105",
                f"{key!r} is null where OpenAI always sends an object",
                f"{path}.{key}",
                "object",
                "null",
            )
    if "output_text" in response:
        report.add(
            "RO106", "output_text is a convenience of the SDK, not a field of the API", f"{path}.output_text"
        )
    status = response.get("status")
    if isinstance(status, str):
        if status not in schema.STATUSES:
            report.add("RO107", "status is not a status", f"{path}.status", "completed", brief(status))
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
            report.add(
                "RO108",
                "a completed response has no usage",
                f"{path}.usage",
                "object",
                brief(response.get("usage", ABSENT)),
            )
        for key, value in (("error", error), ("incomplete_details", details)):
            if value is not None:
                report.add("RO109", f"a completed response has {key}", f"{path}.{key}", "null", brief(value))
    elif status == "incomplete" and not (
        isinstance(details, dict) and isinstance(details.get("reason"), str)
    ):
        report.add(
            "RO110",
            "an incomplete response does not say why",
            f"{path}.incomplete_details",
            "an object with a reason",
            brief(details),
        )
    elif status == "failed" and not isinstance(error, dict):
        report.add("RO111", "a failed response has no error", f"{path}.error", "object", brief(error))
    created, completed = response.get("created_at"), response.get("completed_at")
    if isinstance(created, (int, float)) and isinstance(completed, (int, float)) and completed < created:
        report.add(
            "RO112",
            "completed_at is before created_at",
            f"{path}.completed_at",
            f">= {created}",
            brief(completed),
        )
    output = response.get("output")
    last = output[-1] if isinstance(output, list) and output else None
    if (
        status == "incomplete"
        and isinstance(details, dict)
        and details.get("reason") == "max_output_tokens"
        and isinstance(last, dict)
        and last.get("type") in ("message", "function_call")
        and last.get("status") == "completed"
    ):
        report.add(
            "RO113",
            "the response was cut, and its last item says completed",
            f"{path}.output[{len(output or ()) - 1}].status",
            '"incomplete"',
            '"completed"',
        )


def check_usage(report: Report, usage: object, path: str) -> None:
    """Token counts: present, not negative, and adding up."""
    if not isinstance(usage, dict):
        report.add("RO114", "usage is not an object", path, "object", brief(usage))
        return
    check_fields(report, usage, schema.USAGE_FIELDS, path, "RO114", "RO114")
    _check_sum(report, usage, "input_tokens", "output_tokens", path, "RO115")
    for part, whole in (("cached_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        details = usage.get(f"{whole}_details")
        if isinstance(details, dict):
            check_at_most(
                report, details.get(part), usage.get(whole), f"{path}.{whole}_details.{part}", "RO116"
            )


def _check_sum(report: Report, usage: Json, first: str, second: str, path: str, code: str) -> None:
    a, b, total = usage.get(first), usage.get(second), usage.get("total_tokens")
    if isinstance(a, int) and isinstance(b, int) and isinstance(total, int):
        if total != a + b:
            report.add(
                code,
                f"total_tokens is not {first} + {second}",
                f"{path}.total_tokens",
                str(a + b),
                str(total),
            )
        for key in (first, second):
            if usage[key] < 0:
                report.add(code, f"{key} is negative", f"{path}.{key}", ">= 0", str(usage[key]))


def check_at_most(report: Report, part: object, whole: object, path: str, code: str) -> None:
    """A count of a part of the tokens is between nothing and the whole."""
    if isinstance(part, int) and isinstance(whole, int) and not 0 <= part <= whole:
        report.add(code, "a part is larger than the whole", path, f"0 to {whole}", str(part))


def check_chat_usage(report: Report, usage: object, path: str) -> None:
    """Token counts of Chat Completions."""
    if not isinstance(usage, dict):
        report.add("CU101", "usage is not an object", path, "object", brief(usage))
        return
    check_fields(report, usage, schema.CHAT_USAGE_FIELDS, path, "CU101", "CU101")
    _check_sum(report, usage, "prompt_tokens", "completion_tokens", path, "CU102")
    for part, whole in (("cached_tokens", "prompt_tokens"), ("reasoning_tokens", "completion_tokens")):
        details = usage.get(f"{whole}_details")
        if isinstance(details, dict):
            check_at_most(
                report, details.get(part), usage.get(whole), f"{path}.{whole}_details.{part}", "CU103"
            )


def _check_echo(report: Report, response: Json, request: Json, path: str) -> None:
    for key in schema.REQUESTED_FIELDS:
        wanted = request.get(key)
        if wanted not in (None, "") and key in response and not _same(response[key], wanted):
            report.add(
                "RO117",
                f"{key!r} is not what the request said",
                f"{path}.{key}",
                brief(wanted),
                brief(response[key]),
            )
    if not {"max_output_tokens", "prompt"} & set(request) and response.get("max_output_tokens") is not None:
        report.add(
            "RO118",
            "max_output_tokens was not requested and is not null",
            f"{path}.max_output_tokens",
            "null",
            brief(response["max_output_tokens"]),
        )


def _same(left: object, right: object) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        return isinstance(left, (int, float)) and isinstance(right, (int, float)) and abs(left - right) < 1e-6
    return left == right

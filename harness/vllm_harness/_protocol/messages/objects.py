"""Checks of Messages bodies: messages, content blocks, usage and errors.

Sources: https://docs.anthropic.com/en/api/messages, https://docs.anthropic.com/en/api/errors, the types of
the anthropic SDK.
"""

from __future__ import annotations

from vllm_harness._protocol.core.events import Json
from vllm_harness._protocol.core.fields import check_fields, type_names
from vllm_harness._protocol.core.findings import ABSENT, Severity, brief
from vllm_harness._protocol.core.report import Report
from vllm_harness._protocol.core.types import INT, STR, Fields
from vllm_harness._protocol.messages import object_rules as rules
from vllm_harness._protocol.messages import schema


def check_message(report: Report, message: Json, path: str = "$") -> None:
    """Checks a whole message, as in a body."""
    check_fields(report, message, schema.MESSAGE_FIELDS, path, rules.MB101, rules.MB102)
    check_kind(report, message, path)
    if isinstance(message.get("usage"), dict):
        check_usage(report, message["usage"], f"{path}.usage")
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    for number, block in enumerate(blocks):
        check_block(report, block, f"{path}.content[{number}]")
    shapes = [block for block in blocks if isinstance(block, dict)]
    check_ids(report, shapes, f"{path}.content")
    called = any(block.get("type") == "tool_use" for block in shapes)
    if message.get("stop_reason", ABSENT) is None:
        report.add(rules.MB104, f"{path}.stop_reason", "string", "null")
    check_stop(report, message, called, path)


def check_kind(report: Report, message: Json, path: str) -> None:
    """Checks that `type` is message and `role` is assistant."""
    for key, wanted in (("type", "message"), ("role", "assistant")):
        if message.get(key, wanted) != wanted:
            report.add(rules.MB103, f"{path}.{key}", brief(wanted), message[key], key=key, wanted=wanted)


def check_block(report: Report, block: object, path: str, *, begins: bool = False) -> None:
    """Checks the fields of a content block; if it `begins`, a missing signature is only a warning."""
    if not isinstance(block, dict):
        report.add(rules.MB107, path, "object", block, key="type", kind="content")
        return
    kind = block.get("type")
    known = schema.BLOCKS.get(kind) if isinstance(kind, str) else None
    if known is None:
        if not isinstance(kind, str):
            report.add(rules.MB107, f"{path}.type", "string", brief(kind), key="type", kind="content")
        elif not kind.endswith("_tool_result"):
            report.add(rules.MB109, f"{path}.type", actual=kind, kind=kind)
        return
    for key, types in known.fields:
        actual = block.get(key, ABSENT)
        if type(actual) not in types:
            severity = Severity.WARNING if begins and key == "signature" else None
            wanted = type_names(types)
            report.add(rules.MB107, f"{path}.{key}", wanted, brief(actual), severity, key=key, kind=kind)
    for key in ("id", "name") if kind in schema.CALLS else ():
        if block.get(key) == "":
            report.add(rules.MB107, f"{path}.{key}", "a non-empty string", '""', key=key, kind=kind)


def check_ids(report: Report, blocks: list[Json], path: str) -> None:
    """Checks that the ids of calls are unique."""
    seen: set[str] = set()
    for number, block in enumerate(blocks):
        identifier = block.get("id")
        if block.get("type") in schema.CALLS and isinstance(identifier, str):
            if identifier in seen:
                report.add(rules.MB108, f"{path}[{number}].id", actual=identifier)
            seen.add(identifier)


def check_stop(report: Report, ending: Json, called: bool, path: str) -> None:
    """Checks stop_reason and stop_sequence in a body or a message_delta.

    Args:
        report: collects the findings.
        ending: the object with both fields.
        called: whether the message has tool_use blocks.
        path: the JSON path of `ending`.
    """
    reason, sequence = ending.get("stop_reason"), ending.get("stop_sequence")
    if not isinstance(reason, str):
        return
    place = f"{path}.stop_reason"
    if reason not in schema.STOP_REASONS:
        wanted = " or ".join(sorted(schema.STOP_REASONS))
        report.add(rules.MB104, place, wanted, reason)
    elif reason == "tool_use" and not called:
        report.add(rules.MB105, place, "end_turn", reason)
    elif reason == "end_turn" and called:
        report.add(rules.MB105, place, "tool_use", reason)
    if (reason == "stop_sequence") != isinstance(sequence, str):
        wanted = "the stop sequence" if reason == "stop_sequence" else "null"
        report.add(rules.MB106, f"{path}.stop_sequence", wanted, brief(sequence), reason=reason)


def check_usage(report: Report, usage: object, path: str, *, of_delta: bool = False) -> None:
    """Checks token counts; those of a message_delta (`of_delta`) need not include input_tokens."""
    if not isinstance(usage, dict):
        report.add(rules.MB110, path, "object", brief(usage), key="usage")
        return
    required: Fields = (
        (("output_tokens", INT),) if of_delta else (("input_tokens", INT), ("output_tokens", INT))
    )
    check_fields(report, usage, required, path, rules.MB110, rules.MB110)
    for key in (*schema.INPUT_COUNTS, "output_tokens"):
        count = usage.get(key)
        if type(count) is int and count < 0:
            report.add(rules.MB111, f"{path}.{key}", "0 or more", str(count))


def check_error(report: Report, value: Json) -> None:
    """Checks the error in a body or an error event."""
    error = value.get("error")
    if value.get("type") != "error":
        report.add(rules.MB112, "$.type", '"error"', brief(value.get("type", ABSENT)), key="type")
    if not isinstance(error, dict):
        report.add(rules.MB112, "$.error", "object", brief(value.get("error", ABSENT)), key="error")
        return
    check_fields(report, error, (("type", STR), ("message", STR)), "$.error", rules.MB112, rules.MB112)
    kind = error.get("type")
    if isinstance(kind, str) and kind not in schema.ERRORS:
        wanted = " or ".join(sorted(schema.ERRORS))
        report.add(rules.MB113, "$.error.type", wanted, kind)

"""Explanations of rules: the findings of an example, and the page of a rule."""

from __future__ import annotations

import json
from collections.abc import Sequence
from difflib import SequenceMatcher

from vllm_harness._extensions import COMPARE_ANSWERS, load
from vllm_harness._protocol.bodies import validate_body
from vllm_harness._protocol.conversation.checks import validate_conversation
from vllm_harness._protocol.conversation.compare import compare_responses
from vllm_harness._protocol.conversation.exchange import Exchange
from vllm_harness._protocol.core.differences import common_length
from vllm_harness._protocol.core.events import Api, Json
from vllm_harness._protocol.core.examples import Example
from vllm_harness._protocol.core.findings import Finding
from vllm_harness._protocol.core.rule import Rule
from vllm_harness._protocol.core.sse import parse_sse
from vllm_harness._protocol.known import KnownDeviation
from vllm_harness._protocol.marking import apply_known
from vllm_harness._protocol.rules import AREAS, RULES
from vllm_harness._protocol.samples import build, kind_of, wire
from vllm_harness._protocol.streams import StreamValidator

_MAX_HELD = 16384
_LINE = 240


def findings_of(example: Example) -> list[Finding]:
    """Validates an example, and returns the findings."""
    values = build(example)
    match kind_of(example):
        case "body":
            return validate_body(values[0], request=example.request)
        case "conversation":
            return validate_conversation([Exchange(**value) for value in values])
        case "compare":
            return compare_responses(*values)
        case "through":
            findings: list[Finding] = load(COMPARE_ANSWERS, "a rule of gateways")(*values)
            return findings
        case "known":
            return _findings_of_run(values[0])
    validator = StreamValidator(
        api=_api(example.sample),
        request=example.request,
        max_held=_MAX_HELD,
    )
    data = [wire(example).encode("utf-8", "surrogateescape")]
    for event in parse_sse(data) if kind_of(example) == "sse" else values:
        validator.feed(event)
    validator.close()
    return validator.findings


def _api(sample: str) -> Api:
    """The API of a stream; except for Responses, the name of the stream's sample begins with the API."""
    if sample.startswith("chat"):
        return "chat"
    return "messages" if sample.startswith("messages") else "responses"


def _findings_of_run(run: Json) -> list[Finding]:
    known = KnownDeviation(
        code=run["known"], reference="vllm#46940", versions=run["versions"], note="status is null"
    )
    findings = [Finding(code, RULES[code].severity, 0, "$", RULES[code].title) for code in run["occurred"]]
    return apply_known(findings, [known], run["version"], exercised=[known.reference])


def page(rule: Rule) -> str:
    """The page of a rule, in Markdown."""
    bad = findings_of(rule.bad)
    reported = next((str(finding) for finding in bad if finding.code == rule.code), "")
    return "\n".join(
        (
            f"# {rule.code} {rule.title}",
            "",
            f"{rule.severity} · {AREAS[rule.code[:2]]}",
            "",
            rule.why,
            "",
            f"Source: {rule.source}.",
            "",
            *_shown("Bad", rule.bad, rule.good),
            "",
            *_shown("Good", rule.good, rule.bad),
            "",
            "## Reported as",
            "",
            f"    {reported[:_LINE]}",
            "",
        )
    )


def _shown(title: str, example: Example, other: Example) -> list[str]:
    """The lines of an example that the other example lacks, with one line of context."""
    lines, others = _lines(example), _lines(other)
    body = [f"    request {json.dumps(example.request)}"] if example.request else []
    last = 0
    for operation, first, end, other_first, _ in SequenceMatcher(None, lines, others, False).get_opcodes():
        if operation == "equal":
            continue
        start, stop = max(first - 1, last), min(end + 1, len(lines))
        if start > last:
            body.append("    ...")
        for number in range(start, stop):
            twin = other_first + number - first
            changed = first <= number < end and operation == "replace" and twin < len(others)
            body.append(f"    {_abridged(lines[number], others[twin] if changed else '')}")
        last = stop
    if last < len(lines):
        body.append("    ...")
    return [f"## {title}", "", *(body or ["    (nothing)"])]


def _abridged(line: str, twin: str) -> str:
    """A line; if it is long, only its beginning and the part where it differs from its twin."""
    if len(line) <= _LINE:
        return line
    at = common_length(line, twin)
    if at < _LINE // 2:
        return f"{line[:_LINE]} ..."
    return f"{line[: _LINE // 4]} ... {line[at - _LINE // 4 : at + _LINE // 2]} ..."


def _lines(example: Example) -> list[str]:
    if kind_of(example) == "sse":
        return [line.encode("utf-8", "backslashreplace").decode() for line in wire(example).split("\n")[:-1]]
    values = build(example)
    if kind_of(example) in ("body", "compare", "through"):
        return [
            line for value in values for line in json.dumps(value, indent=1, ensure_ascii=False).split("\n")
        ]
    return [json.dumps(_unnumbered(value), ensure_ascii=False) for value in values]


def _unnumbered(event: Json) -> Json:
    """An event without its sequence number, which would make every later event look changed."""
    if set(event) == {"sequence_number"}:
        return event
    return {key: value for key, value in event.items() if key != "sequence_number" or "type" not in event}


def pages(codes: Sequence[str] = tuple(RULES)) -> dict[str, str]:
    """The pages of the rules by file name, including an index."""
    rows = [f"- [{code}]({code}.md) {RULES[code].severity}: {RULES[code].title}" for code in codes]
    return {
        "README.md": "\n".join(("# Rules", "", *rows, "")),
        **{f"{code}.md": page(RULES[code]) for code in codes},
    }

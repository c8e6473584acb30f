"""Makes an upstream report in Markdown, and a script that shows the defect with vLLM alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.verdict import Reproduction, curve_table
from vllm_harness.extras.triage.script import ServerScript, script_of

LONGEST = 6000
"""The maximum number of characters of an answer that are shown."""


@dataclass(frozen=True)
class ReportFiles:
    """The files for an upstream report.

    Attributes:
        report: the report in Markdown.
        script: the Python script, which the report calls `reproduce.py`.
    """

    report: str
    script: str


def files_of_server(
    defect: Defect, script: ServerScript, shown: Reproduction, environment: str
) -> ReportFiles:
    """Makes the report files for a defect that a server shows."""
    report = markdown(defect, requests_of(script), shown.answers, environment)
    return ReportFiles(report, script_of(defect, script))


def markdown(defect: Defect, steps: Iterable[str], answers: Iterable[Any], environment: str) -> str:
    """Makes the report.

    Args:
        defect: the entry.
        steps: the lines that explain how to reproduce it without the harness.
        answers: the answers that showed it, if any.
        environment: a description of the vLLM that sent them.
    """
    return "\n".join([*_description(defect, environment), *steps, *_answers(answers)]) + "\n"


def _description(defect: Defect, environment: str) -> Iterator[str]:
    yield f"# {defect.title}\n"
    yield f"**Environment:** {environment}\n"
    yield f"{defect.actual}\n"
    if defect.expected:
        yield f"**Expected:** {defect.expected.text} Source: {defect.expected.source}\n"
    if defect.component:
        yield f"**Where:** {', '.join(f'`{place}`' for place in defect.component)}\n"
    if defect.evidence:
        yield f"{defect.evidence}\n"
    if defect.versions:
        yield f"**Versions that show it:** `{defect.versions}`\n"
    yield f"**Upstream:** {_upstream(defect)}\n"


def _upstream(defect: Defect) -> str:
    upstream = defect.upstream
    if upstream.reference:
        return f"{upstream.reference} ({upstream.state or 'state unknown'})"
    queries = "; ".join(f"“{query}”" for query in upstream.searched)
    return f"nothing found on {upstream.searched_on} with {queries}" if queries else "not searched"


def requests_of(script: ServerScript) -> Iterator[str]:
    """Yields the lines of a report with the server's command and the requests."""
    flags = " ".join(map(shlex.quote, script.flags))
    tokenizer = f" --tokenizer {script.tokenizer}" if script.tokenizer else ""
    variables = "".join(f"{name}={shlex.quote(value)} " for name, value in script.env.items())
    yield "## Reproduce\n"
    yield (
        "`python reproduce.py` needs only vLLM, on any machine: it serves a model of two layers with dummy "
        "weights, and a logits processor makes it say the text below. In short:\n"
    )
    yield f"```console\n$ {variables}vllm serve ./model{tokenizer} {flags}\n```\n"
    for step in script.steps:
        yield f"```console\n$ {_curl(step)}\n```\n"
        for pieces in step["say"]:
            yield f"The model says:\n\n{fenced(''.join(map(piece_text, pieces)))}\n"


def piece_text(piece: Any) -> str:
    """Shows a piece of what the model says; a repeated text with its number of repetitions."""
    if isinstance(piece, str | int):
        return str(piece)
    return " + ".join(repr(text) if count == 1 else f"{text!r} * {count}" for text, count in piece)


def _curl(step: Mapping[str, Any]) -> str:
    words = ["curl", *(["-X", step["method"]] if step["method"] != "POST" else [])]
    words.append(f"http://127.0.0.1:8000{step['path']}")
    for name, value in step.get("headers", {}).items():
        words += ["-H", f"{name}: {value}"]
    if (body := step.get("body")) is not None:
        data = json.dumps({"model": "model", **body}, ensure_ascii=False)
        words += ["-H", "Content-Type: application/json", "-d", data]
    elif (content := step.get("content")) is not None:
        words += ["-d", content.replace("{model}", "model")]
    return shlex.join(words)


def _answers(answers: Iterable[Any]) -> Iterator[str]:
    for number, answer in enumerate(answers):
        if number == 0:
            yield "## Got\n"
        if table := "\n".join(curve_table(answer)):
            yield f"`{answer['case']}`, `{answer['delivery']}`:\n\n{table}\n"
            continue
        shown = {name: value for name, value in answer.items() if name not in ("headers", "stream")}
        text = json.dumps(shown, indent=1, ensure_ascii=False)
        yield f"{fenced(truncated(text), 'json')}\n"


def truncated(text: str) -> str:
    """Truncates a long text, and adds the number of omitted characters."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... ({len(text) - LONGEST} more characters)"


def fenced(text: str, language: str = "text") -> str:
    """Puts a text into a Markdown code fence that does not occur in the text."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"

"""A defect as a report to file with vLLM, in Markdown, and a script that shows it with vLLM alone."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.script import ServerScript, script_of
from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._extensions import CURVE_TABLE, load
from vllm_harness._protocol.core.events import Json

LONGEST = 6000
"""Characters of an answer that are shown."""


@dataclass(frozen=True)
class ReportFiles:
    """The files.

    Attributes:
        report: Markdown.
        script: Python; the report names it `reproduce.py`.
    """

    report: str
    script: str


def files_of_server(defect: Defect, made: ServerScript, shown: Reproduction, environment: str) -> ReportFiles:
    """The files of what a server shows."""
    report = markdown(defect, requests_of(made), shown.answers, environment)
    return ReportFiles(report, script_of(defect, made))


def markdown(defect: Defect, shown: Iterable[str], answers: Iterable[Any], environment: str) -> str:
    """The report.

    Args:
        defect: the entry.
        shown: the lines that say what reproduces it without the harness, in the file `reproduce.py`.
        answers: that were got, to the steps or of the case; none: the report has the entry's words alone.
        environment: the vLLM that gave them.
    """
    return "\n".join([*_description(defect, environment), *shown, *_answers(answers)]) + "\n"


def _description(defect: Defect, environment: str) -> Iterator[str]:
    yield f"# {defect.title}\n"
    yield f"**Environment:** {environment}\n"
    yield f"{defect.actual}\n"
    if defect.expected:
        yield f"**Expected:** {defect.expected.text} Source: {defect.expected.source}\n"
    if defect.component:
        yield f"**Where:** {', '.join(f'`{each}`' for each in defect.component)}\n"
    if defect.evidence:
        yield f"{defect.evidence}\n"
    if defect.versions:
        yield f"**Versions that show it:** `{defect.versions}`\n"
    yield f"**Upstream:** {_upstream(defect)}\n"


def _upstream(defect: Defect) -> str:
    upstream = defect.upstream
    if upstream.reference:
        return f"{upstream.reference} ({upstream.state or 'state unknown'})"
    queries = "; ".join(f"“{each}”" for each in upstream.searched)
    return f"nothing found on {upstream.searched_on} by {queries}" if queries else "not searched"


def requests_of(made: ServerScript) -> Iterator[str]:
    """The lines of a report that show the requests to a server."""
    flags = " ".join(map(shlex.quote, made.flags))
    tokenizer = f" --tokenizer {made.tokenizer}" if made.tokenizer else ""
    variables = "".join(f"{name}={shlex.quote(value)} " for name, value in made.env.items())
    yield "## Reproduce\n"
    yield (
        "`python reproduce.py` needs vLLM alone, on any machine: it serves a model of two layers with "
        "made-up weights, which a logits processor has say what is shown. In short:\n"
    )
    yield f"```console\n$ {variables}vllm serve ./model{tokenizer} {flags}\n```\n"
    for step in made.steps:
        yield f"```console\n$ {_curl(step)}\n```\n"
        for pieces in step["say"]:
            yield f"The model says:\n\n{fenced(''.join(map(piece_text, pieces)))}\n"


def piece_text(piece: Any) -> str:
    """A text or a token id as it is; of runs, what is repeated and how often."""
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
        yield f"{fenced(cut(text), 'json')}\n"


def curve_table(answer: Json) -> Iterator[str]:
    """The lines of the table of an answer's curve; nothing for an answer without one."""
    if "curve" in answer:
        yield from load(CURVE_TABLE, "a curve")(answer)


def cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... ({len(text) - LONGEST} more characters)"


def fenced(text: str, language: str = "text") -> str:
    """The text in a fence that it does not hold."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"

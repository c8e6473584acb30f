"""A defect as a report to file with vLLM: Markdown."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from vllm_harness.defects.entry import Defect
from vllm_harness.defects.repro.cost_script import ParsersAlone
from vllm_harness.defects.repro.costs import curve_table
from vllm_harness.defects.repro.script import StandAlone

LONGEST = 6000
"""Characters of an answer that are shown."""


def markdown(
    defect: Defect, made: StandAlone | ParsersAlone, answers: Iterable[Any], environment: str
) -> str:
    """The report.

    Args:
        defect: the entry.
        made: what reproduces it without the harness; the report names the file `reproduce.py`.
        answers: that were got, to the steps or of the case; none: the report has the entry's words alone.
        environment: the vLLM that gave them.
    """
    shown = _measurement(made) if isinstance(made, ParsersAlone) else _reproduction(made)
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


def _reproduction(made: StandAlone) -> Iterator[str]:
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
            yield f"The model says:\n\n{_fenced(''.join(map(_piece, pieces)))}\n"


def _measurement(made: ParsersAlone) -> Iterator[str]:
    how = "token by token" if made.streamed else "whole"
    parsers = {"tool parser": made.tool_parser, "reasoning parser": made.reasoning_parser}
    named = " and ".join(f"the {kind} `{name}`" for kind, name in parsers.items() if name)
    yield "## Reproduce\n"
    yield (
        f"`python reproduce.py` needs vLLM alone, on any machine: it has {named} read an answer at lengths "
        f"that double, {how}, as the server does, and prints the CPU time. The longest:\n"
    )
    yield f"{_fenced(_cut(_piece(made.lengths[-1])))}\n"


def _piece(piece: Any) -> str:
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
        yield f"{_fenced(_cut(text), 'json')}\n"


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}\n... ({len(text) - LONGEST} more characters)"


def _fenced(text: str, language: str = "text") -> str:
    """The text in a fence that it does not hold."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"

"""What an answer costs, measured without the harness: vLLM's parsers in process, or its server."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vllm_harness._defects.entry import Defect
from vllm_harness._defects.repro.report import (
    ReportFiles,
    fenced,
    files_of_server,
    markdown,
    piece_text,
    truncated,
)
from vllm_harness._defects.repro.script import PLUGIN, ServerScript, filled_template, model_of, server_script
from vllm_harness._defects.repro.verdict import Reproduction
from vllm_harness._regression.cases.case import Run
from vllm_harness._regression.cases.delivery import Delivery
from vllm_harness._regression.engines.answer import CaseAnswer, Curve
from vllm_harness._regression.engines.exchanges import body_of, path_of
from vllm_harness._scripted.families import entry_of
from vllm_harness.extras.costs.over_http import LONG_ENV, REQUEST_S, limit_of, long_args
from vllm_harness.extras.costs.repro import CostCase

_REPEATED = re.compile(r"(.{1,300}?)\1{3,}", re.DOTALL)
MEASURE = Path(__file__).with_name("standalone") / "measure.py"
HOW = """\
It has vLLM's parsers read an answer at lengths that double, as its server does for each request, and prints
the CPU time that this takes."""


@dataclass(frozen=True)
class ParsersScript:
    """What a file needs to measure parsers in process.

    Attributes:
        tool_parser, reasoning_parser: vLLM's names.
        request: fields of each request.
        tools: that a request offers.
        lengths: of the answer, each as runs.
        streamed: whether it is read token by token, not whole.
        harmony: whether the parser is that of gpt-oss.
        files, tokenizer: as of `ServerScript`.
        plugin: the file with the tool parser, among the files; empty: vLLM's own.
    """

    tool_parser: str | None
    reasoning_parser: str | None
    request: Mapping[str, Any]
    tools: Sequence[Mapping[str, Any]]
    lengths: Sequence[Sequence[Run]]
    streamed: bool
    harmony: bool
    files: Mapping[str, Any]
    tokenizer: str
    plugin: str = ""


def cost_files(cost: CostCase, shown: Reproduction, environment: str) -> ReportFiles:
    """The files of a defect, measured at the lengths at which it was seen."""
    if cost.is_served:
        return files_of_server(cost.defect, _served(cost, shown), shown, environment)
    made = _in_process(cost, shown)
    report = markdown(cost.defect, _measurement(made), shown.answers, environment)
    return ReportFiles(report, cost_script_of(cost.defect, made))


def cost_script_of(defect: Defect, made: ParsersScript) -> str:
    """The file's text."""
    constants = {
        "TOOL_PARSER": made.tool_parser,
        "REASONING_PARSER": made.reasoning_parser,
        "PLUGIN": made.plugin,
        "REQUEST": dict(made.request),
        "TOOLS": list(made.tools),
        "LENGTHS": [list(runs) for runs in made.lengths],
        "STREAMED": made.streamed,
        "HARMONY": made.harmony,
        "FILES": dict(made.files),
    }
    return filled_template(MEASURE, defect, HOW, constants, made.tokenizer)


def _in_process(cost: CostCase, shown: Reproduction) -> ParsersScript:
    family, input_ = cost.family, cost.case.input
    files, tokenizer = model_of(entry_of(family))
    if family.plugin:
        files[PLUGIN] = Path(family.plugin).read_text()
    curve = _curve(shown)
    lengths = input_.grown[: len(curve.points) + 1] if curve else input_.grown
    return ParsersScript(
        tool_parser=family.tool_parser,
        reasoning_parser=family.reasoning_parser,
        request=family.request,
        tools=input_.tools,
        lengths=[folded(grown.text) for grown in lengths],
        streamed=Delivery.parse(shown.delivery).is_streamed,
        harmony=family.form is None,
        files=files,
        tokenizer=tokenizer,
        plugin=PLUGIN if family.plugin else "",
    )


def _served(cost: CostCase, shown: Reproduction) -> ServerScript:
    input_, entry = cost.case.input, entry_of(cost.family)
    delivery = Delivery.parse(shown.delivery)
    steps = []
    curve = _curve(shown)
    assert curve is not None
    for grown, point in zip(input_.grown, curve.points, strict=False):
        limited = input_.model_copy(update={"max_tokens": limit_of(point.size)})
        steps.append(
            {
                "method": "POST",
                "path": path_of(delivery),
                "body": {**body_of(limited, delivery, "Go on."), **cost.family.request},
                "say": [[folded(grown.text)]],
                "tokens": point.size,
                "limit_s": REQUEST_S,
            }
        )
    return server_script(entry, "python", long_args(cost.family), LONG_ENV, steps)


def folded(text: str) -> list[Run]:
    """A text as runs: what is repeated in it four times or more is told once."""
    runs: list[Run] = []
    end = 0
    for found in _REPEATED.finditer(text):
        runs += [(text[end : found.start()], 1), (found[1], len(found[0]) // len(found[1]))]
        end = found.end()
    return [run for run in (*runs, (text[end:], 1)) if run[0]]


def _curve(shown: Reproduction) -> Curve | None:
    """The curve that shows the defect; None where an error in its place does."""
    answers = map(CaseAnswer.model_validate, shown.answers)
    return next((each.curve for each in answers if str(each.delivery) == shown.delivery), None)


def _measurement(made: ParsersScript) -> Iterator[str]:
    how = "token by token" if made.streamed else "whole"
    parsers = {"tool parser": made.tool_parser, "reasoning parser": made.reasoning_parser}
    named = " and ".join(f"the {kind} `{name}`" for kind, name in parsers.items() if name)
    yield "## Reproduce\n"
    yield (
        f"`python reproduce.py` needs vLLM alone, on any machine: it has {named} read an answer at lengths "
        f"that double, {how}, as the server does, and prints the CPU time. The longest:\n"
    )
    yield f"{fenced(truncated(piece_text(made.lengths[-1])))}\n"
